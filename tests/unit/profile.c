/* profile: the samples' sums are the true ones, whatever the interval; each block that is a sample leaves the profile
 * when it is freed, by whoever frees it; large objects that are resized stay in it as what they are; a profile may
 * start and stop at any time. */
#include "count/tally.h"
#include "unit.h"

#include "profile/profile.h"

static struct hak_stats stats(void) {
  struct hak_stats found;
  profile_stats(&found);
  return found;
}

/* What the program holds, as the allocator counts it. */
static size_t live_bytes(void) {
  struct hak_stats found;
  hak_stats_get(&found);
  return found.live_bytes;
}

/* The thread follows at its next free. */
static void start(size_t interval) {
  assert_int_equal(hak_profile_start(interval), 0);
  hak_free(test_opaque(hak_malloc(1)));
}

/* The profile's live samples, and what they stand for. */
static void expect(uint64_t samples, uint64_t live_bytes) {
  struct hak_stats found = stats();
  assert_int_equal(found.profile_samples, samples);
  assert_int_equal(found.profile_live_bytes, live_bytes);
}

static size_t some_size(uint64_t *random) {
  uint64_t kind = test_random(random) % 1024;
  if (kind < 980)
    return 1 + test_random(random) % 2000;
  return kind < 1023 ? 1 + test_random(random) % 60000 : 1 + test_random(random) % (2 * MIB);
}

static void expect_within(uint64_t found, uint64_t truth, unsigned percent) {
  uint64_t error = found > truth ? found - truth : truth - found;
  if (error * 100 > truth * percent)
    fail_msg("%llu of %llu bytes", (unsigned long long)found, (unsigned long long)truth);
}

/* With a sample each 64 KiB the standard deviation is 0.7 %: four of them. Control: a profile that does not hear of
 * frees, or counts each sample once only, is off by more. */
UNIT_TEST_OF_ONE_THREAD(live_bytes_are_true_within_3_percent, NULL, NULL) {
  enum { BLOCKS = 400000 };
  static void *blocks[BLOCKS];
  uint64_t random = UNIT_SEED;
  size_t before = live_bytes();
  start(64 << 10);
  for (unsigned i = 0; i < 2 * BLOCKS; i++) { /* each is replaced once on average */
    size_t at = test_random(&random) % BLOCKS;
    hak_free(blocks[at]);
    blocks[at] = hak_malloc(some_size(&random));
  }
  size_t truth = live_bytes() - before;
  struct hak_stats found = stats();
  assert_true(truth > 300 * MIB);
  assert_int_equal(found.profile_dropped_bytes, 0);
  assert_true(found.profile_samples > truth / MIB);
  expect_within(found.profile_live_bytes, truth, 3);
  for (unsigned i = 0; i < BLOCKS; i += 2) { /* half of them, whose share is what it is */
    hak_free(blocks[i]);
    blocks[i] = NULL;
  }
  expect_within(stats().profile_live_bytes, live_bytes() - before, 5);
  unit_free(blocks, BLOCKS);
  expect(0, 0); /* none was forgotten */
  assert_int_equal(hak_profile_stop(), 0);
}

/* While the thread holds no lock, another one takes the lock of its pool, and ends. */
static bool another_ends;
TEST_WRAP(void *, pool_shared_take, struct pool *shared, unsigned cls) {
  if (!another_ends)
    return __real_pool_shared_take(shared, cls);
  another_ends = false;
  assert_true(lock_try(&heap_pool(heap_current())->lock));
  return NULL;
}

UNIT_TEST_IN_CHILD(a_sample_does_not_wait_for_a_lock_for_ever) {
  start(1);
  struct heap *heap = heap_current();
  another_ends = true;
  void *block = UNIT_GOT(hak_malloc(100));
  assert_false(another_ends);
  assert_ptr_not_equal(heap_current(), heap);
  hak_free(block);
}

UNIT_TEST(every_allocation_is_a_sample) {
  enum { BLOCKS = 3000 };
  static void *blocks[BLOCKS];
  uint64_t random = UNIT_SEED;
  start(1);
  uint64_t bytes = 0;
  for (unsigned i = 0; i < BLOCKS; i++) {
    blocks[i] = UNIT_GOT(hak_malloc(some_size(&random)));
    memset(blocks[i], 1, hak_usable_size(blocks[i]));
    bytes += hak_usable_size(blocks[i]);
  }
  expect(BLOCKS, bytes);
  for (unsigned i = 0; i < BLOCKS; i++) {
    bytes -= hak_usable_size(blocks[i]);
    hak_free(blocks[i]);
    assert_int_equal(stats().profile_live_bytes, bytes);
  }
  hak_profile_stop();
}

static uint64_t allocated_objects(void) {
  struct samples copy;
  struct pprof_about about;
  assert_true(profile_copy(&copy, &about));
  uint64_t objects_1024 = copy.allocated.objects_1024;
  samples_clear(&copy);
  return objects_1024;
}

