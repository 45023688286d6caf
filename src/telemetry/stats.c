#include "telemetry/stats.h"

#include "base/text.h"
#include "heap/heap.h"
#include "large/large.h"
#include "learn/learned.h"
#include "map/extent.h"
#include "map/metadata.h"
#include "map/page_map.h"
#include "map/superslab.h"
#include "map/usage.h"
#include "os/os.h"
#include "reclaim/reclaim.h"

#include <string.h>

#define FIELD(name) {#name, offsetof(struct hak_stats, name)}

const struct stats_field stats_fields[] = {
    FIELD(live_bytes),          FIELD(bin_blocks),
    FIELD(bin_bytes),           FIELD(in_flight_bytes),
    FIELD(slab_free_bytes),     FIELD(unit_free_bytes),
    FIELD(extent_free_bytes),   FIELD(large_bytes),
    FIELD(large_cached_bytes),  FIELD(metadata_bytes),
    FIELD(heap_bytes),          FIELD(heap_peak_bytes),
    FIELD(reserved_bytes),      FIELD(committed_bytes),
    FIELD(limit_bytes),         FIELD(large_count),
    FIELD(large_mapping_count), FIELD(heap_count),
    FIELD(heap_parked_count),   FIELD(refills),
    FIELD(refilled_blocks),     FIELD(flushes),
    FIELD(flushed_blocks),      FIELD(bin_growths),
    FIELD(bin_shrinks),         FIELD(envelopes_sent),
    FIELD(remote_frees),        FIELD(foreign_frees),
    FIELD(cache_hits),          FIELD(cache_hits_of_site),
    FIELD(cache_misses),        FIELD(cache_evictions),
    FIELD(reclaim_rounds),      FIELD(purges),
    FIELD(purged_bytes),        FIELD(calls_map),
    FIELD(calls_unmap),         FIELD(calls_protect),
    FIELD(calls_advise),        FIELD(calls_remap),
    FIELD(calls_futex),         FIELD(calls_other),
    FIELD(policy_arms),         FIELD(policy_matches),
    FIELD(policy_switches),     FIELD(policy_cost_ns),
    FIELD(policy_fixed_ns),     FIELD(policy_best_ns),
};
const size_t stats_field_count = sizeof stats_fields / sizeof stats_fields[0];
_Static_assert(sizeof stats_fields / sizeof stats_fields[0] == sizeof(struct hak_stats) / sizeof(uint64_t),
               "one row a field");

static _Atomic uint64_t foreign_frees;

void count_foreign_free(void) { atomic_fetch_add_explicit(&foreign_frees, 1, memory_order_relaxed); }

static void add_heap(struct hak_stats *out, struct heap *heap) {
  lock_take(&heap->lock);
  struct bins_content bins = bins_content(heap);
  size_t inbox = atomic_load_explicit(&heap->inbox_bytes, memory_order_relaxed);
  size_t taken = slab_set_taken_bytes(&heap->slabs);
  out->bin_bytes += bins.bytes;
  out->bin_blocks += bins.blocks;
  out->in_flight_bytes += inbox;
  out->live_bytes += taken - min_size(taken, bins.bytes + inbox);
  out->slab_free_bytes += heap->slabs.slab_bytes - taken;
  out->refills += heap->counters.refills;
  out->refilled_blocks += heap->counters.refilled_blocks;
  out->flushes += heap->counters.flushes;
  out->flushed_blocks += heap->counters.flushed_blocks;
  out->bin_growths += heap->counters.bin_growths;
  out->bin_shrinks += heap->counters.bin_shrinks;
  lock_give(&heap->lock);
  out->envelopes_sent += atomic_load_explicit(&heap->outbox.envelopes_sent, memory_order_relaxed);
  out->remote_frees += atomic_load_explicit(&heap->outbox.remote_frees, memory_order_relaxed);
  out->heap_parked_count += atomic_load_explicit(&heap->parked, memory_order_relaxed);
}

