/* Each row of hakmem/stats.h rises when what it counts happens: one row here for each there, none left out. And the
 * fast path moves no counter.
 *
 * Positive control: with `deaf`, nothing is caused; a CHECK must fail.
 */
#include "../child.h"
#include "../threads.h"

#include <hakmem/hakmem.h>

#include "heap/slow_path.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/metadata.h"
#include "reclaim/reclaim.h"

#define TOUCH_BYTES 4096

static _Atomic uint64_t later_ms;
static _Atomic bool purge_refused, metadata_refused, map_refused;
static bool frees_while_read, is_dense, is_deaf;
static void *moving;

TEST_WRAP(uint64_t, os_milliseconds, void) { return __real_os_milliseconds() + atomic_load(&later_ms); }
static void pass(uint64_t ms) { atomic_fetch_add(&later_ms, ms); }

TEST_WRAP(bool, os_purge, void *address, size_t size) {
  return !atomic_load(&purge_refused) && __real_os_purge(address, size);
}

TEST_WRAP(void *, os_map, size_t size, size_t alignment) {
  return atomic_load(&map_refused) ? NULL : __real_os_map(size, alignment);
}

/* As if the kernel could. */
TEST_WRAP(size_t, os_resident_bytes, const void *address, size_t size) {
  return is_dense ? size : __real_os_resident_bytes(address, size);
}
TEST_WRAP(enum os_collapse, os_huge_collapse, void *address, size_t size) { return OS_COLLAPSED; }
TEST_WRAP(bool, os_huge_is_forbidden, void) { return false; }

TEST_WRAP(void *, metadata_take, unsigned order) {
  return atomic_load(&metadata_refused) ? NULL : __real_metadata_take(order);
}

static void *free_moving(void *unused) {
  hak_free(moving);
  moving = NULL;
  return unused;
}
TEST_WRAP(void, extents_stats, struct extent_stats *out) {
  __real_extents_stats(out);
  pthread_t thread; /* the one that reads is in a slow path */
  if (frees_while_read && pthread_create(&thread, NULL, free_moving, NULL) == 0)
    pthread_join(thread, NULL);
}

static void set(const char *name, const char *value) { CHECK(hak_option_set(name, value) == 0); }

/* All its objects have one call site. */
__attribute__((noinline)) static void *filled(size_t size) {
  char *block = CHECK_GOT(hak_malloc(size));
  for (size_t at = 0; at < size; at += TOUCH_BYTES)
    block[at] = 1;
  return block;
}

/* --- what happens --- */

#define KEPT_MAX 400000
static void *kept[KEPT_MAX];
static int kept_count;

static void keep(size_t size, int count) {
  for (int i = 0; i < count; i++) {
    CHECK(kept_count < KEPT_MAX);
    kept[kept_count++] = filled(size);
  }
}

static void drop_but(int one_in) {
  int stay = 0;
  for (int i = 0; i < kept_count; i++)
    if (one_in && i % one_in == 0)
      kept[stay++] = kept[i];
    else
      hak_free(kept[i]);
  kept_count = stay;
}
static void drop(void) { drop_but(0); }

static void one_block(void) { keep(100, 1); }
static void block_freed(void) { hak_free(filled(100)); }
static void many_small(void) { keep(64, 100000); }
static void small_come_and_go(void) {
  many_small();
  drop();
}
static void slabs_and_trim(void) {
  small_come_and_go();
  hak_trim(0);
}
static void holes(void) {
  many_small();
  drop_but(2000);
  hak_trim(0);
}
static void bins_idle(void) {
  small_come_and_go();
  for (int i = 0; i < 20000; i++)
    hak_free(hak_malloc(0));
}
static void zero_bytes(void) {
  void *blocks[2] = {hak_malloc(0), hak_malloc(0)};
  hak_free(blocks[0]);
  hak_free(blocks[1]);
}

