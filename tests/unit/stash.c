/* stash: a thread's own freed ranges of large objects: who gets them, who takes them away and when, what the figures
 * say.
 *
 * Positive controls: with `ageless` no round of the stashes ends; with `kept` nobody can take a stashed range; with
 * `stale` a site's habit outlives the length of its place.
 */
#include "unit.h"

#include "heap/heap.h"
#include "large/range.h"
#include "large/stash.h"
#include "reclaim/background.h"

#define RANGE (3 * MIB / 2)
#define BYTES (RANGE - LARGE_COLOR_ROOM) /* a request that takes such a range */
#define SHORT round_up(BYTES / 4, UNIT_BYTES)
#define DELAY_MS 400u

TEST_WRAP(void, stash_next_round, void) {
  if (!unit_lies("ageless"))
    __real_stash_next_round();
}

static _Atomic unsigned searches;
TEST_WRAP(struct large *, stash_take_any, uint32_t before_round, size_t units_min, size_t units_max,
          struct stash **at) {
  atomic_fetch_add(&searches, 1);
  return unit_lies("kept") ? NULL : __real_stash_take_any(before_round, units_min, units_max, at);
}

static _Atomic unsigned sums;
TEST_WRAP(size_t, stash_bytes, void) {
  atomic_fetch_add(&sums, 1);
  return __real_stash_bytes();
}

/* An emulator holds more than a small program. */
static size_t held_before;
TEST_WRAP(size_t, os_resident_of_process, void) { return __real_os_resident_of_process() - held_before; }

static uint64_t takes(void) {
  struct stash_stats stats;
  stash_stats(&stats);
  return stats.takes;
}

static uint64_t patience_ms(void) { return 10 * DELAY_MS * (unit_lies("ageless") ? 1 : UNIT_SLOWNESS); }

/* The only site that asks for these lengths. */
static __attribute__((noinline)) void *take(size_t bytes) { return test_opaque(hak_malloc(bytes)); }

/* Asks for `count` objects of a length at a time. A place for them takes eight rounds to hold all that a stash can. */
static void ask(size_t bytes, unsigned count) {
  static _Thread_local void *objects[2 * STASH_RANGES];
  for (unsigned i = 0; i < count; i++) {
    objects[i] = take(bytes);
    assert_non_null(objects[i]);
    memset(objects[i], 1, min_size(bytes, 4096));
  }
  unit_free(objects, count);
}

static void forget_sites(void) {
  for (size_t i = 0; i < SITE_NOTES; i++)
    store_relaxed(&site_notes[i], 0);
}

enum { ROUNDS = 10 };
static void habit(size_t bytes, unsigned count) {
  for (unsigned round = 0; round < ROUNDS; round++)
    ask(bytes, count);
}
static void habit_keeps(size_t bytes, unsigned count, size_t kept) {
  habit(bytes, count);
  assert_int_equal(stash_bytes(), kept);
}

/* The child of a fork counts as small until it holds, or has free, more than here. The stashes of a small program may be
 * open without a thread. */
static int stay_small(void **state) {
  void *objects[16];
  for (unsigned i = 0; i < 16; i++)
    objects[i] = test_opaque(hak_malloc((20 + 8 * (i & 1)) * MIB)); /* changing, so they become extents */
  unit_free(objects, 16);
  assert_true(usage_free() >= 256 * MIB);
  background_in_child(getpid());
  return 0;
}

static int empty(void **state) {
  hak_trim(0);
  assert_int_equal(stash_bytes(), 0);
  assert_int_equal(usage_taken(), 0);
  return 0;
}

/* A program that mixes lengths that are not rounded gets them all from its stash, once it has gone through them several
 * times. What it asks for once leaves nothing there: no test before has asked for these lengths. */
