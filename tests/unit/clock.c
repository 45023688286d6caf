/* clock: memory goes back because of its age. What was used within the delay stays, however much of the heap it is and
 * however much more than was ever in use at a time; what is older goes, holes in slabs too. Time is made by the test.
 *
 * Positive controls: with `early` the delay is a twentieth of what the test takes it for. With `all` one call gives
 * back everything that is due. The test must fail then.
 */
#include "unit.h"

#include "reclaim/delay.h"

#define DELAY_MS 1000u

static _Atomic uint64_t now_ms = 1000000;

TEST_WRAP(uint64_t, os_milliseconds, void) { return atomic_load(&now_ms); }

TEST_WRAP(size_t, extents_purge, struct purge purge) {
  return __real_extents_purge(unit_lies("all") ? purge_at_most(SIZE_MAX, purge) : purge);
}

static void pass(uint64_t ms) { atomic_fetch_add(&now_ms, ms); }

/* Slow paths that neither take nor give much. */
static void slow_calls(unsigned count) {
  for (unsigned i = 0; i < count; i++)
    hak_free(hak_malloc(300 << 10));
}

#define COUNT 40000u
static char *blocks[COUNT];

static void fill(size_t size) {
  for (unsigned i = 0; i < COUNT; i++)
    memset(blocks[i] = hak_malloc(size), 1, size);
}

/* All but one in `kept`, 0: all. Returns the bytes. */
static size_t drop(size_t size, unsigned kept) {
  size_t bytes = 0;
  for (unsigned i = 0; i < COUNT; i++)
    if (blocks[i] && (kept == 0 || i % kept != 0)) {
      hak_free(blocks[i]);
      blocks[i] = NULL;
      bytes += size;
    }
  return bytes;
}

/* Almost all that the slabs hold is free: nothing goes before the delay, most of it afterwards, with no thread to do
 * it. */
UNIT_TEST(holes_go_by_age) {
  fill(2000);
  size_t bytes = drop(2000, 20);
  uint64_t before = counter_read(purged_bytes);
  slow_calls(2000);
  pass(DELAY_MS - 1);
  slow_calls(2000);
  assert_int_equal(counter_read(purged_bytes), before);
  pass(DELAY_MS);
  slow_calls(2000);
  pass(DELAY_MS);
  slow_calls(2000);
  assert_true(counter_read(purged_bytes) - before > bytes / 2);
  drop(2000, 0);
  hak_trim(0);
}

static bool walk_is_due(void) { return load_relaxed(&heap_pool(heap_current())->holes_are_due); }

/* A walk over holes that is due makes each slow path ask for it. Without purges none begins, and one that has begun
 * ends with the next slow call. */
UNIT_TEST(no_walk_stays_due_without_purges) {
  enum { CALLS = 2000 };
  fill(2000);
  drop(2000, 20);
  pass(DELAY_MS);
  slow_calls(CALLS); /* a walk sees the slabs for the first time, and purges none */
  pass(DELAY_MS);
  assert_int_equal(hak_option_set("purge", "off"), 0);
  for (unsigned i = 0; i < CALLS; i++) {
    slow_calls(1);
    assert_false(walk_is_due());
  }
  assert_int_equal(hak_option_set("purge", NULL), 0);
  for (unsigned i = 0; i < CALLS && !walk_is_due(); i++)
    slow_calls(1);
  assert_true(walk_is_due());
  assert_int_equal(hak_option_set("purge", "off"), 0);
  slow_calls(1);
  assert_false(walk_is_due());
  assert_int_equal(hak_option_set("purge", NULL), 0);
  drop(2000, 0);
  hak_trim(0);
}

/* A set that is replaced by one of other sizes, again and again: each finds what the last one left, or the system's. */
UNIT_TEST(nothing_young_goes) {
  static const size_t sizes[] = {3000, 900, 5000, 300, 2000};
  uint64_t before = counter_read(purged_bytes);
  for (unsigned i = 0; i < 5; i++) {
    fill(sizes[i]);
    drop(sizes[i], i % 2 ? 0 : 30);
    pass(DELAY_MS / 10 - 1);
    reclaim_round(RECLAIM_AGED, NULL);
    reclaim_round(RECLAIM_IDLE, NULL);
    drop(sizes[i], 0);
  }
  assert_int_equal(counter_read(purged_bytes), before);
  pass(DELAY_MS);
  reclaim_round(RECLAIM_IDLE, NULL);
  pass(DELAY_MS);
  reclaim_round(RECLAIM_IDLE, NULL);
  assert_int_equal(usage_free(), 0);
}