static void one_large(void) { keep(MIB, 1); }
static void large_freed(void) { hak_free(filled(MIB + 1)); }
static void large_changing(void) {
  for (size_t size = 1; size < 8; size++)
    hak_free(filled(size * MIB + 1));
}
static void own_range(void) {
  for (int i = 0; i < 8; i++)
    hak_free(filled(3 * MIB));
}
/* More than a thread's stash may hold. */
static void steady_site(void) {
  void *blocks[16];
  set("large_cache_mb", "64");
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 16; i++)
      blocks[i] = filled(3 * MIB);
    for (int i = 0; i < 16; i++)
      hak_free(blocks[i]);
  }
  set("large_cache_mb", NULL);
}
static void cache_emptied(void) {
  steady_site();
  hak_trim(0);
}
static void one_mapping(void) { keep(64 * MIB, 1); }
static void mapping_ended(void) {
  set("large_cache_mb", "0");
  hak_free(filled(64 * MIB));
  set("large_cache_mb", NULL);
}
static void mapping_grown(void) {
  void *block = filled(64 * MIB);
  block = CHECK_GOT(hak_realloc(block, 100 * MIB));
  hak_free(block);
}
static void many_large(void) {
  for (int i = 0; i < 80; i++)
    kept[kept_count++] = hak_malloc(16 * MIB);
  drop();
}
static void read_while_moving(void) {
  moving = filled(MIB + 2);
  frees_while_read = true;
}

/* --- other threads --- */

static void *take_one(void *out) {
  *(void **)out = filled(1000);
  return NULL;
}
static void *take_and_drop(void *unused) {
  hak_free(filled(1000));
  return unused;
}
static void thread_of_old(void) {
  test_thread_run(take_and_drop, NULL);
  test_thread_run(take_and_drop, NULL);
}
static void thread_ended(void) {
  test_thread_run(take_and_drop, NULL);
  hak_trim(0);
}
static pthread_barrier_t together;
static void *take_together(void *unused) {
  pthread_barrier_wait(&together);
  hak_free(filled(1000));
  pthread_barrier_wait(&together);
  return unused;
}
static void threads_together(void) {
  pthread_barrier_init(&together, NULL, 8);
  test_threads_run(8, take_together, NULL, 0);
}
static void free_of_other(void) {
  void *block;
  hak_free(test_opaque(hak_malloc(1))); /* else this thread would adopt the other's heap */
  test_thread_run(take_one, &block);
  hak_free(block);
}
static void *free_all(void *unused) {
  drop();
  return unused;
}
static void freed_elsewhere(void) {
  keep(48, 5000);
  test_thread_run(free_all, NULL);
  keep(48, 5000);
}
static void *free_without_memory(void *block) {
  atomic_store(&metadata_refused, true);
  hak_free(block);
  atomic_store(&metadata_refused, false);
  return NULL;
}
static void freed_by_hand(void) { test_thread_run(free_without_memory, filled(1000)); }

static int refuse(size_t wanted_bytes, void *context) { return 0; }
static void *contend(void *unused) {
  for (int i = 0; i < 20000; i++)
    hak_limit_callback_set(NULL, NULL);
  return unused;
}
static void two_at_a_lock(void) {
  struct hak_stats stats;
  uint64_t before = 0;
  for (int i = 0; i < 500; i++) {
    test_threads_run(4, contend, NULL, 0);
    hak_stats_get(&stats);
    if (i > 0 && stats.calls_futex > before)
      return;
    before = stats.calls_futex;
  }
}

/* --- out of the usual --- */

