/* reclaim: several threads give memory back at a time, and a fork meets them anywhere: a child finds every slab
 * and extent whole. Only the forking thread has blocks, so the child can account for all of them.
 *
 * Positive control: with `fork`, a fork does not wait for those in a slow path. The test must fail then; it forks more
 * often, because on a busy machine the threads may sleep at most forks.
 */
#include "heap/ids.h"
#include "unit.h"

#include "budget/usage.h"
#include "large/big_cache.h"
#include "reclaim/reclaim.h"

#include <time.h>

static bool lie;

TEST_WRAP(bool, gate_shut, void) { return lie || __real_gate_shut(); }

static _Atomic bool ending;

static void *reclaim_on(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  while (!atomic_load(&ending)) {
    reclaim_round((enum reclaim_depth)(test_random(&seed) % 3), NULL);
    if (test_random(&seed) % 4 == 0)
      hak_trim(test_random(&seed) % 2 ? 0 : 1 << 20);
    usleep((useconds_t)(test_random(&seed) % 200));
  }
  return NULL;
}

#define LIVE 3000u
static struct {
  unsigned char *block;
  size_t size;
} live[LIVE];

static void drop(unsigned i) {
  if (live[i].block == NULL)
    return;
  for (size_t b = 0; b < live[i].size; b += 64)
    if (live[i].block[b] != (unsigned char)(i + b))
      _exit(7);
  hak_free(live[i].block);
  live[i].block = NULL;
}

static void take(unsigned i, uint64_t *seed) {
  static const size_t sizes_max[] = {200, 1500, 5000, 40000, 300000, 3000000};
  unsigned dice = (unsigned)(test_random(seed) % 128);
  live[i].size = 1 + test_random(seed) % sizes_max[dice < 60    ? 0
                                                   : dice < 110 ? 1
                                                   : dice < 122 ? 2
                                                   : dice < 126 ? 3
                                                                : dice - 122];
  live[i].block = hak_malloc(live[i].size);
  if (live[i].block == NULL)
    _exit(8);
  for (size_t b = 0; b < live[i].size; b += 64)
    live[i].block[b] = (unsigned char)(i + b);
}

static void stir(uint64_t *seed, unsigned steps) {
  for (unsigned n = 0; n < steps; n++) {
    unsigned i = (unsigned)(test_random(seed) % LIVE);
    drop(i);
    if (test_random(seed) % 3)
      take(i, seed);
  }
}

static void say(const char *what, size_t bytes) {
  if (bytes != 0)
    dprintf(2, "%s: %zu\n", what, bytes);
}

static void account(void) {
  hak_trim(0);
  hak_trim(0);
  struct hak_stats stats;
  hak_stats_get(&stats);
  say("live", stats.live_bytes);
  size_t slab_bytes = 0;
  for (uint32_t id = 1; id <= heap_count(); id++)
    slab_bytes += heap_pool(heap_by_id(id))->slabs.slab_bytes;
  say("open slabs", slab_bytes);
  say("taken", usage_taken());
  say("free", usage_free());
#ifdef HAK_DEBUG
  say("invalid", !extents_are_valid() || !big_cache_is_valid());
#endif
}

static void child(void *argument) {
  uint64_t seed = *(uint64_t *)argument;
  alarm(lie ? 3 : 100);
  stir(&seed, 2000);
  for (unsigned i = 0; i < LIVE; i++)
    drop(i);
  account();
}

static void children_find_everything_whole(void **state) {
  if (!unit_forks_are_followed())
    skip();
  uint64_t seed = UNIT_SEED;
  for (unsigned fork = 0; fork < unit_rounds(lie ? 1000 : 50, 20); fork++) {
    stir(&seed, 1500);
    unit_passes_in_child(child, &seed);
  }
}

static void threads_trim_at_a_time(void **state) {
  uint64_t seed = UNIT_SEED + 1;
  for (unsigned round = 0; round < unit_rounds(20, 20); round++) {
    stir(&seed, 3000);
    hak_trim(0);
  }
}

static void everything_goes_back(void **state) {
  for (unsigned i = 0; i < LIVE; i++)
    drop(i);
  atomic_store(&ending, true);
}

static void rounds_keep_what_is_asked_for(void **state) {
  enum { COUNT = 40, BYTES = 1 << 20 };
  static void *blocks[COUNT];
  for (unsigned i = 0; i < COUNT; i++)
    memset(blocks[i] = hak_malloc(BYTES), 1, BYTES);
  for (unsigned i = 0; i < COUNT; i++)
    hak_free(blocks[i]);
  assert_true(usage_free() >= (size_t)COUNT * BYTES / 2);
  hak_trim((size_t)10 << 20);
  assert_true(usage_free() <= (size_t)10 << 20);
  hak_trim(0);
  assert_int_equal(usage_free(), 0);
  assert_int_equal(hak_trim(0), 0); /* nothing is left */
}

/* Memory that is free goes at once under pressure, but what is freed afterwards may stay again. */
static void pressure_passes(void **state) {
  reclaim_round(RECLAIM_AGED, NULL);
  size_t keep = usage_keep();
  assert_true(keep >= (size_t)512 << 20);
  hak_free(memset(hak_malloc(20 << 20), 1, 20 << 20));
  reclaim_round(RECLAIM_AGED, NULL);
  assert_true(usage_free() >= (size_t)20 << 20);
  reclaim_round(RECLAIM_PRESSED, NULL);
  assert_int_equal(usage_free(), 0);
  reclaim_round(RECLAIM_AGED, NULL);
  assert_true(usage_keep() >= (size_t)512 << 20); /* an eighth of what is taken moves it a little */
}

int main(int argc, char **argv) {
  unit_alone();
  lie = argc > 1;
  pthread_t threads[3];
  unit_option("HAKMEM_PURGE_DELAY_MS", "0");
  unit_option("HAKMEM_KEEP_MB", "0");
  for (uintptr_t i = 0; i < 3; i++)
    if (pthread_create(&threads[i], NULL, reclaim_on, (void *)(i + 1)) != 0)
      return 1;
  const struct CMUnitTest many[] = {
      cmocka_unit_test(children_find_everything_whole),
      cmocka_unit_test(threads_trim_at_a_time),
      cmocka_unit_test(everything_goes_back),
  };
  int failed = cmocka_run_group_tests(many, NULL, NULL);
  atomic_store(&ending, true);
  for (unsigned i = 0; i < 3; i++)
    pthread_join(threads[i], NULL);
  unit_option("HAKMEM_PURGE_DELAY_MS", "1000");
  unit_option("HAKMEM_KEEP_MB", "512");
  const struct CMUnitTest alone[] = {
      cmocka_unit_test(pressure_passes),
      cmocka_unit_test(rounds_keep_what_is_asked_for),
  };
  return failed + cmocka_run_group_tests(alone, NULL, NULL);
}
