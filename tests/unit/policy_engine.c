/* policy_engine: with `policy` evolving, freed large objects are kept as long as their call sites deserve; frozen,
 * as was learned; off, nothing is learned. Time is made by the test. */
#include "unit.h"

#include "adapt/policy_engine.h"

#define SIZE MIB
#define ROUNDS 40u

static _Atomic uint64_t now_ms = 1000000;

TEST_WRAP(uint64_t, os_milliseconds, void) { return atomic_load(&now_ms); }

static void pass(uint64_t ms) { atomic_fetch_add(&now_ms, ms); }
static void tick_after(uint64_t ms) {
  pass(ms);
  reclaim_tick();
}

static void policy(const char *value) { assert_int_equal(option_set(OPTION_POLICY, value), OPTION_OK); }

static struct policy_totals stats(void) { return policy_stats(); }

static char *alloc(uintptr_t site) {
  size_t dirty;
  char *object = UNIT_GOT(large_alloc(SIZE, UNIT_BYTES, site, &dirty));
  if (dirty == 0)
    for (size_t at = 0; at < SIZE; at += 4096)
      assert_int_equal(object[at], 0);
  memset(object, 1, SIZE);
  return object;
}

/* A site that frees and asks again after gap_ms. */
static void habit(uintptr_t site, unsigned rounds, uint64_t gap_ms) {
  for (unsigned i = 0; i < rounds; i++) {
    large_free(alloc(site));
    tick_after(gap_ms);
  }
}

static void valid(void) {
  UNIT_EXTENTS_VALID();
  UNIT_VALID(big_cache_is_valid() && policy_is_valid());
}

static int begin(void **unused) {
  policy("evolving");
  return 0;
}
static int end(void **unused) {
  valid();
  policy(NULL);
  reclaim_trim(0);
  assert_int_equal(decay_total(&big_cache_decay), 0);
  assert_int_equal(usage_free(), 0);
  return 0;
}

UNIT_TEST_BETWEEN(off_learns_nothing, begin, end) {
  policy("off");
  uint64_t matches = stats().epochs;
  habit(0x1000, ROUNDS, 30000);
  assert_int_equal(stats().epochs, matches);
  large_free(alloc(0x1000));
  assert_int_equal(decay_bytes(&big_cache_decay, BY_ENGINE), 0);
  assert_true(decay_total(&big_cache_decay) > 0);
}

UNIT_TEST_BETWEEN(what_is_not_asked_for_goes_at_once, begin, end) {
  habit(0x2000, ROUNDS, 60000);
  char *object = alloc(0x2000);
  size_t free_bytes = usage_free();
  large_free(object);
  tick_after(101); /* whether at once, after 10 or after 100 ms costs about the same here */
  assert_true(usage_free() <= free_bytes);
  assert_int_equal(os_resident_bytes(object, SIZE), 0);
  assert_true(stats().epochs > 0 && stats().switches > 0);
}

UNIT_TEST_BETWEEN(what_is_asked_for_again_soon_stays, begin, end) {
  habit(0x3000, ROUNDS, 300);
  char *object = alloc(0x3000);
  large_free(object);
  tick_after(300);
  assert_int_equal(os_resident_bytes(object, SIZE), SIZE);
  assert_ptr_equal(alloc(0x3000), object);
  large_free(object);
}

static char *mapping(void) {
  size_t dirty;
  char *object = UNIT_GOT(large_alloc(40 * MIB, UNIT_BYTES, 0xa000, &dirty));
  memset(object, 1, 40 * MIB);
  return object;
}

/* A mapping of 40 MiB, five times what the preset keeps however old: wanted again after 1.7 s, a fault is dearer. */
UNIT_TEST_OF_ONE_THREAD(what_is_large_and_comes_back_is_kept, begin, end) {
  assert_int_equal(option_set(OPTION_PURGE_DELAY_MS, "2000"), OPTION_OK);
  char *object = NULL;
  for (unsigned i = 0; i < ROUNDS; i++) {
    large_free(object = mapping());
    tick_after(1700);
    if (i == 0) /* a second is what is kept without learning: of 10 ms, 100 ms, 1 s the next below two */
      assert_int_equal(decay_total(&big_cache_decay), 0);
  }
  assert_true(decay_total(&big_cache_decay) >= 40 * MIB);
  assert_int_equal(os_resident_bytes(object, 40 * MIB), 40 * MIB);
  assert_int_equal(option_set(OPTION_PURGE_DELAY_MS, NULL), OPTION_OK);
}