static void foreign(void) {
  static char block[64];
  hak_free(test_opaque(block));
}
static void interrupted(void) {
  void *early = filled(1000);
  CHECK(slow_path_begin());
  void *block = CHECK_GOT(hak_malloc(MIB)); /* as a signal handler would */
  hak_free(block);
  hak_free(early);
  slow_path_end();
}
static void refused(void) {
  hak_limit_callback_set(refuse, NULL);
  set("limit_mb", "1");
  CHECK(test_opaque(hak_malloc(200 * MIB)) == NULL && errno == ENOMEM);
  set("limit_mb", NULL);
  hak_limit_callback_set(NULL, NULL);
}
static void limited(void) { set("limit_mb", "4000"); }
static void purges_due(void) {
  set("keep_mb", "0");
  set("purge_delay_ms", "0");
  for (int i = 0; i < 20; i++) {
    large_changing();
    pass(10);
  }
}
static void dense_for_long(void) {
  is_dense = true;
  keep(1000, 20000);
  for (int i = 0; i < 100; i++) {
    pass(1000);
    reclaim_round(RECLAIM_AGED, NULL);
  }
}
static void purge_in_vain(void) {
  atomic_store(&purge_refused, true);
  large_changing();
  hak_trim(0);
  atomic_store(&purge_refused, false);
}
static void look_at_process(void) {
  struct hak_process_stats process;
  hak_process_stats_get(&process);
}
/* Now and then the objects live long: what was best a while ago is not. */
static void learn(void) {
  set("policy", "evolving");
  for (int i = 0; i < 6000; i++) {
    void *block = hak_malloc(2 * MIB);
    *(char *)block = 1;
    pass(1);
    hak_free(block);
    pass(i / 1000 % 2 ? 3000 : 5);
  }
  set("policy", "off");
}

static void counted(void) {
  set("count", "on");
  for (int i = 0; i < 100; i++)
    block_freed();
}
static void sampled(void) {
  CHECK(hak_profile_start(1) == 0);
  hak_free(hak_malloc(16)); /* the thread follows at its next free */
  keep(500, 10);
}
static void sampled_without_memory(void) {
  counted(); /* there is memory for blocks, for counting and for the pool of samples, not for the profile's tables */
  CHECK(hak_profile_start((size_t)1 << 40) == 0);
  hak_profile_stop();
  keep(500, 10);
  atomic_store(&map_refused, true);
  sampled();
  atomic_store(&map_refused, false);
}

static void guarded(void) {
  CHECK(hak_guard_start(1) == 0);
  hak_free(hak_malloc(16)); /* the thread follows at its next free */
  keep(10, 500);            /* more than there are slots */
}

/* --- the rows --- */

#define ROW(name, cause) {#name, offsetof(struct hak_stats, name), cause}
static const struct row {
  const char *name;
  size_t offset;
  void (*cause)(void);
} rows[] = {
    ROW(live_bytes, one_block),
    ROW(bin_bytes, block_freed),
    ROW(bin_blocks, block_freed),
    ROW(in_flight_bytes, free_of_other),
    ROW(slab_free_bytes, one_block),
    ROW(extent_free_bytes, large_changing),
    ROW(extent_purged_bytes, slabs_and_trim),
    ROW(extent_unused_bytes, one_large),
    ROW(large_cached_bytes, steady_site),
    ROW(metadata_bytes, one_block),
    ROW(mapped_bytes, one_block),
    ROW(moving_bytes, read_while_moving),
    ROW(committed_bytes, one_block),
    ROW(large_mapping_bytes, one_mapping),
    ROW(large_mapping_count, one_mapping),
    ROW(reserved_bytes, one_block),
    ROW(heap_bytes, one_block),
    ROW(heap_peak_bytes, one_block),
    ROW(large_bytes, one_large),
    ROW(large_count, one_large),
    ROW(limit_bytes, limited),
    ROW(heap_count, threads_together),
    ROW(heap_parked_count, thread_ended),
    ROW(heaps_adopted, thread_of_old),
    ROW(heaps_swept, thread_ended),
    ROW(refills, many_small),
    ROW(refilled_blocks, many_small),
    ROW(refills_from_inbox, freed_elsewhere),
    ROW(refills_from_slab, many_small),
    ROW(slabs_opened, many_small),
    ROW(slabs_closed, slabs_and_trim),
    ROW(arena_commits, many_large),
    ROW(arenas_reserved, many_large),
    ROW(bin_growths, small_come_and_go),
    ROW(bin_shrinks, bins_idle),
    ROW(bin_overflows, small_come_and_go),
    ROW(flushes, small_come_and_go),
    ROW(flushed_blocks, small_come_and_go),
    ROW(remote_frees, freed_elsewhere),
    ROW(envelopes_sent, freed_elsewhere),
    ROW(inbox_drains, freed_elsewhere),
    ROW(inbox_blocks, freed_elsewhere),
    ROW(frees_by_hand, freed_by_hand),
    ROW(large_frees, large_freed),
    ROW(foreign_frees, foreign),
    ROW(large_allocations, large_freed),
    ROW(stash_hits, own_range),
    ROW(cache_puts, steady_site),
    ROW(cache_hits, steady_site),
    ROW(cache_hits_of_site, steady_site),
    ROW(cache_misses, many_large),
    ROW(cache_evictions, cache_emptied),
    ROW(mallocs, counted),
    ROW(frees, counted),
    ROW(profile_samples, sampled),
    ROW(profile_live_bytes, sampled),
    ROW(profile_dropped_bytes, sampled_without_memory),
    ROW(profile_table_bytes, sampled),
    ROW(guarded_bytes, guarded),
    ROW(guarded_blocks, guarded),
    ROW(guarded_allocations, guarded),
    ROW(guarded_refused, guarded),
    ROW(slow_calls_filled, zero_bytes),
    ROW(spare_calls, interrupted),
    ROW(frees_deferred, interrupted),
    ROW(memory_retries, refused),
    ROW(limit_callbacks, refused),
    ROW(memory_refusals, refused),
    ROW(reclaim_rounds, purges_due),
    ROW(purges, purges_due),
    ROW(purged_bytes, purges_due),
    ROW(purges_refused, purge_in_vain),
    ROW(hole_batches, holes),
    ROW(trims, slabs_and_trim),
    ROW(huge_collapses, dense_for_long),
    ROW(calls, one_mapping),
    ROW(calls_map, one_mapping),
    ROW(calls_unmap, mapping_ended),
    ROW(calls_protect, many_large),
    ROW(calls_advise, slabs_and_trim),
    ROW(calls_remap, mapping_grown),
    ROW(calls_futex, two_at_a_lock),
    ROW(calls_other, look_at_process),
    ROW(policy_arms, learn),
    ROW(policy_matches, learn),
    ROW(policy_switches, learn),
    ROW(policy_cost_ns, learn),
    ROW(policy_fixed_ns, learn),
    ROW(policy_best_ns, learn),
};
#define ROWS (sizeof rows / sizeof rows[0])
_Static_assert(ROWS == sizeof(struct hak_stats) / sizeof(uint64_t), "each number is raised by something");