UNIT_TEST_BETWEEN(short_lengths_need_no_steady_site, empty, empty) {
  enum { COUNT = 30, LENGTHS = 11, APART = (ROW_UNITS - 2) / (LENGTHS - 1) };
  void *objects[COUNT];
  uint64_t before = 0;
  for (unsigned round = 0; round < ROUNDS; round++) {
    if (round == ROUNDS - 1)
      before = takes();
    for (unsigned i = 0; i < COUNT; i++)
      objects[i] = take((2 + i % LENGTHS * APART) * UNIT_BYTES - LARGE_COLOR_ROOM);
    unit_free(objects, COUNT);
    if (round == 0)
      assert_int_equal(stash_bytes(), 0);
  }
  assert_int_equal(takes() - before, COUNT);
}

UNIT_TEST_BETWEEN(a_thread_gets_its_own_range_back, empty, empty) {
  habit_keeps(BYTES, 1, RANGE);
  uint64_t before = takes();
  char *object = take(BYTES - 100);
  assert_int_equal(takes() - before, 1);
  assert_int_equal(stash_bytes(), 0);
  assert_int_equal(hak_usable_size(object), RANGE - (uintptr_t)object % UNIT_BYTES);
  memset(object, 7, BYTES);
  hak_free(object);
  assert_int_equal(stash_bytes(), RANGE);
  forget_sites(); /* its hash may be that of calloc's site */
  char *cleared = test_opaque(hak_calloc(1, BYTES));
  assert_ptr_equal(cleared, object);
  for (size_t i = 0; i < BYTES; i++)
    assert_int_equal(cleared[i], 0);
  hak_free(cleared);
  assert_int_equal(stash_bytes(), RANGE);
}

UNIT_TEST_BETWEEN(a_rounded_length_needs_a_steady_site, empty, empty) {
  const size_t range = 2 * RANGE, bytes = range - LARGE_COLOR_ROOM;
  habit_keeps(bytes, 1, range);
  forget_sites();
  char *object = test_opaque(hak_calloc(1, bytes));
  assert_int_equal(stash_bytes(), 0);
  hak_free(object); /* the site of calloc has no habit yet */
  assert_int_equal(stash_bytes(), 0);
}

UNIT_TEST_BETWEEN(figures_are_right, empty, empty) {
  habit(BYTES, 4);
  struct hak_stats stats;
  assert_int_equal(hak_stats_get(&stats), 0);
  assert_int_equal(stash_bytes(), 4 * RANGE);
  assert_int_equal(stats.large_bytes, 0);
  assert_int_equal(stats.large_count, 0);
  assert_int_equal(stats.large_cached_bytes, 4 * RANGE);
  assert_int_equal(stats.large_allocations, stats.large_frees);
  assert_true(stats.stash_hits > 0);
  void *object = take(BYTES);
  assert_int_equal(hak_stats_get(&stats), 0);
  assert_int_equal(stats.large_bytes, RANGE);
  assert_int_equal(stats.large_count, 1);
  assert_int_equal(stats.large_cached_bytes, 3 * RANGE);
  hak_free(object);
}

UNIT_TEST_BETWEEN(a_stash_has_an_end, empty, empty) {
  habit_keeps(BYTES / 4, STASH_RANGES + 9, (STASH_RANGES - 1) * SHORT);
}

UNIT_TEST_BETWEEN(a_stash_has_an_end_in_bytes, empty, empty) {
  hak_option_set("large_cache_mb", "16");
  habit_keeps(BYTES, 9, 5 * RANGE);
  habit_keeps(BYTES, 1, 5 * RANGE); /* what was taken out makes room */
  hak_trim(0);
  habit_keeps(BYTES, 9, 5 * RANGE); /* and what others took */
  hak_option_set("large_cache_mb", NULL);
}

UNIT_TEST_BETWEEN(a_hundred_at_a_time_need_no_lock, empty, empty) {
  habit_keeps(BYTES / 4, 100, 100 * SHORT);
  uint64_t before = takes(), hits = counter_read(cache_hits), misses = counter_read(cache_misses);
  habit(BYTES / 4, 100);
  assert_int_equal(takes() - before, 100 * ROUNDS);
  assert_int_equal(counter_read(cache_hits) - hits + counter_read(cache_misses) - misses, 0);
}