/* By usage_keep_learned: by what the preset keeps however old, or by the peak. What is younger than the delay stays. */
UNIT_TEST_BETWEEN(what_is_kept_is_bounded_by_the_peak, begin, end) {
  static char *objects[12];
  size_t dirty;
  for (unsigned site = 0; site < 12; site++)
    habit(0x9000 + site * 64, 8, 300);
  reclaim_trim(0);
  for (unsigned i = 0; i < 400; i++) {
    unsigned site = i % 12;
    size_t size = (33 + 4 * site) * MIB;
    objects[site] = large_alloc(size, UNIT_BYTES, 0x9000 + site * 64, &dirty);
    objects[site][0] = 1;
    large_free(objects[site]);
    reclaim_tick();
    if (i % 40 == 39) {
      tick_after((uint64_t)option_value(OPTION_PURGE_DELAY_MS));
      assert_true(usage_learned() == 0 || usage_free() <= usage_keep_learned());
    }
  }
}

UNIT_TEST_BETWEEN(its_time_ends_too, begin, end) {
  habit(0x4000, ROUNDS, 50);
  char *object = alloc(0x4000);
  large_free(object);
  assert_true(decay_bytes(&big_cache_decay, BY_ENGINE) >= SIZE);
  pass(60000);
  assert_true(decay_due_ms(&big_cache_decay) == 0 || decay_due_ms(&big_cache_decay) <= atomic_load(&now_ms));
  reclaim_round(RECLAIM_IDLE, NULL);
  assert_int_equal(decay_bytes(&big_cache_decay, BY_ENGINE), 0);
  assert_int_equal(os_resident_bytes(object, SIZE), 0);
}

UNIT_TEST_BETWEEN(frozen_keeps_what_was_learned, begin, end) {
  habit(0x5000, ROUNDS, 60000);
  policy("frozen");
  struct policy_totals before = stats();
  habit(0x5000, ROUNDS, 1); /* would change its mind */
  struct policy_totals after = stats();
  assert_int_equal(after.epochs, before.epochs);
  char *object = alloc(0x5000);
  large_free(object);
  tick_after(101);
  assert_int_equal(os_resident_bytes(object, SIZE), 0);
}

UNIT_TEST_BETWEEN(limits_and_trims_do_not_wait, begin, end) {
  habit(0x6000, ROUNDS, 50);
  large_free(alloc(0x6000));
  assert_true(decay_bytes(&big_cache_decay, BY_ENGINE) >= SIZE);
  reclaim_trim(0);
  assert_int_equal(decay_bytes(&big_cache_decay, BY_ENGINE), 0);
  large_free(alloc(0x6000));
  assert_true(decay_bytes(&big_cache_decay, BY_ENGINE) >= SIZE);
  reclaim_round(RECLAIM_PRESSED, NULL);
  assert_int_equal(decay_bytes(&big_cache_decay, BY_ENGINE), 0);
  large_free(alloc(0x6000));
  assert_int_equal(option_set(OPTION_LARGE_CACHE_MB, "0"), OPTION_OK);
  large_free(alloc(0x6000)); /* nothing may be cached */
  assert_int_equal(decay_total(&big_cache_decay), 0);
  assert_int_equal(option_set(OPTION_LARGE_CACHE_MB, NULL), OPTION_OK);
}

UNIT_TEST_BETWEEN(a_purge_that_is_off_keeps_the_pages, begin, end) {
  habit(0x7000, ROUNDS, 60000);
  assert_int_equal(option_set(OPTION_PURGE, "off"), OPTION_OK);
  char *object = alloc(0x7000);
  large_free(object);
  tick_after(60000);
  assert_int_equal(os_resident_bytes(object, SIZE), SIZE);
  assert_int_equal(option_set(OPTION_PURGE, NULL), OPTION_OK);
}

UNIT_TEST_BETWEEN(mappings_are_unmapped, begin, end) {
  size_t dirty;
  for (unsigned i = 0; i < ROUNDS; i++) {
    char *object = large_alloc(40 * MIB, UNIT_BYTES, 0x8000, &dirty);
    object[0] = 1;
    large_free(object);
    tick_after(60000);
  }
  struct large_stats s;
  char *object = large_alloc(40 * MIB, UNIT_BYTES, 0x8000, &dirty);
  large_free(object);
  tick_after(101);
  large_stats(&s);
  assert_int_equal(s.mapping_count, 0);
}

