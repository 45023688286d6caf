/* tally: what was allocated and freed is counted to the block, whoever frees it and whenever counting starts and ends;
 * samples stand for as many bytes as went through; threads that never leave the fast path are reached. */
#include "count/tally.h"
#include "heap/bin.h"
#include "threads/watch.h"
#include "unit.h"

#define THREADS 4u
#define LIVE 400u
#define LAST (HAK_CLASS_COUNT - 1)

static struct class_counts before[HAK_CLASS_COUNT], expected[HAK_CLASS_COUNT], found[HAK_CLASS_COUNT];

static void count(bool is_counting) {
  assert_int_equal(option_set(OPTION_COUNTING, is_counting ? "on" : "off"), OPTION_OK);
  tally_apply();
}

/* A slow call, in which the thread follows. */
static void follow(void) {
  struct heap *heap = heap_current();
  lock_take(&heap_pool(heap)->lock);
  heap_follow_tally(heap);
  UNIT_HEAP_VALID(heap);
  lock_give(&heap_pool(heap)->lock);
}

/* Starts or ends counting, and this thread follows. */
static void count_here(bool is_counting) {
  count(is_counting);
  follow();
}

/* What is expected counts from here on. */
static void expect_from_here(void) {
  heaps_counts(before);
  memset(expected, 0, sizeof expected);
}

static void expect_counts(void) {
  heaps_counts(found);
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++) {
    if (found[cls].allocated - before[cls].allocated != expected[cls].allocated ||
        found[cls].freed - before[cls].freed != expected[cls].freed)
      fail_msg("class %u: %llu allocated, %llu freed; counted %llu, %llu", cls,
               (unsigned long long)expected[cls].allocated, (unsigned long long)expected[cls].freed,
               (unsigned long long)(found[cls].allocated - before[cls].allocated),
               (unsigned long long)(found[cls].freed - before[cls].freed));
  }
}

/* Sizes of all classes, most of them small. */
static size_t some_size(uint64_t *random) {
  uint64_t kind = test_random(random) % 64;
  size_t most = kind < 56 ? 1024 : kind < 63 ? 16384 : HAK_SMALL_MAX;
  return 1 + test_random(random) % most;
}

static void *churn(void *argument) {
  static _Atomic(void *) handed_over[64];
  struct class_counts own[HAK_CLASS_COUNT] = {{0, 0}};
  unsigned char *blocks[LIVE] = {NULL};
  size_t sizes[LIVE] = {0};
  uint64_t random = (uintptr_t)argument;
  for (unsigned i = 0; i < 100000; i++) {
    unsigned at = (unsigned)(test_random(&random) % LIVE);
    if (blocks[at]) {
      own[hak_class_of(sizes[at])].freed++;
      hak_free(blocks[at]);
    }
    sizes[at] = some_size(&random);
    blocks[at] = hak_malloc(sizes[at]);
    blocks[at][0] = blocks[at][sizes[at] - 1] = (unsigned char)i;
    own[hak_class_of(sizes[at])].allocated++;
    if (i % 16 == 0) { /* and one for another thread: of one class, as it has no size */
      own[hak_class_of(48)].allocated++;
      void *theirs = atomic_exchange(&handed_over[test_random(&random) % 64], hak_malloc(48));
      own[hak_class_of(48)].freed += theirs != NULL;
      hak_free(theirs);
    }
  }
  for (unsigned at = 0; at < LIVE; at++)
    if (blocks[at]) {
      own[hak_class_of(sizes[at])].freed++;
      hak_free(blocks[at]);
    }
  static pthread_mutex_t sum = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&sum);
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++) {
    expected[cls].allocated += own[cls].allocated;
    expected[cls].freed += own[cls].freed;
  }
  pthread_mutex_unlock(&sum);
  return NULL;
}

static void churn_in_threads(void) { test_threads_run(THREADS, churn, (void *)(uintptr_t)UNIT_SEED, 1); }

UNIT_TEST(every_block_is_counted) {
  count(true);
  churn_in_threads();
  expect_counts();
  count(false);
  memcpy(before, found, sizeof before);
  memset(expected, 0, sizeof expected);
  churn_in_threads(); /* the same heaps, off */
  memset(expected, 0, sizeof expected);
  expect_counts(); /* control: nothing is counted then */
}