UNIT_TEST(large_objects_stay_what_they_are) {
  start(64 << 10);
  char *object = hak_malloc(MIB);
  for (size_t size = MIB; size < 64 * MIB; size = size * 3 / 2) {
    object = UNIT_GOT(hak_realloc(object, size));
    expect(1, large_bytes(object));
  }
  object = UNIT_GOT(hak_realloc(object, 300000));
  assert_int_equal(stats().profile_live_bytes, large_bytes(object));
  uint64_t events = allocated_objects();
  for (unsigned i = 0; i < 100; i++) /* nothing changes: nothing is allocated */
    assert_ptr_equal(hak_realloc(object, 300000 + i), object);
  assert_int_equal(allocated_objects(), events);
  assert_int_equal(hak_option_set("limit_mb", "80"), 0);
  assert_null(hak_realloc(object, 512 * MIB)); /* fails: as before */
  expect(1, large_bytes(object));
  assert_int_equal(hak_option_set("limit_mb", NULL), 0);
  hak_free(object);
  assert_int_equal(stats().profile_samples, 0);
  void *aligned;
  assert_int_equal(hak_posix_memalign(&aligned, 4 * MIB, 1), 0);
  assert_int_equal(stats().profile_samples, 1);
  hak_free(aligned);
  assert_int_equal(stats().profile_samples, 0);
  hak_profile_stop();
}

static void *blocks_of_others[4][2000];

static void *fill(void *argument) {
  void **blocks = argument;
  uint64_t random = (uintptr_t)argument;
  for (unsigned round = 0; round < unit_rounds(30, 1); round++)
    for (unsigned i = 0; i < 2000; i++) {
      hak_free(blocks[i]);
      blocks[i] = hak_malloc(some_size(&random) % 3000);
    }
  return NULL;
}

/* Threads fill, end, and another one frees. */
UNIT_TEST(anybody_frees) {
  start(5000);
  test_threads_run(4, fill, blocks_of_others, sizeof *blocks_of_others);
  assert_true(stats().profile_samples > 100);
  for (unsigned i = 0; i < 4; i++)
    for (unsigned at = 0; at < 2000; at++) {
      hak_free(blocks_of_others[i][at]);
      blocks_of_others[i][at] = NULL;
    }
  expect(0, 0);
  hak_profile_stop();
}

/* What was sampled in one profile is freed in the next one, or in none. */
UNIT_TEST(a_profile_begins_empty) {
  static void *blocks[1000];
  for (unsigned round = 0; round < 20; round++) {
    start(round % 2 ? 1 : 3000);
    assert_int_equal(stats().profile_samples, 0);
    for (unsigned i = 0; i < 1000; i++) {
      hak_free(blocks[i]);
      blocks[i] = hak_malloc(500 + i);
    }
    assert_true(stats().profile_samples > 0);
    if (round % 3 == 0)
      hak_profile_stop();
  }
  hak_profile_stop();
  uint64_t samples = stats().profile_samples;
  hak_free(hak_malloc(MIB)); /* nothing is sampled */
  assert_int_equal(stats().profile_samples, samples);
  unit_free(blocks, 1000);
  assert_int_equal(stats().profile_samples, 0);
  UNIT_HEAP_VALID(heap_current());
  UNIT_EXTENTS_VALID();
}

/* Who asks for hardly any gets hardly any. */
UNIT_TEST_OF_ONE_THREAD(an_interval_without_end, NULL, NULL) {
  static const size_t intervals[] = {SIZE_MAX, (size_t)1 << 63, (size_t)1 << 62, (size_t)1 << 40};
  for (unsigned i = 0; i < 4; i++) {
    start(intervals[i]);
    for (unsigned block = 0; block < unit_rounds(10000, 1); block++)
      hak_free(test_opaque(hak_malloc(5000)));
    expect(0, 0);
  }
  hak_profile_stop();
}

static void *start_and_stop(void *argument) {
  for (unsigned i = 0; i < unit_rounds(2000, 1); i++)
    if ((uintptr_t)argument % 2)
      hak_profile_start(1000);
    else
      hak_profile_stop();
  return NULL;
}

/* However starts and stops meet, the last word counts for heaps and profile. */
UNIT_TEST(starts_and_stops_meet) {
  test_threads_run(4, start_and_stop, NULL, 1);
  assert_int_equal(tally_is_on(), profile_is_on());
  hak_profile_stop();
  assert_false(tally_is_on());
}

/* A thread picks an object, then another one stops the profile, then the first one adds the object. */
UNIT_TEST(a_sample_that_comes_late_is_none) {
  void *object = hak_malloc(MIB), *other = hak_malloc(MIB);
  start(1);
  assert_int_equal(hak_profile_stop(), 0);
  hak_free(other); /* no sample is left: from now on frees of large objects are not looked at */
  UNIT_SLOWLY(profile_add(heap_current(), object, MIB, 1, 0));
  hak_free(object);
  expect(0, 0);
}

UNIT_TEST(a_path_that_does_not_do) {
  assert_int_equal(hak_profile_dump("/nonexistent/x"), ENOENT);
  assert_int_equal(hak_profile_dump("/"), EINVAL);
  assert_int_equal(hak_profile_dump(NULL), EINVAL);
}

/* A sampled block is a block: freed twice, the program ends. */
static void free_twice(void *block) {
  hak_free(block);
  hak_free(block);
}
UNIT_TEST(misuse_is_noticed) {
  static const size_t sizes[] = {100, 5000, MIB};
  char said[512];
  start(1);
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *block = hak_malloc(sizes[i]);
    int status = unit_in_child(free_twice, block, said, sizeof said);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "hakmem: double free"));
    hak_free(block);
  }
  hak_profile_stop();
}

UNIT_MAIN((unit_alone(), hak_free(hak_malloc(1))))
