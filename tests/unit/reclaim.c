/* reclaim: several threads give memory back at a time, and a fork meets them anywhere: a child finds every slab
 * and extent whole. Only the forking thread has blocks, so the child can account for all of them.
 *
 * Positive control: with `fork`, a fork does not wait for those in a slow path. The test must fail then; it forks more
 * often, because on a busy machine the threads may sleep at most forks.
 */
#include "unit.h"

TEST_WRAP(bool, gate_shut, void) { return unit_lies("fork") || __real_gate_shut(); }

#define THREADS 3u
static pthread_t threads[THREADS];
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
    CHECK(live[i].block[b] == (unsigned char)(i + b));
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
  live[i].block = CHECK_GOT(hak_malloc(live[i].size));
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
  UNIT_DEBUG(say("invalid", !extents_are_valid() || !big_cache_is_valid()));
}

static void child(void *argument) {
  uint64_t seed = *(uint64_t *)argument;
  if (*unit_word)
    alarm(3);
  stir(&seed, 2000);
  for (unsigned i = 0; i < LIVE; i++)
    drop(i);
  account();
}

UNIT_TEST(children_find_everything_whole) {
  unit_needs_forks();
  uint64_t seed = UNIT_SEED;
  for (unsigned fork = 0; fork < unit_rounds(*unit_word ? 1000 : 25, 40); fork++) {
    stir(&seed, 1500);
    unit_passes_in_child(child, &seed);
  }
}

UNIT_TEST(threads_trim_at_a_time) {
  uint64_t seed = UNIT_SEED + 1;
  for (unsigned round = 0; round < unit_rounds(20, 20); round++) {
    stir(&seed, 3000);
    hak_trim(0);
  }
}

UNIT_TEST(everything_goes_back) {
  for (unsigned i = 0; i < LIVE; i++)
    drop(i);
  atomic_store(&ending, true);
  test_threads_join(threads, THREADS);
  unit_option("HAKMEM_PURGE_DELAY_MS", "1000");
  unit_option("HAKMEM_KEEP_MB", "512");
}

/* Memory that is free goes at once under pressure, but what is freed afterwards may stay, without another round. */
UNIT_TEST(pressure_passes) {
  reclaim_round(RECLAIM_AGED, NULL);
  size_t keep = usage_keep();
  assert_true(keep >= (size_t)512 << 20);
  hak_free(memset(hak_malloc(20 << 20), 1, 20 << 20));
  reclaim_round(RECLAIM_AGED, NULL);
  assert_true(usage_free() >= (size_t)20 << 20);
  reclaim_round(RECLAIM_PRESSED, NULL);
  assert_int_equal(usage_free(), 0);
  assert_true(usage_keep() >= (size_t)512 << 20); /* an eighth of what is taken moves it a little */
  hak_free(memset(hak_malloc(20 << 20), 1, 20 << 20));
  reclaim_tick();
  assert_true(usage_free() >= (size_t)20 << 20);
}

UNIT_TEST(rounds_keep_what_is_asked_for) {
  enum { COUNT = 40, BYTES = 1 << 20 };
  static void *blocks[COUNT];
  for (unsigned i = 0; i < COUNT; i++)
    memset(blocks[i] = hak_malloc(BYTES), 1, BYTES);
  unit_free(blocks, COUNT);
  assert_true(usage_free() >= (size_t)COUNT * BYTES / 2);
  hak_trim((size_t)10 << 20);
  assert_true(usage_free() <= (size_t)10 << 20);
  hak_trim(0);
  assert_int_equal(usage_free(), 0);
  assert_int_equal(hak_trim(0), 0); /* nothing is left */
}

static void begin(void) {
  unit_alone();
  unit_option("HAKMEM_PURGE_DELAY_MS", "0");
  unit_option("HAKMEM_KEEP_MB", "0");
  test_threads_start(threads, THREADS, reclaim_on, (void *)1, 1);
}

UNIT_MAIN(begin())