/* Each of a class of its own. */
static size_t length_number(unsigned i) { return (i < 12 ? i + 5 : 2 * i - 6) * UNIT_BYTES; }

UNIT_TEST_BETWEEN(a_stash_has_places_for_lengths, empty, empty) {
  enum { LENGTHS = STASH_PLACES, COUNT = 5 };
  void *objects[LENGTHS][COUNT];
  for (unsigned round = 0; round < 4; round++) {
    for (unsigned i = 0; i < LENGTHS; i++)
      for (unsigned j = 0; j < COUNT; j++)
        objects[i][j] = take(length_number(i) - LARGE_COLOR_ROOM);
    for (unsigned j = 0; j < COUNT; j++)
      for (unsigned i = 0; i < LENGTHS; i++)
        hak_free(objects[i][j]);
  }
  for (unsigned i = 0; i < LENGTHS; i++) { /* an object of a longer range leaves fewer in its place */
    uint64_t before = takes();
    ask(length_number(i) - LARGE_COLOR_ROOM, 1);
    assert_int_equal(takes() - before, 1);
  }
}

UNIT_TEST_BETWEEN(calloc_takes_what_its_frees_left, empty, empty) {
  enum { CALLS = 40, MISSES = 4 };
  uint64_t before = takes();
  for (unsigned call = 0; call < CALLS; call++) {
    char *object = test_opaque(hak_calloc(1, 2 * UNIT_BYTES - 8192));
    assert_int_equal(map_entry(object), ENTRY_LARGE);
    assert_int_equal(object[0] | object[UNIT_BYTES], 0);
    object[0] = object[UNIT_BYTES] = 1;
    hak_free(object);
  }
  assert_in_range(takes() - before, CALLS - MISSES, CALLS);
  assert_int_equal(stash_bytes(), 2 * UNIT_BYTES);
}

static void ask_aligned(size_t alignment, size_t bytes) {
  uint64_t before = 0;
  for (unsigned round = 0; round < ROUNDS; round++) {
    before = takes();
    char *object = UNIT_GOT(test_opaque(hak_aligned_alloc(alignment, bytes)));
    assert_int_equal((uintptr_t)object & (alignment - 1), 0);
    assert_true(hak_usable_size(object) >= bytes);
    object[0] = object[bytes - 1] = 1;
    hak_free(object);
  }
  assert_int_equal(takes() - before, alignment <= UNIT_BYTES);
}

/* Up to the alignment of a range's begin, with room for colors and without. */
UNIT_TEST_BETWEEN(aligned_objects_come_from_it, empty, empty) {
  static const size_t sizes[] = {UNIT_BYTES + 1, BYTES, 2 * MIB, 3 * MIB, 4 * MIB, 6 * MIB};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t alignment = BLOCK_ALIGNMENT; alignment <= 2 * UNIT_BYTES; alignment *= 2)
      ask_aligned(alignment, sizes[i]);
}

static __attribute__((noinline)) void *take_elsewhere(size_t bytes) { return test_opaque(hak_malloc(bytes + 1)); }