/* Some ranges are cut from others, sizes and gaps change, and everything is found again. */
UNIT_TEST_BETWEEN(random_sites, begin, end) {
  enum { SITES = 200, LIVE = 64 };
  char *live[LIVE] = {0};
  size_t sizes[LIVE] = {0};
  uint64_t random = UNIT_SEED;
  for (unsigned i = 0; i < unit_rounds(4000, 1); i++) {
    unsigned at = (unsigned)(test_random(&random) % LIVE);
    if (live[at]) {
      assert_int_equal(live[at][sizes[at] - 1], (char)at);
      large_free(live[at]);
      live[at] = NULL;
    } else {
      size_t dirty;
      sizes[at] = (test_random(&random) % 16 + 5) * 64 * 1024;
      live[at] = large_alloc(sizes[at], UNIT_BYTES, test_random(&random) % SITES * 64, &dirty);
      assert_true(dirty > 0 || (live[at][0] == 0 && live[at][sizes[at] - 1] == 0));
      live[at][0] = live[at][sizes[at] - 1] = (char)at;
    }
    tick_after(test_random(&random) % 500 >> test_random(&random) % 9);
    if (i % 64 == 0)
      valid();
  }
  for (unsigned at = 0; at < LIVE; at++)
    if (live[at])
      large_free(live[at]);
}

/* Whoever asks at such moments: events, figures, changes of the option, trims. */
static _Atomic bool threads_end;

static void *customer(void *seed) {
  uint64_t random = (uintptr_t)seed;
  for (unsigned i = 0; i < unit_rounds(3000, 1); i++) {
    size_t dirty;
    size_t size = (test_random(&random) % 12 + 5) * 64 * 1024;
    char *object = large_alloc(size, UNIT_BYTES, test_random(&random) % 300 * 64, &dirty);
    object[0] = object[size - 1] = 1;
    if (test_random(&random) % 16 == 0)
      pass(test_random(&random) % 200);
    reclaim_tick();
    large_free(object);
  }
  return NULL;
}

static void *visitor(void *unused) {
  static const char *const modes[] = {"evolving", "frozen", "evolving", "off"};
  for (unsigned i = 0; !atomic_load(&threads_end); i++) {
    policy(modes[i % 4]);
    (void)stats();
    reclaim_round((enum reclaim_depth)(i % 3), NULL);
    if (i % 8 == 0)
      reclaim_trim(0);
    os_spin_hint();
  }
  return unused;
}

UNIT_TEST_BETWEEN(many_threads, begin, end) {
  pthread_t other;
  atomic_store(&threads_end, false);
  assert_int_equal(pthread_create(&other, NULL, visitor, NULL), 0);
  test_threads_run(3, customer, (void *)(uintptr_t)1, 1);
  atomic_store(&threads_end, true);
  pthread_join(other, NULL);
  policy("evolving");
  assert_true(stats().epochs > 0);
}

/* One gives back 2 MiB of what is due. */
static void slow_calls(void) {
  for (unsigned call = 0; call < 8; call++)
    reclaim_tick();
}

/* Blocks of four KiB in a burst, then silence: their slabs' pages go long before the profile would look at them. */
UNIT_TEST_OF_ONE_THREAD(slabs_are_learned_by_their_blocks_size, begin, end) {
  enum { BLOCKS = 1500, BYTES = 4096, ALL = BLOCKS * BYTES };
  static char *blocks[BLOCKS];
  assert_int_equal(option_set(OPTION_BIN_KB_MAX, "0"), OPTION_OK); /* or the bins would have it all */
  assert_int_equal(option_set(OPTION_KEEP_MB, "64"), OPTION_OK);   /* what the preset keeps for ever */
  for (unsigned is_on = 0; is_on < 2; is_on++) {
    policy(is_on ? "evolving" : "off");
    for (unsigned round = 0; round <= ROUNDS; round++) {
      for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = memset(hak_malloc(BYTES), 1, BYTES);
      unit_free(blocks, BLOCKS);
      pass(round < ROUNDS ? 60000 : 101);
      slow_calls();
    }
    assert_in_range(usage_free(), is_on ? 0 : ALL * 3 / 4, is_on ? ALL / 4 : ALL * 2);
    hak_trim(0);
  }
  assert_int_equal(option_set(OPTION_BIN_KB_MAX, NULL), OPTION_OK);
  assert_int_equal(option_set(OPTION_KEEP_MB, NULL), OPTION_OK);
}

UNIT_MAIN(unit_alone())
