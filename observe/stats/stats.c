#include "stats/stats.h"

#include "adapt/policy_engine.h"
#include "base/counters.h"
#include "budget/usage.h"
#include "guard/slots.h"
#include "heap/ids.h"
#include "heap/slow_path.h"
#include "inspect/process.h"
#include "large/large.h"
#include "large/range.h"
#include "pages/extent.h"
#include "pages/metadata.h"
#include "pages/page_map.h"
#include "profile/profile.h"
#include "reclaim/reclaim.h"
#include "threads/watch.h"

#include <errno.h>

uint64_t stats_parts_sum(const struct hak_stats *stats) {
  uint64_t sum = 0;
  for (size_t i = 0; i < STATS_FIELDS; i++)
    if (stats_fields[i].group == STATS_PART)
      sum += ((const uint64_t *)stats)[i];
  return sum;
}

/* --- heaps --- */

#define ADD_COUNTER(name) out->name += counters->name;

static void add_heap(struct hak_stats *out, const struct heap_figures *figures) {
  const struct heap_counters *counters = &figures->counters;
  HEAP_COUNTERS(ADD_COUNTER)
  out->envelopes_sent += figures->envelopes_sent;
  out->remote_frees += figures->remote_frees;
  out->heap_count++;
  out->heap_parked_count += figures->is_parked;
  out->bin_blocks += figures->bin_blocks;
}

static void add_slabs(struct hak_stats *out, const struct slab_counters *counters) { SLAB_COUNTERS(ADD_COUNTER) }

static void add_pool(struct hak_stats *out, const struct pool_figures *figures) {
  const struct pool_counters *counters = &figures->counters;
  POOL_COUNTERS(ADD_COUNTER)
  add_slabs(out, &figures->slab_counters);
  out->slab_free_bytes += figures->slab_bytes - figures->taken_bytes;
}

/* Bins, outboxes and inboxes change without the locks, and the heaps are visited after the pools. So each part of the
 * taken bytes is limited to what the others leave, and they always add up. */
static void add_heaps(struct hak_stats *out) {
  size_t taken = 0, in_flight = 0, in_bins = 0;
  for (struct pool *at = pool_next(NULL); at; at = pool_next(at)) {
    struct pool_figures pool;
    pool_figures(at, &pool);
    add_pool(out, &pool);
    taken += pool.taken_bytes;
    in_flight += pool.inbox_bytes;
  }
  for (const struct heap *at = heap_next(NULL); at; at = heap_next(at)) {
    struct heap_figures heap;
    heap_figures(at, &heap);
    add_heap(out, &heap);
    in_bins += heap.bin_bytes + heap.checked_bytes;
    in_flight += heap.open_bytes;
  }
  in_bins = min_size(in_bins, taken);
  in_flight = min_size(in_flight, taken - in_bins);
  out->bin_bytes += in_bins;
  out->in_flight_bytes += in_flight;
  out->live_bytes += taken - in_bins - in_flight;
}

/* --- extents, large objects --- */

static void add_extents(struct hak_stats *out) {
  struct extent_stats extents;
  extents_stats(&extents);
  out->extent_free_bytes = extents.resident_free_bytes;
  out->extent_purged_bytes = extents.other_free_bytes;
  out->extent_unused_bytes = extents.unused_bytes;
  out->reserved_bytes = extents.reserved_bytes;
  out->committed_bytes = extents.committed_bytes;
}

static void add_large_parts(struct hak_stats *out, size_t live_bytes, size_t cached_bytes, size_t mapping_bytes) {
  out->large_bytes = live_bytes;
  out->live_bytes += live_bytes;
  out->large_cached_bytes = cached_bytes;
  out->large_mapping_bytes = mapping_bytes;
}

static void add_large(struct hak_stats *out) {
  struct large_stats large;
  large_stats(&large);
  add_large_parts(out, large.live_bytes, large.cached_bytes, large.mapping_bytes);
  out->large_count = large.live_count;
  out->large_mapping_count = large.mapping_count;
  out->large_allocations = large.made_count;
  out->large_frees = large.freed_count;
  out->stash_hits = large.stash_hits;
}