/* A site's habit remembers a place, whose length may change meanwhile. */
UNIT_TEST_BETWEEN(a_place_may_change_its_length, empty, empty) {
  enum { UNITS = 60, LENGTHS = 30, COUNT = 4 };
  const size_t bytes = UNITS * UNIT_BYTES - LARGE_COLOR_ROOM;
  for (unsigned i = 0; i < SITE_REPEATS_MAX + 9; i++)
    ask(bytes, 1);
  struct stash *stash = heap_current()->stash;
  struct stash_habit habits[STASH_HABITS];
  struct stash_place *place = NULL;
  memcpy(habits, stash->habits, sizeof habits);
  for (unsigned i = 0; i < STASH_HABITS; i++)
    if (habits[i].units == UNITS - 1)
      place = &stash->places[habits[i].place];
  assert_non_null(place);
  void *object = take(bytes), *objects[COUNT];
  for (unsigned i = 0; i < LENGTHS && place->units == UNITS; i++) {
    for (unsigned round = 0; round < 3; round++) {
      for (unsigned j = 0; j < COUNT; j++)
        objects[j] = take_elsewhere(length_number(i) - LARGE_COLOR_ROOM);
      unit_free(objects, COUNT);
    }
  }
  assert_int_not_equal(place->units, UNITS);
  assert_int_not_equal(place->top, 0);
  if (unit_lies("stale"))
    memcpy(stash->habits, habits, sizeof habits);
  void *other = take(bytes);
  assert_true(hak_usable_size(other) >= bytes);
  hak_free(other);
  hak_free(object);
}

UNIT_TEST_BETWEEN(mappings_have_places_too, empty, empty) {
  habit(40 * MIB, 2);
  size_t bytes = stash_bytes();
  assert_true(bytes >= 80 * MIB);
  void *extent = test_opaque(hak_malloc(5 * MIB)); /* for which no mapping ends */
  assert_int_equal(stash_bytes(), bytes);
  uint64_t before = takes();
  ask(40 * MIB, 2);
  assert_int_equal(takes() - before, 2);
  hak_free(extent);
}

enum { ASKERS = 12 };
static struct asker {
  pthread_t thread;
  size_t bytes;
  _Atomic bool has_asked;
} askers[ASKERS];
static _Atomic bool askers_end;

static void *asker_run(void *argument) {
  struct asker *asker = argument;
  habit(asker->bytes, 1);
  atomic_store(&asker->has_asked, true);
  while (!atomic_load(&askers_end))
    test_pause_ms(1);
  return NULL;
}

/* Threads ask for objects of these lengths in turns, and stay. Returns what is stashed then. */
static size_t askers_ask(unsigned count, size_t bytes, size_t step) {
  atomic_store(&askers_end, false);
  for (unsigned i = 0; i < count; i++) {
    askers[i].bytes = bytes + i * step;
    atomic_store(&askers[i].has_asked, false);
    assert_int_equal(pthread_create(&askers[i].thread, NULL, asker_run, &askers[i]), 0);
    while (!atomic_load(&askers[i].has_asked))
      test_pause_ms(1);
  }
  size_t stashed = stash_bytes();
  atomic_store(&askers_end, true);
  for (unsigned i = 0; i < count; i++)
    assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
  return stashed;
}

UNIT_TEST_BETWEEN(a_new_mapping_is_taken_last, empty, empty) {
  size_t one = askers_ask(1, 40 * MIB, 0), mappings = range_mapping_count();
  assert_true(one >= 40 * MIB);
  assert_int_equal(askers_ask(ASKERS, 40 * MIB, 0), one);
  assert_int_equal(range_mapping_count(), mappings);
}

static __attribute__((noinline)) void *take_some(size_t bytes) { return test_opaque(hak_malloc(bytes)); }

/* A site asks for many lengths, in rounds, so that each has a place. */
UNIT_TEST_BETWEEN(mappings_of_other_lengths_are_taken, empty, empty) {
  enum { ROUNDS = 4, LENGTHS = 12 };
  for (unsigned i = 0; i < ROUNDS * LENGTHS; i++) {
    hak_free(take_some((33 + i % LENGTHS) * MIB));
    assert_true(usage_held() <= (33 + LENGTHS) * MIB);
  }
}

UNIT_TEST_BETWEEN(mappings_of_all_threads_have_a_bound, empty, empty) {
  size_t bytes = askers_ask(ASKERS, 33 * MIB, 2 * MIB);
  assert_true(bytes > 55 * MIB && bytes <= STASH_BYTES_MAX);
}

static void free_again(void *object) { hak_free(object); }
static void resize_freed(void *object) { (void)!test_opaque(hak_realloc(object, 2 * BYTES)); }

