/* big_cache: which range is taken, bytes and age, against a shadow. */
#include "unit.h"

static void valid(void) { UNIT_VALID(big_cache_is_valid()); }

/* A range as large.c makes one; nothing here touches its memory. */
static struct large *range(size_t bytes, uint32_t site) {
  static char *place;
  if (place == NULL || ((uintptr_t)(place + bytes) & ~(LEAF_BYTES - 1)) != ((uintptr_t)place & ~(LEAF_BYTES - 1))) {
    place = UNIT_GOT(os_reserve(LEAF_BYTES, LEAF_BYTES));
    assert_true(map_cover(place, LEAF_BYTES));
  }
  struct large *made = map_record(place);
  *made = (struct large){.base = place, .units = (uint32_t)(bytes / UNIT_BYTES), .site = site};
  map_entries_set(place, 1, ENTRY_LARGE_FREE);
  place += bytes;
  return made;
}

/* As the end of an object. There is no memory behind these ranges, so their moves do not end: that is the error bound
 * of the sums which a fork checks. */
static void put(struct large *range, unsigned keep) {
  usage_move_begin(large_range_bytes(range));
  usage_move(USAGE_NOWHERE, USAGE_LARGE, large_range_bytes(range));
  big_cache_put(range, keep, os_milliseconds());
}

static int empty(void **state) {
  while (big_cache_take_oldest(UNIT_EVERYTHING))
    ;
  assert_int_equal(decay_total(&big_cache_decay), 0);
  assert_int_equal(decay_oldest_ms(&big_cache_decay), 0);
  assert_int_equal(usage_free(), 0);
  valid();
  return 0;
}

UNIT_TEST_BETWEEN(classes_are_eight_a_doubling, empty, empty) {
  unsigned last = 0;
  for (size_t units = 1; units < 100000; units++) {
    unsigned class = units_class(units);
    assert_true(class == last || class == last + 1);
    assert_true(class < UNITS_CLASSES);
    last = class;
  }
  for (size_t units = 8; units <= (size_t)1 << 20; units *= 2)
    assert_int_equal(units_class(units * 2) - units_class(units), 8);
  for (unsigned bit = 0; bit < 64; bit++)
    assert_true(units_class((size_t)1 << bit) < UNITS_CLASSES);
}

UNIT_TEST_BETWEEN(the_newest_of_a_length_comes_first, empty, empty) {
  enum { COUNT = 10 };
  struct large *ranges[COUNT];
  for (unsigned i = 0; i < COUNT; i++)
    put(ranges[i] = range(MIB, i % 2), KEEP_BY_PRESET);
  valid();
  uint64_t of_site = counter_read(cache_hits_of_site), hits = counter_read(cache_hits);
  uint64_t misses = counter_read(cache_misses);
  for (unsigned i = 0; i < COUNT; i++)
    assert_ptr_equal(big_cache_take(MIB, UNIT_BYTES, 1), ranges[COUNT - 1 - i]);
  assert_int_equal(counter_read(cache_hits) - hits, COUNT);
  assert_int_equal(counter_read(cache_hits_of_site) - of_site, COUNT / 2);
  assert_null(big_cache_take(MIB, UNIT_BYTES, 1));
  assert_int_equal(counter_read(cache_misses) - misses, 1);
}

UNIT_TEST_BETWEEN(ranges_fit_closely_and_are_aligned, empty, empty) {
  uint64_t seed = UNIT_SEED;
  static struct large *ranges[500];
  for (unsigned i = 0; i < 500; i++)
    put(ranges[i] = range((1 + test_random(&seed) % 300) * UNIT_BYTES, i % 7), KEEP_BY_PRESET);
  for (unsigned i = 0; i < 3000; i++) {
    size_t bytes = (1 + test_random(&seed) % 300) * UNIT_BYTES;
    size_t alignment = UNIT_BYTES << test_random(&seed) % 5;
    struct large *taken = big_cache_take(bytes, alignment, i % 7);
    if (taken == NULL)
      continue;
    size_t has = large_range_bytes(taken);
    assert_true(has >= bytes && has - bytes <= has / 8);
    assert_int_equal((uintptr_t)taken->base & (alignment - 1), 0);
    put(taken, KEEP_BY_PRESET);
  }
  valid();
}