static void add_memory(struct hak_stats *out) {
  add_heaps(out);
  add_large(out);
  add_extents(out);
  out->metadata_bytes = metadata_bytes() + map_bytes();
  profile_stats(out);
  slots_stats(out);
  out->mapped_bytes = out->committed_bytes + out->large_mapping_bytes + out->metadata_bytes + out->profile_table_bytes +
                      out->guarded_bytes;
  /* Slabs and large objects are read at two times: their sum may be higher than the two ever were together. */
  out->heap_peak_bytes = usage_taken_peak();
  out->heap_bytes = min_size(sub_sat(usage_taken(), usage_taken_large()) + out->large_bytes, out->heap_peak_bytes);
  out->limit_bytes = usage_limit() == SIZE_MAX ? 0 : usage_limit();
}

/* --- events --- */

#define COUNTER_VALUE(group, name, kind, unit, sentence) VALUE_OF_##kind(name)
#define VALUE_OF_GAUGE(name)
#define VALUE_OF_COUNTER(name) .name = counter_read(name),

static void take_counters(struct hak_stats *out) {
  *out = (struct hak_stats){HAK_STATS_ROWS(COUNTER_VALUE)};
  out->calls = out->calls_map + out->calls_unmap + out->calls_protect + out->calls_advise + out->calls_remap +
               out->calls_futex + out->calls_other;
}

static void add_policy(struct hak_stats *out) {
  struct policy_totals learned = policy_stats();
  out->policy_arms = learned.arms;
  out->policy_matches = learned.epochs;
  out->policy_switches = learned.switches;
  out->policy_cost_ns = learned.acted;
  out->policy_best_ns = learned.best_of_arm;
  out->policy_fixed_ns = learned.fixed[policy_best_fixed(learned.fixed)];
}

static void add_counted(struct hak_stats *out) {
  struct class_counts counts[HAK_CLASS_COUNT];
  heaps_counts(counts);
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    out->mallocs += counts[cls].allocated;
    out->frees += counts[cls].freed;
  }
}

void stats_take(struct hak_stats *out) {
  take_counters(out);
  size_t ended = usage_moves_ended(); /* read before the figures; usage_moves_begun is read after them */
  add_memory(out);
  out->moving_bytes = usage_moves_begun() - ended;
  add_counted(out);
  add_policy(out);
}

int hak_stats_get(struct hak_stats *out) {
  KEEP_ERRNO;
  *out = (struct hak_stats){0};
  if (!slow_path_begin_patiently())
    return EBUSY;
  stats_take(out);
  slow_path_end();
  return 0;
}

void hak_process_stats_get(struct hak_process_stats *out) { os_process_read(out); }

/* --- classes --- */

size_t stats_classes_take(struct hak_class_stats *out, size_t count) {
  struct class_figures classes[HAK_CLASS_COUNT];
  struct class_counts counts[HAK_CLASS_COUNT];
  pools_classes(classes);
  heaps_counts(counts);
  size_t written = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT && written < count; cls++)
    if (classes[cls].slabs > 0 || counts[cls].allocated > 0)
      out[written++] = (struct hak_class_stats){.block_bytes = class_bytes(cls),
                                                .slab_count = classes[cls].slabs,
                                                .slab_bytes = classes[cls].slabs * class_slab_bytes(cls),
                                                .taken_bytes = classes[cls].taken_blocks * class_bytes(cls),
                                                .bin_bytes = classes[cls].bin_blocks * class_bytes(cls),
                                                .mallocs = counts[cls].allocated,
                                                .frees = counts[cls].freed};
  return written;
}

size_t hak_stats_classes_get(struct hak_class_stats *out, size_t count) {
  KEEP_ERRNO;
  if (!slow_path_begin_patiently())
    return 0;
  size_t written = stats_classes_take(out, count);
  slow_path_end();
  return written;
}

#ifdef HAK_DEBUG
bool stats_parts_hold(void) {
  struct hak_stats held = {0};
  size_t ended = usage_moves_ended();
  add_heaps(&held);
  add_large_parts(&held, usage_taken_large(), decay_total(&big_cache_decay), range_mapping_bytes());
  add_extents(&held);
  uint64_t sum = stats_parts_sum(&held);
  uint64_t mapped = held.committed_bytes + held.large_mapping_bytes;
  uint64_t moving = usage_moves_begun() - ended;
  return (sum > mapped ? sum - mapped : mapped - sum) <= moving;
}
#endif
