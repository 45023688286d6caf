/* queue: a thread that replaces the oldest block of a large set gets its blocks back in the order in which it freed
 * them; other threads are not taken for one, or not for long; nothing is lost when that begins and ends. */
#include "heap/queue.h"

#include "count/tally.h"
#include "threads/watch.h"
#include "unit.h"

#define LIVE 60000u
#define ROW 1000u
#define ROUNDS 12u
#define NEVER UINT8_MAX /* more than what speaks for a queue can reach */

static unsigned char *set[LIVE];
static uint64_t random_state = UNIT_SEED;

static size_t some_size(void) { return 16 + test_random(&random_state) % 240; }

static void replace(unsigned i) {
  if (set[i] != NULL) {
    assert_int_equal(set[i][0], (unsigned char)i);
    hak_free(set[i]);
  }
  set[i] = hak_malloc(some_size());
  memset(set[i], (int)i, 16);
}

static void replace_in_turn(unsigned rounds) {
  for (unsigned i = 0; i < rounds * LIVE; i++)
    replace(i % LIVE);
}

static int by_value(const void *a, const void *b) {
  uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
  return x < y ? -1 : x > y;
}

/* Returns on how many pages each ROW of blocks in a row lies, added up. */
static unsigned pages_of_rows(void) {
  static uintptr_t pages[ROW];
  unsigned found = 0;
  for (unsigned row = 0; row < LIVE; row += ROW) {
    for (unsigned i = 0; i < ROW; i++)
      pages[i] = (uintptr_t)set[row + i] / 4096;
    qsort(pages, ROW, sizeof *pages, by_value);
    for (unsigned i = 0; i < ROW; i++)
      found += i == 0 || pages[i] != pages[i - 1];
  }
  return found;
}

/* Frees the set, and all that the heap's bins hold. */
static void end_of(struct heap *heap) {
  UNIT_HEAP_VALID(heap);
  for (unsigned i = 0; i < LIVE; i++) {
    hak_free(set[i]);
    set[i] = NULL;
  }
  UNIT_HEAP_VALID(heap);
  heap_flush_all(heap);
  assert_int_equal(heap_pool(heap)->slabs.taken_bytes, 0);
}

static struct heap *queue_heap(void) {
  struct heap *heap = unit_heap_attach();
  for (unsigned round = 0; round < ROUNDS && !heap->is_queue; round++)
    replace_in_turn(1);
  assert_true(heap->is_queue);
  UNIT_HEAP_VALID(heap);
  return heap;
}

static unsigned pages_after(unsigned needed) {
  struct heap *heap = unit_heap_attach();
  heap->queue.needed = (uint8_t)needed;
  replace_in_turn(ROUNDS);
  assert_int_equal(heap->is_queue, needed != NEVER);
  unsigned found = pages_of_rows();
  end_of(heap);
  return found;
}

UNIT_TEST(a_queue_keeps_its_order) {
  unsigned kept = pages_after(0), lost = pages_after(NEVER);
  if (2 * kept > lost)
    fail_msg("rows of a queue lie on %u pages, of a set that is not noticed on %u", kept, lost);
}

#define STIRRED 300u /* blocks that change places: some of each class */

/* Returns how many blocks lie in front of the one before them of the same class. */
static unsigned count_falls(void) {
  const unsigned char *last[HAK_CLASS_COUNT] = {NULL};
  unsigned found = 0;
  for (unsigned i = 0; i < LIVE; i++) {
    unsigned cls = hak_class_of(hak_usable_size(set[i]));
    found += set[i] < last[cls];
    last[cls] = set[i];
  }
  return found;
}