UNIT_TEST_BETWEEN(a_second_free_is_found, empty, empty) {
  unit_needs_forks();
  habit(BYTES, 1);
  char *object = take(BYTES);
  hak_free(object);
  assert_int_equal(stash_bytes(), RANGE);
  assert_int_equal(hak_usable_size(object), 0);
  unit_must_die(free_again, object, "double free of block ", object, "");
  unit_must_die(resize_freed, object, "double free of block ", object, "");
}

UNIT_TEST_BETWEEN(trims_take_it, empty, empty) {
  habit_keeps(BYTES, 5, 5 * RANGE);
  hak_trim(0);
  assert_int_equal(stash_bytes(), 0);
  assert_int_equal(usage_free(), 0);
}

UNIT_TEST_BETWEEN(new_memory_is_taken_last, empty, empty) {
  habit_keeps(4 * BYTES, 1, 4 * RANGE);
  size_t held = usage_held();
  void *object = test_opaque(hak_malloc(3 * BYTES));
  assert_int_equal(usage_held(), held);
  hak_free(object);
}

/* What was not used for the purge delay is with the system soon afterwards, and no sooner. */
static void wait_until_gone(void) {
  uint64_t since_ms = os_milliseconds();
  while (stash_bytes() + usage_free() > 0) {
    assert_true(os_milliseconds() - since_ms < patience_ms());
    test_pause_ms(DELAY_MS / 8);
    reclaim_round(RECLAIM_IDLE, NULL);
  }
  assert_true(os_milliseconds() - since_ms >= DELAY_MS - 20);
}

UNIT_TEST_BETWEEN(it_ages, empty, empty) {
  habit_keeps(BYTES, 5, 5 * RANGE);
  wait_until_gone();
  habit_keeps(BYTES, 1, RANGE); /* opens the stashes again */
  uint64_t before = takes();
  for (unsigned i = 0; i < 40; i++) { /* what is in use stays */
    test_pause_ms(DELAY_MS / 40);
    reclaim_round(RECLAIM_AGED, NULL);
    ask(BYTES, 1);
  }
  assert_int_equal(takes() - before, 40);
}

/* Slow calls age what is stashed, too, a few ranges each. */
UNIT_TEST_BETWEEN(one_call_moves_few, empty, empty) {
  enum { COUNT = 120, STEP = 64 };
  habit_keeps(BYTES / 4, COUNT, COUNT * SHORT);
  struct heap *heap = heap_current();
  unsigned steps = 0;
  for (uint64_t since_ms = os_milliseconds(); stash_bytes() > 0;) {
    size_t before = stash_bytes();
    assert_true(os_milliseconds() - since_ms < patience_ms());
    test_pause_ms(1);
    assert_true(slow_path_begin());
    heap->slow_calls = 1024; /* each of the periods ends */
    reclaim_tick_of_heap(heap);
    slow_path_end();
    assert_true(before - stash_bytes() <= STEP * SHORT);
    steps += stash_bytes() < before;
  }
  assert_int_equal(steps, 2);
}

static _Atomic unsigned step;

static void *sleeper(void *argument) {
  habit(BYTES, 3);
  atomic_store(&step, 1);
  while (atomic_load(&step) < 2)
    test_pause_ms(1);
  habit(BYTES, 3);
  return NULL;
}

UNIT_TEST_BETWEEN(a_sleeping_thread_keeps_nothing, empty, empty) {
  pthread_t thread;
  atomic_store(&step, 0);
  assert_int_equal(pthread_create(&thread, NULL, sleeper, NULL), 0);
  while (atomic_load(&step) < 1)
    test_pause_ms(1);
  assert_int_equal(stash_bytes(), 3 * RANGE);
  wait_until_gone();
  atomic_store(&step, 2);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(stash_bytes(), 3 * RANGE); /* of a thread that has ended */
  wait_until_gone();
}