static void add_policy(struct hak_stats *out) {
  struct learned_stats learned;
  learned_stats(&learned);
  out->policy_arms = learned.arms;
  out->policy_matches = learned.totals.epochs;
  out->policy_switches = learned.totals.switches;
  out->policy_cost_ns = learned.totals.acted;
  out->policy_best_ns = learned.totals.best_of_arm;
  out->policy_fixed_ns = learned.totals.fixed[evolve_best_fixed(learned.totals.fixed)];
}

void hak_stats_get(struct hak_stats *out) {
  *out = (struct hak_stats){0};
  out->heap_count = heap_count();
  for (uint32_t id = 1; id <= out->heap_count; id++)
    add_heap(out, heap_by_id(id));
  size_t in_outboxes = 0; /* counted as taken by the heaps that own the blocks */
  for (uint32_t id = 1; id <= out->heap_count; id++)
    in_outboxes += atomic_load_explicit(&heap_by_id(id)->outbox.open_bytes, memory_order_relaxed);
  out->in_flight_bytes += in_outboxes;
  out->live_bytes -= min_size(out->live_bytes, in_outboxes);
  struct unit_stats units;
  units_stats(&units);
  struct large_stats large;
  large_stats(&large);
  struct extent_stats extents;
  extents_stats(&extents);
  struct reclaim_counters reclaimed;
  reclaim_counters(&reclaimed);
  out->unit_free_bytes = units.resident_free_bytes;
  out->extent_free_bytes = extents.resident_free_bytes;
  out->reserved_bytes = extents.reserved_bytes;
  out->committed_bytes = extents.committed_bytes;
  out->limit_bytes = usage_limit() == SIZE_MAX ? 0 : usage_limit();
  out->large_mapping_count = large.mapping_count;
  out->cache_hits = large.cache_hits;
  out->cache_hits_of_site = large.cache_hits_of_site;
  out->cache_misses = large.cache_misses;
  out->cache_evictions = large.evictions;
  out->reclaim_rounds = reclaimed.rounds;
  out->purges = reclaimed.purges;
  out->purged_bytes = reclaimed.purged_bytes;
  out->large_bytes = large.live_bytes;
  out->large_count = large.live_count;
  out->large_cached_bytes = large.cached_bytes;
  out->live_bytes += large.live_bytes;
  out->metadata_bytes = metadata_bytes() + map_bytes();
  out->heap_bytes = usage_taken();
  out->heap_peak_bytes = usage_taken_peak();
  out->foreign_frees = atomic_load_explicit(&foreign_frees, memory_order_relaxed);
  out->calls_map = os_calls(OS_CALL_MAP);
  out->calls_unmap = os_calls(OS_CALL_UNMAP);
  out->calls_protect = os_calls(OS_CALL_PROTECT);
  out->calls_advise = os_calls(OS_CALL_ADVISE);
  out->calls_remap = os_calls(OS_CALL_REMAP);
  out->calls_futex = os_calls(OS_CALL_FUTEX);
  out->calls_other = os_calls(OS_CALL_OTHER);
  add_policy(out);
}

static uint64_t calls_sum(const struct hak_stats *s) {
  return s->calls_map + s->calls_unmap + s->calls_protect + s->calls_advise + s->calls_remap + s->calls_futex +
         s->calls_other;
}

/* Nothing counts on the fast path, so the hit rate is known from below only. Of the blocks that
 * refills brought, those that are neither in the bins nor went back were handed out, one a refill as
 * the miss; what frees brought to the bins and was handed out again only adds hits. */
static void text_hit_rate(struct text *text, const struct hak_stats *s) {
  uint64_t back = s->flushed_blocks + s->bin_blocks;
  uint64_t served = s->refilled_blocks > back ? s->refilled_blocks - back : 0;
  if (served <= s->refills) {
    text_string(text, "not known");
    return;
  }
  text_string(text, "at least ");
  text_fraction(text, (served - s->refills) * 100, served, 1);
  text_string(text, " %");
}