/* More large objects freed than were ever in use at a time: kept for the delay, gone after it. */
UNIT_TEST(nothing_goes_for_a_peak) {
  hak_trim(0);
  char *object[8];
  for (unsigned i = 0; i < 8; i++) {
    memset(object[i] = hak_malloc((9 + i) * MIB), 1, (9 + i) * MIB);
    hak_free(object[i]);
    hak_free(memset(hak_malloc(MIB), 1, MIB));
    reclaim_round(RECLAIM_AGED, NULL);
  }
  size_t kept = usage_free();
  assert_true(kept >= 16 * MIB);
  pass(DELAY_MS - 1);
  reclaim_round(RECLAIM_AGED, NULL);
  assert_int_equal(usage_free(), kept);
  pass(2);
  reclaim_round(RECLAIM_AGED, NULL);
  assert_true(usage_free() <= 2 * MIB); /* less is not worth a look */
}

static void use_and_free(size_t size) {
  char *object = UNIT_GOT(hak_malloc(size));
  hak_free(memset(object, 1, size));
}

static size_t free_after(uint64_t ms) {
  pass(ms);
  reclaim_round(RECLAIM_AGED, NULL);
  return usage_free();
}

/* The preset's delay is the longest: a little goes after a 20th of it, and then nothing for as long as that much is
 * worth. */
UNIT_TEST(a_little_goes_sooner) {
  hak_trim(0);
  assert_int_equal(hak_option_set("purge_delay_ms", NULL), 0);
  use_and_free(8 * MIB);
  assert_true(free_after(DELAY_MS / 20 - 1) >= 8 * MIB);
  assert_true(free_after(2) <= 2 * MIB);
  use_and_free(16 * MIB);
  assert_true(free_after(DELAY_MS / 20 + 1) >= 16 * MIB); /* 8 MiB of 128 a second: 62 ms */
  assert_true(delay_full_until_ms() > now_ms);
  assert_true(free_after(20) <= 2 * MIB);
  use_and_free(16 * MIB);
  assert_true(free_after(DELAY_MS / 8 - 10) >= 16 * MIB);
  assert_true(free_after(20) <= 2 * MIB);
  assert_int_equal(hak_option_set("purge_delay_ms", "1000"), 0); /* a delay that is set holds exactly */
  pass(DELAY_MS);
  use_and_free(8 * MIB);
  assert_true(free_after(DELAY_MS - 1) >= 8 * MIB);
  assert_true(free_after(2) <= 2 * MIB);
}

/* Returns the bytes that one slow call gives back. */
static size_t given_back_by_call(void) {
  uint64_t before = counter_read(purged_bytes);
  reclaim_tick();
  return counter_read(purged_bytes) - before;
}

/* What is due goes a little in each slow call, and all of it after some. Where the background thread does
 * rounds it is left to that thread, unless it comes late. */
UNIT_TEST(one_call_gives_back_little) {
  enum { OBJECTS = 32, CALLS = 40 };
  char *object[OBJECTS];
  hak_trim(0);
  for (unsigned i = 0; i < OBJECTS; i++)
    memset(object[i] = hak_malloc(2 * MIB), 1, 2 * MIB);
  unit_free(object, OBJECTS);
  reclaim_round(RECLAIM_AGED, NULL); /* as the thread does */
  pass(DELAY_MS);
  assert_true(usage_free() >= OBJECTS * 2 * MIB);
  assert_int_equal(given_back_by_call(), 0);
  pass(DELAY_MS);
  assert_in_range(given_back_by_call(), 1, 4 * MIB);
  for (unsigned i = 0; i < CALLS; i++)
    assert_in_range(given_back_by_call(), 0, 4 * MIB);
  assert_true(usage_free() < 2 * MIB); /* less is not worth a look */
}