UNIT_TEST_BETWEEN(many_ranges_are_all_found, empty, empty) {
  enum { COUNT = 20000 };
  static struct large *ranges[COUNT];
  size_t bytes = 0;
  for (unsigned i = 0; i < COUNT; i++) {
    ranges[i] = range((1 + i % 3) * UNIT_BYTES, 7919 * i);
    put(ranges[i], KEEP_BY_PRESET);
    bytes += large_range_bytes(ranges[i]);
    assert_int_equal(decay_total(&big_cache_decay), bytes);
    assert_int_equal(usage_free(), bytes);
    if (i % 1000 == 0)
      valid();
  }
  valid();
  for (unsigned i = COUNT; i-- > 0;)
    assert_ptr_equal(big_cache_take((1 + i % 3) * UNIT_BYTES, UNIT_BYTES, 7919 * i), ranges[i]);
  assert_int_equal(decay_total(&big_cache_decay), 0);
}

UNIT_TEST_BETWEEN(the_oldest_go_first, empty, empty) {
  struct large *ranges[4];
  uint64_t put_ms[4];
  for (unsigned i = 0; i < 4; i++) {
    put(ranges[i] = range((i + 1) * MIB, i), KEEP_BY_PRESET);
    test_pause_ms(30);
    put_ms[i] = os_milliseconds();
  }
  assert_true(decay_oldest_ms(&big_cache_decay) > 0 && decay_oldest_ms(&big_cache_decay) <= put_ms[0]);
  assert_null(big_cache_take_oldest(purge_by_preset(10 * MIB, UNIT_ANY_TIME))); /* so much may stay */
  assert_null(big_cache_take_oldest(purge_by_preset(0, 0)));
  assert_ptr_equal(big_cache_take_oldest(purge_by_preset(9 * MIB, UNIT_ANY_TIME)), ranges[0]);
  assert_null(big_cache_take_oldest(purge_by_preset(9 * MIB, UNIT_ANY_TIME)));
  assert_null(big_cache_take_oldest(purge_by_preset(0, put_ms[0]))); /* the rest was freed after that */
  assert_ptr_equal(big_cache_take_oldest(purge_by_preset(0, put_ms[2])), ranges[1]);
  assert_ptr_equal(big_cache_take_oldest(purge_by_preset(0, put_ms[2])), ranges[2]);
  assert_null(big_cache_take_oldest(purge_by_preset(0, put_ms[2])));
  assert_int_equal(decay_total(&big_cache_decay), 4 * MIB);
  /* A range that was used in between is young again. */
  assert_ptr_equal(big_cache_take(4 * MIB, UNIT_BYTES, 3), ranges[3]);
  test_pause_ms(30);
  uint64_t now_ms = os_milliseconds();
  put(ranges[3], KEEP_BY_PRESET);
  assert_true(decay_oldest_ms(&big_cache_decay) >= now_ms);
  assert_null(big_cache_take_oldest(purge_by_preset(0, now_ms)));
}

/* Extents are found behind older mappings. */
UNIT_TEST_BETWEEN(old_extents_are_found_behind_mappings, empty, empty) {
  assert_null(big_cache_take_old());
  struct large *ranges[4];
  for (unsigned i = 0; i < 4; i++) {
    ranges[i] = range(i == 2 ? MAPPING_BYTES_MIN : MIB, i);
    ranges[i]->mapping = i % 2 == 0;
    put(ranges[i], KEEP_BY_PRESET);
  }
  assert_ptr_equal(big_cache_take_old(), ranges[1]);
  assert_ptr_equal(big_cache_take_old(), ranges[3]);
  assert_null(big_cache_take_old());
  assert_int_equal(decay_total(&big_cache_decay), MIB + MAPPING_BYTES_MIN);
  valid();
}

#define RANGES 600u

static struct {
  struct large *range;
  bool cached;
} shadow[RANGES];