UNIT_TEST(a_queue_gets_its_order_back) {
  struct heap *heap = queue_heap();
  for (unsigned i = 0; i < LIVE; i++) {
    unsigned other = i - i % STIRRED + (unsigned)(test_random(&random_state) % STIRRED);
    unsigned char *block = set[i];
    set[i] = set[other];
    set[other] = block;
    set[i][0] = (unsigned char)i;
    set[other][0] = (unsigned char)other;
  }
  unsigned stirred = count_falls();
  replace_in_turn(4);
  assert_true(heap->is_queue);
  UNIT_HEAP_VALID(heap);
  unsigned left = count_falls();
  if (4 * left > stirred)
    fail_msg("%u blocks lay in front of the one before, and %u still do", stirred, left);
  end_of(heap);
}

/* All of malloc's ways to a bin: the oldest block of the bin comes first. */
UNIT_TEST(malloc_takes_what_was_freed_first) {
  struct heap *heap = queue_heap();
  const unsigned cls = hak_class_of(200);
  void *fresh[8];
  unit_alloc(fresh, 8, 200);
  unit_free(fresh, 8);
  lock_take(&heap_pool(heap)->lock);
  bin_settle(heap, cls); /* at the array's end it would be a stack */
  lock_give(&heap_pool(heap)->lock);
  for (unsigned way = 0; way < 4; way++) {
    void *oldest = *bin_bottom(heap, cls);
    size_t count = bin_count(heap, cls);
    assert_true(count >= 8 - way);
    void *block = way == 0   ? hak_malloc(200)
                  : way == 1 ? hak_calloc(1, 200)
                  : way == 2 ? hak_aligned_alloc(16, 200)
                             : hak_realloc(hak_malloc(40), 200);
    assert_ptr_equal(block, oldest);
    assert_int_equal(bin_count(heap, cls), count - 1);
    fresh[way] = block;
  }
  unit_free(fresh, 4);
  end_of(heap);
}

UNIT_TEST(a_bin_that_is_empty_refills_in_order) {
  struct heap *heap = queue_heap();
  heap_flush_all(heap);
  static void *row[400];
  unit_alloc(row, 400, 300); /* of a class that the set does not use, so of fresh slabs */
  unsigned rises = 0;
  for (unsigned i = 1; i < 400; i++)
    rises += (uintptr_t)row[i] > (uintptr_t)row[i - 1];
  assert_true(rises >= 300); /* the last ones of a bin come from its other end */
  assert_false(queue_is_stack(&heap->front.bins[hak_class_of(300)])); /* it has grown meanwhile */
  unit_free(row, 400);
  assert_true(heap->is_queue);
  end_of(heap);
}

UNIT_TEST(blocks_in_any_order_are_no_queue) {
  struct heap *heap = unit_heap_attach();
  replace_in_turn(1);
  for (unsigned i = 0; i < ROUNDS * LIVE; i++)
    replace((unsigned)(test_random(&random_state) % LIVE));
  assert_false(heap->is_queue);
  end_of(heap);
}

UNIT_TEST(a_queue_ends_when_its_blocks_are_in_no_order) {
  struct heap *heap = queue_heap();
  for (unsigned i = 0; i < 8 * ROUNDS * LIVE && heap->is_queue; i++)
    replace((unsigned)(test_random(&random_state) % LIVE));
  assert_false(heap->is_queue);
  end_of(heap);
}

/* In order, too, but a queue only for moments. */
UNIT_TEST(sets_that_are_built_and_dropped_are_soon_no_queues) {
  struct heap *heap = unit_heap_attach();
  unsigned begins = 0;
  for (unsigned round = 0; round < 40; round++) {
    bool was_queue = heap->is_queue;
    for (unsigned i = 0; i < LIVE; i++)
      replace(i);
    for (unsigned i = 0; i < LIVE; i++) {
      hak_free(set[i]);
      set[i] = NULL;
      begins += heap->is_queue && !was_queue;
      was_queue = heap->is_queue;
    }
    assert_true(round < 20 || !heap->is_queue);
  }
  assert_true(begins <= 8);
  end_of(heap);
}