/* Counting starts and ends in the midst of it; between a start and an end all is counted. */
UNIT_TEST(counting_starts_and_ends) {
  static void *blocks[2000];
  uint64_t random = UNIT_SEED;
  for (unsigned round = 0; round < 60; round++) {
    for (unsigned i = 0; i < 2000; i++)
      if (round == 0 || i % 3 == round % 3) {
        hak_free(blocks[i]);
        blocks[i] = hak_malloc(some_size(&random));
      }
    count_here(true);
    expect_from_here();
    for (unsigned i = 0; i < 2000; i++) {
      unsigned cls = entry_class(map_entry(blocks[i]));
      size_t bytes = class_bytes(cls);
      expected[cls].freed++;
      hak_free(blocks[i]);
      expected[hak_class_of(bytes)].allocated++;
      blocks[i] = hak_malloc(bytes);
    }
    follow();
    expect_counts();
    count_here(false);
    assert_int_equal(heap_current()->front.split, 0);
    assert_int_equal(heap_current()->front.key, pool_front_key(heap_pool(heap_current())));
  }
  unit_free(blocks, 2000);
}

UNIT_TEST(the_first_and_the_last_class_are_counted) {
  void *blocks[64];
  count_here(true);
  expect_from_here();
  for (unsigned round = 0; round < 200; round++) {
    for (unsigned i = 0; i < 64; i++)
      blocks[i] = UNIT_GOT(hak_malloc(i % 2 ? HAK_SMALL_MAX : 0));
    for (unsigned i = 0; i < 64; i++) {
      assert_int_equal(hak_usable_size(blocks[i]), i % 2 ? HAK_SMALL_MAX : 16);
      hak_free(blocks[i]);
    }
    expected[LAST].allocated += 32;
    expected[LAST].freed += 32;
    expected[1].allocated += 32;
    expected[1].freed += 32;
    UNIT_HEAP_VALID(heap_current());
  }
  expect_counts();
  count_here(false);
}

#define HANDED 5000u
static void *handed[HANDED];

static void *free_all(void *unused) {
  unit_free(handed, HANDED);
  return unused;
}

/* A thread that allocates nothing, and frees what is others'. */
UNIT_TEST(who_only_frees_is_counted) {
  count_here(true);
  expect_from_here();
  unit_alloc(handed, HANDED, 100);
  test_thread_run(free_all, NULL);
  expected[hak_class_of(100)] = (struct class_counts){HANDED, HANDED};
  expect_counts();
  count_here(false);
}

/* Has an envelope open when counting begins. */
static void *free_before_and_after(void *unused) {
  for (unsigned i = 0; i < 300; i++) /* the first ones may end an envelope of the heap's last owner */
    hak_free(handed[i]);
  assert_true(heap_current()->outbox.open_bytes > 0);
  count_here(true);
  expect_from_here();
  unit_free(handed + 300, 320 - 300);
  expected[hak_class_of(100)] = (struct class_counts){0, 20};
  expect_counts();
  return unused;
}

UNIT_TEST(an_open_envelope_is_counted_from_then_on) {
  unit_alloc(handed, 320, 100);
  test_thread_run(free_before_and_after, NULL);
  count_here(false);
}

static _Atomic bool is_over;

/* Never leaves the fast path. */
static void *oscillate(void *argument) {
  while (!atomic_load(&is_over))
    hak_free(test_opaque(hak_malloc(64)));
  return NULL;
}

static uint64_t allocated_64(void) {
  heaps_counts(found);
  return found[hak_class_of(64)].allocated;
}

/* Waits until the count rises, or stays as it is for some looks. */
static bool comes_to(bool is_rising) {
  uint64_t seen = allocated_64(), end = os_milliseconds() + 60000;
  for (unsigned looks = 0; looks < 20 && os_milliseconds() < end; usleep(1000)) {
    uint64_t now = allocated_64();
    looks = (now > seen + 1000) == is_rising ? looks + 1 : 0;
    seen = now;
    if (is_rising && looks > 0)
      return true;
  }
  return !is_rising && os_milliseconds() < end;
}

UNIT_TEST(who_does_not_ask_is_told) {
  pthread_t thread;
  atomic_store(&is_over, false);
  assert_int_equal(pthread_create(&thread, NULL, oscillate, NULL), 0);
  for (unsigned i = 0; i < 20; i++)
    sched_yield();
  count(true);
  tally_broadcast();
  assert_true(comes_to(true));
  count(false);
  tally_broadcast();
  assert_true(comes_to(false));
  atomic_store(&is_over, true);
  pthread_join(thread, NULL);
}