#define HANDED 64u
static _Atomic(void *) handed[HANDED];

static void *only_frees(void *argument) {
  for (unsigned i = 0; i < HANDED; i++) {
    void *object;
    while ((object = atomic_exchange(&handed[i], NULL)) == NULL)
      test_pause_ms(1);
    hak_free(object);
  }
  return NULL;
}

UNIT_TEST_BETWEEN(who_only_frees_keeps_nothing, empty, empty) {
  pthread_t thread;
  struct stash_stats before, after;
  stash_stats(&before);
  assert_int_equal(pthread_create(&thread, NULL, only_frees, NULL), 0);
  for (unsigned i = 0; i < HANDED; i++)
    atomic_store(&handed[i], hak_malloc(BYTES / 4));
  assert_int_equal(pthread_join(thread, NULL), 0);
  stash_stats(&after);
  assert_int_equal(after.puts, before.puts);
}

static void child(void *argument) {
  void *expected = argument;
  void *object = take(BYTES);
  if (object != expected)
    dprintf(2, "another range\n");
  hak_free(object);
  hak_trim(0);
  if (stash_bytes() + usage_taken() + usage_free() != 0)
    dprintf(2, "%zu stashed, %zu taken, %zu free\n", stash_bytes(), usage_taken(), usage_free());
}

UNIT_TEST_BETWEEN(a_forked_child_has_it, empty, empty) {
  unit_needs_forks();
  habit(BYTES, 1);
  void *object = take(BYTES);
  hak_free(object);
  unit_passes_in_child(child, object);
}

static _Atomic bool ending;

static void *stir(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  struct {
    unsigned char *at;
    size_t bytes;
    unsigned char mark;
  } live[4] = {0};
  while (!atomic_load(&ending)) {
    unsigned i = (unsigned)(test_random(&seed) % 4);
    if (live[i].at) {
      for (size_t b = 0; b < live[i].bytes; b += 4096)
        if (live[i].at[b] != live[i].mark)
          abort();
      hak_free(live[i].at);
    }
    live[i].bytes = (5 + test_random(&seed) % 3) * UNIT_BYTES;
    live[i].mark = (unsigned char)test_random(&seed);
    live[i].at = test_opaque(hak_malloc(live[i].bytes));
    for (size_t b = 0; live[i].at && b < live[i].bytes; b += 4096)
      live[i].at[b] = live[i].mark;
  }
  for (unsigned i = 0; i < 4; i++)
    hak_free(live[i].at);
  return NULL;
}

UNIT_TEST_BETWEEN(others_take_while_owners_use, empty, empty) {
  pthread_t threads[4];
  uint64_t before = takes();
  atomic_store(&ending, false);
  test_threads_start(threads, 4, stir, (void *)(uintptr_t)UNIT_SEED, 1);
  for (unsigned round = 0; round < unit_rounds(100, 20); round++) {
    test_pause_ms(5);
    if (round % 8 == 0)
      hak_trim(0);
    else
      reclaim_round((enum reclaim_depth)(round % 3), NULL);
  }
  atomic_store(&ending, true);
  test_threads_join(threads, 4);
  assert_true(takes() > before);
  assert_int_equal(load_relaxed(&stash_units_max), STASH_BYTES_MAX / 4 / UNIT_BYTES); /* of each of many */
}

/* Opens the stashes once for each step that the main thread announces. */
static _Atomic unsigned announced, opened;
static void *opener(void *unused) {
  (void)unused;
  for (unsigned step = 0; !atomic_load(&ending);) {
    if (atomic_load(&announced) == step) {
      sched_yield(); /* there may be one CPU only */
      continue;
    }
    stash_open(STASH_BYTES_MAX);
    atomic_store(&opened, ++step);
  }
  return NULL;
}

/* A round that finds nothing ends while a thread opens the stashes: those that are open count as live. Where other
 * programs keep the processors busy, each step waits for several turns of theirs, so the steps have a time, too. */