UNIT_TEST(counting_ends_a_queue) {
  struct heap *heap = queue_heap();
  option_set(OPTION_COUNTING, "on");
  tally_apply();
  replace_in_turn(1);
  assert_true(!heap->is_queue && heap_is_counted(heap));
  struct class_counts before[HAK_CLASS_COUNT], after[HAK_CLASS_COUNT];
  heaps_counts(before);
  replace_in_turn(2);
  heaps_counts(after);
  uint64_t allocated = 0, freed = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    allocated += after[cls].allocated - before[cls].allocated;
    freed += after[cls].freed - before[cls].freed;
  }
  assert_int_equal(allocated, 2 * LIVE);
  assert_int_equal(freed, 2 * LIVE);
  option_set(OPTION_COUNTING, "off");
  tally_apply();
  replace_in_turn(3);
  assert_false(heap_is_counted(heap));
  end_of(heap);
}

static size_t lost_bytes; /* of blocks that the owner had in its hands */

static void *work_and_end(void *ends_in_malloc) {
  struct heap *heap = queue_heap();
  for (unsigned cls = 1; ends_in_malloc != NULL && cls < HAK_CLASS_COUNT; cls++)
    if (bin_count(heap, cls) > 0) {
      *bin_bottom(heap, cls) = NULL;
      lost_bytes += class_bytes(cls);
    }
  return heap;
}

/* The set is freed by this thread. */
static void assert_swept(struct heap *heap) {
  heaps_sweep_all(false);
  assert_false(heap_is_owned(heap->id));
  assert_int_equal(bins_content(heap).bytes, 0);
  UNIT_HEAP_VALID(heap);
  unit_free(set, LIVE);
  memset(set, 0, sizeof set);
  heap_flush_all(heap_current());
  assert_int_equal(heap_pool(heap)->slabs.taken_bytes, lost_bytes);
}

UNIT_TEST(the_heap_of_a_dead_queue_is_swept) {
  unit_needs_ends();
  unit_heap_attach();
  lost_bytes = 0;
  assert_swept(test_thread_run(work_and_end, NULL));
}

/* As if its last instruction was in the middle of queue_take_oldest. */
UNIT_TEST(the_heap_of_a_queue_that_ended_in_malloc_is_swept) {
  unit_needs_ends();
  unit_heap_attach();
  lost_bytes = 0;
  struct heap *heap = test_thread_run(work_and_end, set);
  assert_true(lost_bytes > 0);
  assert_swept(heap);
}

#define SIZE_ADOPTED 200u

static void *work_and_end_with_blocks(void *unused) {
  (void)unused;
  struct heap *heap = queue_heap();
  const unsigned cls = hak_class_of(SIZE_ADOPTED);
  static void *fresh[8];
  unit_alloc(fresh, 8, SIZE_ADOPTED);
  unit_free(fresh, 8);
  lock_take(&heap_pool(heap)->lock);
  bin_settle(heap, cls); /* at the array's end it would be a stack */
  lock_give(&heap_pool(heap)->lock);
  assert_false(queue_is_stack(&heap->front.bins[cls]));
  assert_true(bin_count(heap, cls) >= 8);
  *bin_bottom(heap, cls) = NULL;
  lost_bytes = class_bytes(cls);
  return heap;
}

/* Its first malloc finds the NULL before the blocks, which must stay in the bin. */
static void *adopt(void *dead) {
  void *block = hak_malloc(SIZE_ADOPTED);
  struct heap *heap = heap_current();
  assert_ptr_equal(heap, dead);
  assert_true(bin_count(heap, hak_class_of(SIZE_ADOPTED)) >= 6);
  UNIT_HEAP_VALID(heap);
  hak_free(block);
  return heap;
}

UNIT_TEST(the_heap_of_a_queue_that_ended_in_malloc_is_adopted) {
  unit_needs_ends();
  unit_heap_attach();
  struct heap *dead = test_thread_run(work_and_end_with_blocks, NULL);
  assert_swept(test_thread_run(adopt, dead));
}

UNIT_MAIN((void)0)
