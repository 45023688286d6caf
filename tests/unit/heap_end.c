/* heap_end: hak_heap_destroy waits for whoever is at the heap's memory without a call of the program: a thread that
 * does deferred frees and holds the link to one of its blocks, a purge of its holes, the holder of its lock. The other
 * thread stops in a wrapped function until the destroying one yields.
 *
 * Positive controls: with `hasty` the end does not wait for deferred frees, with `torn` it does not see the purge. The
 * test must fail then.
 */
#include "threads/private.h"
#include "threads/watch.h"
#include "unit.h"

#include "api/alloc.h"
#include "os/filter.h"

#define BLOCKS 4000u
#define BYTES 1000u

enum stage { IDLE, ARMED, STOPPED, RELEASED, DONE };

static _Atomic enum stage stage; /* of the other thread */
static _Atomic unsigned yields;
static __thread bool is_other;
static struct pool *pool; /* of the heap that ends */
static uint64_t life;
static void *blocks[BLOCKS];

static void wait_for(enum stage wanted) {
  while (atomic_load(&stage) < wanted)
    usleep(100);
}

/* The other thread comes here with something of the heap in its hands. */
static void stop_once(void) {
  enum stage armed = ARMED;
  if (is_other && atomic_compare_exchange_strong(&stage, &armed, STOPPED))
    wait_for(RELEASED);
}

TEST_WRAP(void, block_deliver, void *block, uint32_t entry) {
  stop_once();
  __real_block_deliver(block, entry);
}

TEST_WRAP(bool, deferred_finish, void) { return unit_lies("hasty") || __real_deferred_finish(); }

static _Atomic uint64_t now_ms = 1000;
static bool stays_away; /* the other thread does not come back while this one waits */
TEST_WRAP(uint64_t, os_milliseconds, void) { return atomic_load(&now_ms); }

/* The end waits: nothing has ended yet. */
TEST_WRAP(void, os_yield, void) {
  enum stage stopped = STOPPED;
  if (!is_other) {
    assert_true(pool_life(pool) == life);
    atomic_fetch_add(&yields, 1);
    atomic_fetch_add(&now_ms, stays_away);
    if (atomic_load(&now_ms) > 1000000)
      fail_msg("a wait for ever");
    if (!stays_away)
      atomic_compare_exchange_strong(&stage, &stopped, RELEASED);
  }
  __real_os_yield();
}

static _Atomic unsigned calls; /* of sched_yield, for which a filter may kill */
TEST_WRAP(int, sched_yield, void) {
  atomic_fetch_add(&calls, 1);
  return __real_sched_yield();
}

static enum { NOBODY, FOR_EVER, FOR_A_SLEEP } holds_lock; /* this thread itself */

static bool locks_in_purge; /* another thread takes the lock during the purge, and stays away */

static bool locks_now(void) {
  bool locks = locks_in_purge && pool->is_purging;
  locks_in_purge &= !locks;
  return locks;
}

static bool ends_in_purge, round_is_left; /* a thread ends while it does a round */

TEST_WRAP(bool, os_purge, void *address, size_t size) {
  if (ends_in_purge) {
    ends_in_purge = false;
    round_is_left = true;
    pthread_exit(NULL);
  }
  if (entry_pool_id(map_entry(blocks[0])) == pool->id && pool->is_purging)
    stop_once();
  if (locks_now()) {
    assert_true(lock_try(&pool->lock));
    holds_lock = FOR_EVER;
  }
  return __real_os_purge(address, size);
}

TEST_WRAP(void, os_futex_wait_for, _Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  if (round_is_left) {
    CHECK_SAY(timeout_ms != UINT64_MAX, "a wait for ever");
    atomic_fetch_add(&now_ms, timeout_ms);
    return;
  }
  if (holds_lock == NOBODY || word != &pool->lock.word) {
    __real_os_futex_wait_for(word, expected, timeout_ms);
    return;
  }
  assert_true(pool_life(pool) == life);
  atomic_fetch_add(&yields, 1);
  if (holds_lock == FOR_A_SLEEP)
    lock_give(&pool->lock);
  else if (timeout_ms != UINT64_MAX)
    atomic_fetch_add(&now_ms, timeout_ms);
  else
    fail_msg("a wait for ever");
}

static bool is_gone; /* another thread has freed the object that leaves its heap now, and it lives elsewhere */
TEST_WRAP(bool, private_object_remove, void *object, struct pool **from) {
  bool was_gone = is_gone;
  is_gone = false;
  *from = NULL;
  return was_gone || __real_private_object_remove(object, from);
}

static hak_heap *heap_make(void) {
  hak_heap *heap = UNIT_GOT(hak_heap_new(0));
  pool = private_pool(heap);
  life = pool_life(pool);
  for (unsigned i = 0; i < BLOCKS; i++)
    blocks[i] = UNIT_GOT(hak_heap_malloc(heap, BYTES));
  atomic_store(&yields, 0);
  return heap;
}