static uint64_t value(const struct row *row) {
  struct hak_stats stats;
  uint64_t found;
  hak_stats_get(&stats);
  memcpy(&found, (const char *)&stats + row->offset, sizeof found);
  return found;
}

/* In a process of its own, as nothing else was done there. */
static void row_check(const struct row *row) {
  alarm(TEST_PATIENCE_SECONDS);
  uint64_t before = value(row);
  if (!is_deaf)
    row->cause();
  uint64_t after = value(row);
  CHECK_SAY(after > before, "%s: %lu before %lu", row->name, before, after);
}

#define COUNTER 1
#define GAUGE 0
#define IS_COUNTER(group, name, kind, unit, sentence) kind,
static const int is_counter[] = {HAK_STATS_ROWS(IS_COUNTER)};

static void fast_path_check(const struct row *unused) {
  struct hak_stats before, after;
  for (int i = 0; i < 4; i++)
    hak_free(filled(100)); /* the first requests for a class take the slow path */
  hak_stats_get(&before);
  for (int i = 0; i < 10000; i++)
    hak_free(test_opaque(hak_malloc(100)));
  hak_stats_get(&after);
  for (size_t i = 0; i < ROWS; i++)
    if (is_counter[i])
      CHECK_SAY(((const uint64_t *)&before)[i] == ((const uint64_t *)&after)[i], "counter %zu moved", i);
}

static void run_alone(void (*check)(const struct row *), const struct row *row) {
  pid_t child = test_fork();
  if (child == 0) {
    check(row);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_SAY(status == 0, "%s: the process ended with %x", row ? row->name : "the fast path", (unsigned)status);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(TEST_TSAN || TEST_EMULATED, "processes with threads of their own are not forked here");
  is_deaf = argc > 1 && strcmp(argv[1], "deaf") == 0;
  for (size_t i = 0; i < ROWS; i++)
    run_alone(row_check, &rows[i]);
  run_alone(fast_path_check, NULL);
}