UNIT_TEST_BETWEEN(a_round_ends_while_they_open, empty, empty) {
  pthread_t thread;
  atomic_store(&ending, false);
  test_threads_start(&thread, 1, opener, NULL, 0);
  uint64_t end_ms = os_milliseconds() + 3000;
  for (unsigned step = 1; step <= unit_rounds(100000, 10) && os_milliseconds() < end_ms; step++) {
    stash_close();
    __real_stash_next_round();
    atomic_store(&announced, step);
    for (volatile unsigned wait = step % 128; wait > 0; wait--)
      ;
    __real_stash_next_round();
    while (atomic_load(&opened) != step)
      sched_yield();
    assert_true(!stashes_are(STASHES_OPEN) || stashes_are(STASHES_LIVE));
  }
  atomic_store(&ending, true);
  test_threads_join(&thread, 1);
}

/* Where a thousand threads have stashes, a row of objects that no free memory serves does not add up all of them for
 * each object. What they hold is found all the same. */
UNIT_TEST_BETWEEN(many_stashes_are_seldom_added_up, empty, empty) {
  enum { STASHES = 1000, OBJECTS = 500 };
  static void *objects[OBJECTS];
  for (unsigned i = 0; i < STASHES; i++)
    assert_non_null(stash_make());
  habit(4 * BYTES, 1);
  test_pause_ms(STASHES / 10);
  size_t held = usage_held();
  objects[0] = test_opaque(hak_malloc(3 * BYTES));
  assert_int_equal(usage_held(), held);
  hak_free(objects[0]);
  uint64_t since_ms = os_milliseconds();
  unsigned before = atomic_load(&sums);
  for (unsigned i = 0; i < OBJECTS; i++)
    objects[i] = take(SHORT);
  assert_in_range(atomic_load(&sums) - before, 0, OBJECTS / 10 + os_milliseconds() - since_ms);
  unit_free(objects, OBJECTS);
}

/* Nor does a row of slabs, or of mappings, search them while they are empty. */
UNIT_TEST_BETWEEN(empty_stashes_are_not_searched, empty, empty) {
  enum { STASHES = 1000, BLOCKS = 800, MAPPINGS = 1000 };
  static void *blocks[BLOCKS];
  for (unsigned i = 0; i < STASHES; i++)
    assert_non_null(stash_make());
  habit(BYTES, 1);
  hak_trim(0);
  test_pause_ms(STASHES / 10);
  unsigned before = atomic_load(&searches);
  for (unsigned i = 0; i < BLOCKS; i++)
    blocks[i] = take(60000);
  assert_in_range(atomic_load(&searches) - before, 0, BLOCKS / 80);
  unit_free(blocks, BLOCKS);
  uint64_t since_ms = os_milliseconds();
  before = atomic_load(&searches) + atomic_load(&sums);
  for (unsigned i = 0; i < MAPPINGS; i++)
    hak_free(test_opaque(hak_malloc((33 + i % 8) * MIB)));
  assert_in_range(atomic_load(&searches) + atomic_load(&sums) - before, 0,
                  MAPPINGS / 10 + os_milliseconds() - since_ms);
}

/* Memory stays short for some time afterwards. */
UNIT_TEST_BETWEEN(a_limit_finds_it, empty, empty) {
  habit_keeps(BYTES, 6, 6 * RANGE);
  hak_option_set("limit_mb", "44"); /* a mapping finds room only if the ranges go */
  void *object = test_opaque(hak_malloc(40 * MIB));
  hak_option_set("limit_mb", NULL);
  assert_non_null(object);
  assert_int_equal(stash_bytes(), 0);
  hak_free(object);
  habit_keeps(BYTES, 1, 0);
}

int main(int argc, char **argv) {
  unit_word = argc > 1 ? argv[1] : "";
  held_before = __real_os_resident_of_process();
  unit_alone();
  unit_option("HAKMEM_PURGE_DELAY_MS", "400");
  return unit_run(stay_small, NULL);
}