/* What is picked stands for what went through: within an interval for each class. */
UNIT_TEST(samples_stand_for_all) {
  static const uint64_t intervals[] = {1, 100, 5000, 65536, 524288};
  struct heap *heap = heap_current();
  uint64_t random = UNIT_SEED;
  for (unsigned i = 0; i < sizeof intervals / sizeof *intervals; i++) {
    tally_sample(TALLY_PROFILE, intervals[i]);
    follow();
    assert_int_equal(heap->tally->interval, intervals[i]);
    for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls += 8) {
      uint64_t bytes = 0, estimated = 0, asked = 0;
      for (unsigned block = 0; block < 20000; block++) {
        size_t size = cls ? class_bytes(cls) : HAK_SMALL_MAX + test_random(&random) % HAK_SMALL_MAX;
        lock_take(&heap_pool(heap)->lock);
        uint32_t picks = tally_picks(heap, cls, size);
        if (picks == 0 && cls != 0) { /* as a slow path does */
          tally_popped(heap, cls);
          tally_brought(heap, cls, 1);
        }
        lock_give(&heap_pool(heap)->lock);
        bytes += size;
        estimated += picks * max_size(size, intervals[i]);
        asked += picks;
        assert_true(size < intervals[i] || picks == 1);
      }
      uint64_t error = estimated > bytes ? estimated - bytes : bytes - estimated;
      if (error > intervals[i])
        fail_msg("class %u, one of %llu bytes: %llu bytes look like %llu", cls, (unsigned long long)intervals[i],
                 (unsigned long long)bytes, (unsigned long long)estimated);
      assert_true(asked > 0 || bytes < 2 * intervals[i]);
    }
  }
  tally_sample(TALLY_PROFILE, 0);
  follow();
}

/* A child counts on: its own, and what was counted before. */
static void in_child(void *argument) {
  heaps_counts(before);
  for (unsigned i = 0; i < 1000; i++)
    hak_free(test_opaque(hak_malloc(100)));
  heaps_counts(found);
  CHECK(found[hak_class_of(100)].allocated - before[hak_class_of(100)].allocated == 1000);
}

UNIT_TEST(a_child_counts_on) {
  count_here(true);
  unit_passes_in_child(in_child, NULL);
  count_here(false);
}

/* Also while another thread holds the pool's lock; and it does not wait. */
UNIT_TEST(a_split_heap_pops_without_a_lock) {
  enum { SIZE = 64, COUNT = 400 };
  static void *blocks[COUNT];
  unsigned cls = hak_class_of(SIZE);
  count_here(true);
  struct heap *heap = heap_current();
  for (unsigned round = 0; round < 400; round++) { /* those of other tests shrink, and the bin grows */
    unit_alloc(blocks, COUNT, SIZE);
    unit_free(blocks, COUNT);
  }
  size_t ready = min_size(bin_count(heap, cls), COUNT);
  assert_true(ready >= 96);
  expect_from_here();
  expected[cls].allocated = ready;
  lock_take(&heap_pool(heap)->lock);
  unit_alloc(blocks, ready, SIZE);
  assert_ptr_equal(heap_current(), heap);
  assert_ptr_equal(hak_self, &heap->front);
  lock_give(&heap_pool(heap)->lock);
  expect_counts();
  unit_free(blocks, ready);
  count_here(false);
}

/* The block that was to be a sample, and is none, comes from the bin; the others stay there. */
UNIT_TEST(a_sample_that_cannot_be_had_is_an_ordinary_block) {
  enum { SIZE = 80, COUNT = 40 };
  void *blocks[COUNT];
  unsigned cls = hak_class_of(SIZE);
  count_here(true);
  struct heap *heap = heap_current();
  unit_alloc(blocks, COUNT, SIZE);
  unit_free(blocks, COUNT);
  expect_from_here();
  size_t ready = bin_count(heap, cls);
  uint64_t refilled = heap->counters.refilled_blocks;
  assert_true(ready > 1);
  for (size_t i = 1; i <= ready; i++) {
    tally_set_until(heap, cls, 0);
    blocks[i - 1] = UNIT_GOT(hak_malloc(SIZE));
    assert_int_equal(bin_count(heap, cls), ready - i);
    expected[cls].allocated++;
    expect_counts();
  }
  assert_int_equal(heap->counters.refilled_blocks, refilled);
  unit_free(blocks, ready);
  count_here(false);
}

/* A steady mixture stays in the bins. Picks are random: mostly none is flushed, and 1 % at most where a bin shrinks and
 * grows again. */
UNIT_TEST(a_split_heap_keeps_its_blocks) {
  enum { LIVE_BLOCKS = 400, WARM = 300000, STEPS = 600000 };
  static void *blocks[LIVE_BLOCKS];
  uint64_t random = UNIT_SEED, before = 0;
  count_here(true);
  struct heap *heap = heap_current();
  for (unsigned step = 0; step < WARM + STEPS; step++) {
    if (step == WARM)
      before = heap->counters.flushed_blocks;
    void **place = &blocks[test_random(&random) % LIVE_BLOCKS];
    hak_free(*place);
    *place = hak_malloc(1 + test_random(&random) % 1024);
  }
  uint64_t flushed = heap->counters.flushed_blocks - before;
  unit_free(blocks, LIVE_BLOCKS);
  count_here(false);
  if (flushed > STEPS / 40)
    fail_msg("%llu of %u blocks were flushed", (unsigned long long)flushed, STEPS);
}

UNIT_MAIN((unit_alone(), hak_free(hak_malloc(1))))