/* Frees that much, and lets it grow old enough for the short delay. No round was lately. */
static void free_and_age(size_t bytes) {
  pass(20 * DELAY_MS);
  char *object[64];
  for (size_t i = 0; i < bytes / (2 * MIB); i++)
    memset(object[i] = hak_malloc(2 * MIB), 1, 2 * MIB);
  unit_free(object, bytes / (2 * MIB));
  pass(DELAY_MS / 5);
}

/* The full delay holds for as long as these bytes are worth, give or take what the heap keeps besides. */
static void assert_charged(size_t bytes) {
  size_t rate = 128 * MIB / 1000;
  assert_in_range(delay_full_until_ms() - now_ms, (bytes - 2 * MIB) / rate, (bytes + 2 * MIB) / rate);
}

/* What slow calls gave back is charged once: by their last one, or by a round that comes between. */
UNIT_TEST(each_byte_is_charged_once) {
  enum { BYTES = 64 << 20, CALLS = 40 };
  hak_trim(0);
  assert_int_equal(hak_option_set("purge_delay_ms", NULL), 0);
  for (unsigned way = 0; way < 2; way++) {
    free_and_age(BYTES);
    size_t given_back = 0;
    for (unsigned i = 0; i < CALLS / 4; i++)
      given_back += given_back_by_call();
    assert_in_range(given_back, BYTES / 4, BYTES / 2);
    assert_true(delay_full_until_ms() < now_ms); /* the calls have not come to the end */
    if (way == 0)
      for (unsigned i = 0; i < CALLS; i++)
        given_back_by_call();
    else
      reclaim_round(RECLAIM_AGED, NULL);
    assert_charged(BYTES);
    free_and_age(BYTES / 4);
    for (unsigned i = 0; i < CALLS; i++)
      given_back_by_call();
    assert_charged(BYTES / 4);
  }
  assert_int_equal(hak_option_set("purge_delay_ms", "1000"), 0);
}

/* A program that pauses, and then wants again what went back in the pause, soon finds it resident. */
UNIT_TEST(what_is_wanted_again_goes_seldom) {
  enum { OBJECTS = 32, TURNS = 40, GONE_MAX = TURNS / 4 };
  hak_trim(0);
  assert_int_equal(hak_option_set("purge_delay_ms", NULL), 0);
  pass(60 * DELAY_MS);
  unsigned gone = 0;
  for (unsigned turn = 0; turn < TURNS; turn++) {
    char *object[OBJECTS];
    for (unsigned i = 0; i < OBJECTS; i++)
      memset(object[i] = hak_malloc(2 * MIB), 1, 2 * MIB);
    unit_free(object, OBJECTS);
    gone += free_after(DELAY_MS / 2) < OBJECTS * MIB;
  }
  assert_in_range(gone, 2, GONE_MAX); /* each second time if only 128 MiB a second count */
  assert_int_equal(hak_option_set("purge_delay_ms", "1000"), 0);
}

/* A limit that the program lifts again is forgotten after a second. Nothing is asked for where there is none. */
UNIT_TEST(a_lifted_limit_is_forgotten) {
  struct rlimit free, limit;
  assert_int_equal(getrlimit(RLIMIT_DATA, &free), 0);
  os_memory_limit_ask_again();
  unit_skip_if(os_memory_limit() != SIZE_MAX, "memory is limited already");
  limit = (struct rlimit){(rlim_t)1 << 40, free.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_DATA, &limit), 0);
  pass(10000);
  assert_int_equal(os_memory_limit(), SIZE_MAX);
  os_memory_limit_ask_again();
  assert_int_equal(os_memory_limit(), (size_t)1 << 40);
  assert_int_equal(setrlimit(RLIMIT_DATA, &free), 0);
  pass(999);
  assert_int_equal(os_memory_limit(), (size_t)1 << 40);
  pass(1);
  assert_int_equal(os_memory_limit(), SIZE_MAX);
}

static void begin(void) {
  unit_alone();
  unit_option("HAKMEM_PURGE_DELAY_MS", *unit_word && !unit_lies("all") ? "50" : "1000");
  unit_option("HAKMEM_KEEP_MB", "0");
}

UNIT_MAIN(begin())