static void *other_runs(void *work) {
  is_other = true;
  ((void (*)(void))(uintptr_t)work)();
  atomic_store(&stage, DONE);
  return NULL;
}

/* Destroys the heap while the other thread is stopped within `work`. */
static void end_beside(hak_heap *heap, void (*work)(void)) {
  pthread_t thread;
  atomic_store(&stage, ARMED);
  assert_int_equal(pthread_create(&thread, NULL, other_runs, (void *)(uintptr_t)work), 0);
  wait_for(STOPPED);
  assert_int_equal(atomic_load(&stage), STOPPED); /* else it met nothing of the heap */
  if (unit_lies("torn"))
    pool->is_purging = false;
  assert_int_equal(hak_heap_destroy(heap), 0);
  assert_true(atomic_load(&yields) > 0);
  assert_true(atomic_load(&stage) >= RELEASED);
  assert_true(pool_life(pool) == life + 1);
  assert_int_equal(pool->slabs.slab_bytes, 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(pool->slabs.slab_bytes, 0);
}

static void work_off(void) { assert_non_null(hak_heap_new(0)); }

static hak_heap *heap_with_deferred_frees(void) {
  hak_heap *heap = heap_make();
  for (unsigned i = 0; i < BLOCKS; i++)
    free_later(blocks[i], map_entry(blocks[i]));
  return heap;
}

static void end_beside_deferred_frees(void) {
  end_beside(heap_with_deferred_frees(), work_off);
  assert_false(deferred_waits());
}

UNIT_TEST(a_thread_at_deferred_frees_is_waited_for) { end_beside_deferred_frees(); }

/* An end that does not wait leaves the other thread stopped: what comes after would wait for it. */
static void skip_in_controls(void) { unit_skip_if(*unit_word != 0, "the other thread is still stopped"); }

/* The other thread stops within `work`, and stays away. */
static void assert_no_end_beside(hak_heap *(*make)(void), void (*work)(void)) {
  pthread_t thread;
  skip_in_controls();
  hak_heap *heap = make();
  atomic_store(&stage, ARMED);
  assert_int_equal(pthread_create(&thread, NULL, other_runs, (void *)(uintptr_t)work), 0);
  wait_for(STOPPED);
  stays_away = true;
  assert_int_equal(hak_heap_destroy(heap), EBUSY);
  assert_true(pool_life(pool) == life);
  stays_away = false;
  atomic_store(&stage, RELEASED);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(hak_heap_destroy(heap), 0);
}

UNIT_TEST(a_thread_at_deferred_frees_is_not_waited_for_for_ever) {
  assert_no_end_beside(heap_with_deferred_frees, work_off);
}

UNIT_TEST(under_a_filter_the_wait_makes_no_call_of_its_own) {
  assert_true(os_filter_comes());
  atomic_store(&calls, 0);
  end_beside_deferred_frees();
  assert_int_equal(atomic_load(&calls), 0);
  os_filter_refused();
}

static void trim(void) { hak_trim(0); }

/* Its slabs have holes. */
static hak_heap *heap_with_holes(void) {
  hak_heap *heap = heap_make();
  for (unsigned i = 0; i < BLOCKS; i++)
    if (i % 64 != 0)
      hak_heap_free(heap, blocks[i]);
  hak_heap_trim(heap); /* its bins are empty, and the purge of what is free is not the other thread's yet */
  for (unsigned i = 0; i < BLOCKS; i += 128)
    hak_heap_free(heap, blocks[i]);
  blocks[0] = blocks[64];
  return heap;
}

UNIT_TEST(a_purge_of_holes_is_waited_for) { end_beside(heap_with_holes(), trim); }
UNIT_TEST(a_purge_of_holes_is_not_waited_for_for_ever) { assert_no_end_beside(heap_with_holes, trim); }

/* Its slabs come back into their lists when the lock is free again. */
UNIT_TEST(a_purge_of_holes_does_not_wait_for_the_lock_for_ever) {
  skip_in_controls();
  hak_heap *heap = heap_with_holes();
  locks_in_purge = true;
  trim();
  assert_false(locks_in_purge);
  assert_true(pool->is_purging);
  trim(); /* nor does the next one */
  assert_int_equal(hak_heap_destroy(heap), EBUSY);
  lock_give(&pool->lock);
  holds_lock = NOBODY;
  trim();
  assert_false(pool->is_purging);
  assert_int_equal(hak_heap_destroy(heap), 0);
  assert_int_equal(pool->slabs.slab_bytes, 0);
}

/* The object stays in the heap's list. */
UNIT_TEST(the_free_of_a_large_object_does_not_wait_for_ever) {
  hak_heap *heap = heap_make();
  char *object = UNIT_GOT(hak_heap_malloc(heap, 1 << 20));
  assert_true(lock_try(&pool->lock));
  holds_lock = FOR_EVER;
  hak_free(object);
  lock_give(&pool->lock);
  holds_lock = NOBODY;
  assert_int_equal(pool->object_count, 1);
  assert_int_equal(hak_heap_destroy(heap), 0);
  assert_int_equal(pool->object_count, 0);
}

UNIT_TEST(what_a_resize_reserves_is_given_back) {
  hak_heap *heap = heap_make();
  char *object = UNIT_GOT(hak_heap_malloc(heap, 1 << 20));
  is_gone = true;
  object = UNIT_GOT(hak_realloc(object, 3 << 20)); /* a copy */
  assert_false(is_gone);
  assert_int_equal(pool->slabs.other_bytes, hak_usable_size(object));
  hak_free(object);
  assert_int_equal(pool->slabs.other_bytes, 0);
  assert_int_equal(hak_heap_destroy(heap), 0);
}

/* Its figures are there. */
UNIT_TEST(observers_do_not_wait_for_the_lock_for_ever) {
  static struct class_figures classes[HAK_CLASS_COUNT];
  static struct class_counts counts[HAK_CLASS_COUNT];
  struct pool_figures figures;
  struct heap_figures of_heap;
  hak_heap *heap = heap_make();
  struct heap *attached = pool->attached;
  assert_true(lock_try(&pool->lock));
  holds_lock = FOR_EVER;
  pool_figures(pool, &figures);
  assert_true(figures.taken_bytes >= BLOCKS * BYTES);
  heap_figures(attached, &of_heap);
  assert_int_equal(of_heap.pool_id, pool->id);
  uint64_t waited_ms = atomic_load(&now_ms);
  pools_classes(classes);
  assert_true(classes[hak_class_of(BYTES)].taken_blocks >= BLOCKS);
  heaps_counts(counts);
  heaps_split_ask();
  assert_true(atomic_load(&now_ms) < waited_ms + 1000); /* not a second each time */
  assert_null(pool_shared_take(pool, 1));
  pool_shared_give(pool, 1, blocks[0]);
  heap_follow_at_once(attached);
  bins_prewarm(attached);
  assert_true(pool_is_stuck(pool));
  lock_give(&pool->lock);
  holds_lock = NOBODY;
  pool_figures(pool, &figures);
  assert_false(lock_is_held(&pool->lock));
  assert_int_equal(hak_heap_destroy(heap), 0);
}

UNIT_TEST(a_heap_that_does_not_end_stays_the_default) {
  hak_heap *heap = heap_make(), *before = NULL;
  assert_int_equal(hak_heap_set_default(heap, NULL), 0);
  assert_true(lock_try(&pool->lock));
  holds_lock = FOR_EVER;
  assert_int_equal(hak_heap_destroy(heap), EBUSY);
  lock_give(&pool->lock);
  holds_lock = NOBODY;
  assert_int_equal(hak_heap_set_default(NULL, &before), 0);
  assert_ptr_equal(before, heap);
  assert_int_equal(hak_heap_destroy(heap), 0);
}

UNIT_TEST(the_lock_is_waited_for_but_not_for_ever) {
  hak_heap *heap = heap_make();
  assert_true(lock_try(&pool->lock));
  holds_lock = FOR_EVER;
  assert_int_equal(hak_heap_destroy(heap), EBUSY);
  assert_true(atomic_load(&yields) > 0);
  assert_true(pool_life(pool) == life); /* nothing happened */
  holds_lock = FOR_A_SLEEP;
  atomic_store(&yields, 0);
  assert_int_equal(hak_heap_destroy(heap), 0);
  assert_int_equal(atomic_load(&yields), 1);
  assert_true(pool_life(pool) == life + 1);
}

static void *trim_and_end(void *unused) {
  hak_trim(0);
  return unused;
}

UNIT_TEST_IN_CHILD(a_round_whose_thread_has_ended_is_not_waited_for_for_ever) {
  hak_free(CHECK_GOT(hak_malloc(1 << 20)));
  ends_in_purge = true;
  test_thread_run(trim_and_end, NULL);
  CHECK(round_is_left);
  CHECK(hak_trim(0) == 0);
  CHECK(hak_malloc((size_t)1 << 46) == NULL);
  hak_heap *heap = CHECK_GOT(hak_heap_new(0));
  hak_free(CHECK_GOT(hak_heap_malloc(heap, BYTES)));
  CHECK(hak_heap_trim(heap) == 0);
  CHECK(hak_heap_destroy(heap) == 0);
}

UNIT_MAIN(unit_alone())