/* Random puts and takes: a range comes out once for each time it was put in. */
UNIT_TEST_BETWEEN(random_use_loses_nothing, empty, empty) {
  uint64_t seed = UNIT_SEED;
  size_t cached_bytes = 0;
  for (unsigned i = 0; i < RANGES; i++) {
    shadow[i].range = range((1 + i % 40) * UNIT_BYTES, i % 50);
    shadow[i].cached = false;
  }
  for (unsigned step = 0; step < unit_rounds(60000, 1); step++) {
    unsigned i = (unsigned)(test_random(&seed) % RANGES);
    struct large *out = NULL;
    if (!shadow[i].cached) {
      shadow[i].range->site = (uint32_t)(test_random(&seed) % 50);
      put(shadow[i].range, KEEP_BY_PRESET);
      shadow[i].cached = true;
      cached_bytes += large_range_bytes(shadow[i].range);
    } else if (test_random(&seed) % 4) {
      out = big_cache_take((1 + i % 40) * UNIT_BYTES, UNIT_BYTES, (uint32_t)(test_random(&seed) % 50));
    } else {
      out = big_cache_take_oldest(purge_by_preset(cached_bytes / 2, UNIT_ANY_TIME));
    }
    if (out) {
      unsigned j = 0;
      while (shadow[j].range != out)
        assert_true(++j < RANGES);
      assert_true(shadow[j].cached);
      shadow[j].cached = false;
      cached_bytes -= large_range_bytes(out);
    }
    assert_int_equal(decay_total(&big_cache_decay), cached_bytes);
    if (step % 5000 == 0)
      valid();
  }
}

static void *churn(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  struct large *mine[8] = {0};
  for (unsigned step = 0; step < unit_rounds(50000, 1); step++) {
    struct large **place = &mine[test_random(&seed) % 8];
    if (*place) {
      assert_int_equal((*place)->freed_ms, 12345); /* nobody else got it meanwhile */
      put(*place, KEEP_BY_PRESET);
      *place = NULL;
    } else {
      *place = test_random(&seed) % 16 ? big_cache_take(MIB, UNIT_BYTES, (uint32_t)seed % 8)
                                       : big_cache_take_oldest(UNIT_EVERYTHING);
      if (*place)
        (*place)->freed_ms = 12345;
    }
  }
  for (unsigned i = 0; i < 8; i++)
    if (mine[i])
      put(mine[i], KEEP_BY_PRESET);
  return NULL;
}

UNIT_TEST_BETWEEN(threads_share_the_cache, empty, empty) {
  for (unsigned i = 0; i < 20; i++)
    put(range(MIB, i % 8), KEEP_BY_PRESET);
  test_threads_run(3, churn, (void *)(uintptr_t)1, 1);
  assert_int_equal(decay_total(&big_cache_decay), 20 * MIB);
}

static void *put_and_take(void *ending) {
  struct large *own = range(MIB, 99);
  while (!atomic_load((_Atomic bool *)ending)) {
    if (!slow_path_begin()) /* a fork is under way */
      continue;
    put(own, KEEP_BY_PRESET);
    own = big_cache_take(MIB, UNIT_BYTES, 99);
    slow_path_end();
  }
  return NULL;
}

static void child(void *unused) {
  struct large *taken = big_cache_take(2 * MIB, UNIT_BYTES, 5);
  CHECK(taken != NULL);
  put(taken, KEEP_BY_PRESET);
  valid();
}

/* A child of a fork finds the cache whole, and its lock free: a fork waits until nobody is in a slow path. */
UNIT_TEST_BETWEEN(a_forked_child_finds_it_whole, empty, empty) {
  unit_needs_forks();
  _Atomic bool ending = false;
  put(range(2 * MIB, 5), KEEP_BY_PRESET);
  hak_free(hak_malloc(1)); /* fork handlers are there */
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, put_and_take, &ending), 0);
  for (unsigned i = 0; i < unit_rounds(200, 1); i++)
    unit_passes_in_child(child, NULL);
  atomic_store(&ending, true);
  pthread_join(thread, NULL);
}

UNIT_TEST_BETWEEN(a_habit_is_asking_for_one_class, empty, empty) {
  unsigned times = 0;
  while (!site_is_steady(12, 30))
    assert_true(++times < 16);
  assert_true(times > 0);
  assert_true(site_is_steady(12, 30));
  assert_false(site_is_steady(12, 31));
  for (unsigned i = 0; i < 100; i++)
    assert_false(site_is_steady(13, 30 + i % 2));
  for (unsigned i = 0; i < 1000; i++)
    site_is_steady(14, 30);
  assert_true(site_is_steady(14, 30));
}

UNIT_MAIN(unit_alone())