static void report_text(struct text *text, const struct hak_stats *s, const struct os_usage *usage) {
  text_string(text, "hakmem: peak RSS ");
  text_bytes(text, usage->resident_peak_bytes);
  text_string(text, ", page faults ");
  text_decimal(text, usage->faults_minor + usage->faults_major);
  text_string(text, "\nhakmem: heap at exit ");
  text_bytes(text, s->live_bytes);
  text_string(text, " live of ");
  text_bytes(text, s->heap_bytes);
  text_string(text, ", at most ");
  text_bytes(text, s->heap_peak_bytes);
  text_string(text, "; own tables ");
  text_bytes(text, s->metadata_bytes);
  text_string(text, " mapped\nhakmem: system calls ");
  text_decimal(text, calls_sum(s));
  text_string(text, " (map ");
  text_decimal(text, s->calls_map);
  text_string(text, ", unmap ");
  text_decimal(text, s->calls_unmap);
  text_string(text, ", protect ");
  text_decimal(text, s->calls_protect);
  text_string(text, ", advise ");
  text_decimal(text, s->calls_advise);
  text_string(text, ", remap ");
  text_decimal(text, s->calls_remap);
  text_string(text, ", futex ");
  text_decimal(text, s->calls_futex);
  text_string(text, ", other ");
  text_decimal(text, s->calls_other);
  text_string(text, ")\nhakmem: bin hit rate ");
  text_hit_rate(text, s);
  text_string(text, "; refills ");
  text_decimal(text, s->refills);
  text_string(text, ", flushes ");
  text_decimal(text, s->flushes);
  text_string(text, ", remote frees ");
  text_decimal(text, s->remote_frees);
  text_string(text, ", heaps ");
  text_decimal(text, s->heap_count);
  text_string(text, "\n");
  if (s->policy_fixed_ns > 0) {
    text_string(text, "hakmem: policy decides about ");
    text_decimal(text, s->policy_arms);
    text_string(text, " call sites by size, after ");
    text_decimal(text, s->policy_matches);
    text_string(text, " matches; cost ");
    text_fraction(text, s->policy_cost_ns, s->policy_fixed_ns, 2);
    text_string(text, " of the best single strategy's\n");
  }
}

static uint64_t field_value(const struct hak_stats *stats, const struct stats_field *field) {
  uint64_t value;
  memcpy(&value, (const char *)stats + field->offset, sizeof value);
  return value;
}

static void json_pair(struct text *text, const char *name, uint64_t value) {
  text_string(text, ",\"");
  text_string(text, name);
  text_string(text, "\":");
  text_decimal(text, value);
}

static void report_json(struct text *text, const struct hak_stats *s, const struct os_usage *usage) {
  text_string(text, "{\"hakmem\":\"");
  text_string(text, hak_version());
  text_string(text, "\"");
  json_pair(text, "pid", (uint64_t)os_process_id());
  json_pair(text, "rss_peak_bytes", usage->resident_peak_bytes);
  json_pair(text, "faults_minor", usage->faults_minor);
  json_pair(text, "faults_major", usage->faults_major);
  for (size_t i = 0; i < stats_field_count; i++)
    json_pair(text, stats_fields[i].name, field_value(s, &stats_fields[i]));
  text_string(text, "}\n");
}

void stats_report(int fd, enum stats_mode mode) {
  char bytes[4096];
  struct text text = TEXT_IN(bytes);
  struct hak_stats stats;
  struct os_usage usage;
  hak_stats_get(&stats);
  os_usage_read(&usage);
  if (mode == STATS_JSON)
    report_json(&text, &stats, &usage);
  else
    report_text(&text, &stats, &usage);
  os_write(fd, text.bytes, text.length);
}
