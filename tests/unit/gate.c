/* The gate before forks: who is waited for, for how long, and what the child believes. One thread plays all of them,
 * under a clock that moves while a fork sleeps. Control `deaf`: nobody comes out of a slow path. The test must fail
 * then. */
#include "unit.h"

static uint64_t now_ms = 1000;
static unsigned sleeps, wakes;
static struct heap *forker, *other;
static void (*while_asleep)(void);

/* Who only asks for the time does not wait for ever. */
TEST_WRAP(uint64_t, os_milliseconds, void) {
  static unsigned asks;
  now_ms += ++asks % 100000 == 0;
  return now_ms;
}

TEST_WRAP(void, os_futex_wait_for, _Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  assert_int_equal(atomic_load(word), expected);
  sleeps++;
  now_ms += timeout_ms;
  uintptr_t thread = hak_thread;
  if (while_asleep)
    while_asleep();
  hak_thread = thread;
  hak_self = &forker->front;
}

TEST_WRAP(void, os_futex_wake, _Atomic uint32_t *word) {
  assert_ptr_equal(word, &gate.shut);
  wakes++;
}

static void become(struct heap *heap) {
  hak_thread = (uintptr_t)heap;
  hak_self = &heap->front;
}

static void other_enters(void) {
  become(other);
  assert_true(slow_path_begin());
  become(forker);
}

static void other_leaves(void) {
  if (unit_lies("deaf"))
    return;
  hak_thread = (uintptr_t)other | THREAD_BUSY;
  slow_path_end();
  while_asleep = NULL;
}

/* A fork sleeps soon, so that a thread of lower priority comes to its end; that wakes it. */
UNIT_TEST(a_fork_sleeps_until_the_last_is_out) {
  other_enters();
  sleeps = wakes = 0;
  while_asleep = other_leaves;
  assert_true(gate_shut());
  assert_int_equal(sleeps, 1);
  assert_int_equal(wakes, 1);
  become(other);
  assert_false(slow_path_begin()); /* refused, which wakes nobody */
  assert_int_equal(wakes, 1);
  become(forker);
  gate_open();
  assert_true(slow_path_begin());
  slow_path_end();
  assert_int_equal(wakes, 1);
}

/* Of a refused thread the child may have a copy that says it is inside, for a moment. */
UNIT_TEST(a_passing_flag_loses_no_child) {
  assert_true(gate_shut());
  atomic_store(&other->inside, 1);
  assert_true(gate_reset());
  atomic_store(&other->inside, 0);
  gate_admit();
  assert_true(slow_path_begin());
  slow_path_end();
}

/* A signal handler may fork while a child is prepared. Its child goes on with that, but has threads less of its own. */
UNIT_TEST(the_child_of_a_preparation_is_not_admitted) {
  assert_true(gate_shut());
  assert_true(gate_reset());
  assert_true(gate_is_of_parent());
  atomic_store(gate.alive, GATE_OF_PARENT);
  gate_admit();
  assert_true(gate_is_of_parent());
  assert_true(gate_reset());
  gate_admit();
  assert_false(gate_is_of_parent());
}

static void leave_without_heap(void) {
  atomic_fetch_sub(&gate.inside_without_heap, 1);
  while_asleep = NULL;
}

/* A thread without a heap that stays inside is waited for once, and no other fork waits for it. */
UNIT_TEST(who_stays_is_waited_for_once) {
  atomic_fetch_add(&gate.inside_without_heap, 1);
  uint64_t before_ms = now_ms;
  assert_false(gate_shut());
  assert_true(now_ms - before_ms >= 10000);
  gate_open();
  sleeps = 0;
  assert_true(gate_shut());
  assert_int_equal(sleeps, 0);
  gate_open();
  leave_without_heap(); /* it came out after all: the next one counts again */
  assert_true(gate_shut());
  gate_open();
  atomic_fetch_add(&gate.inside_without_heap, 1);
  while_asleep = leave_without_heap;
  before_ms = now_ms;
  sleeps = 0;
  assert_true(gate_shut());
  assert_int_equal(sleeps, 1);
  gate_open();
}

/* It waited in vain for the lock of its first pool, in its first slow path. */
UNIT_TEST(who_gives_its_first_heap_up_counts_once) {
  hak_thread = 0;
  assert_true(slow_path_begin());
  struct heap *heap = heap_attach();
  slow_path_part_from_heap();
  assert_int_equal(gate.inside_without_heap, 1);
  slow_path_end();
  assert_int_equal(gate.inside_without_heap, 0);
  assert_int_equal(heap->inside, 0);
  lifeline_drop(&heap->lifeline);
  become(forker);
}

static void *wait_in_child(void *unused) { return slow_path_begin_patiently() ? &forker : unused; }

/* In an unprepared child another thread waits for the one that forked. It sleeps meanwhile. */
UNIT_TEST(who_waits_for_the_forker_sleeps) {
  pthread_t thread;
  void *entered;
  atomic_store(gate.alive, GATE_OF_PARENT);
  sleeps = 0;
  assert_int_equal(pthread_create(&thread, NULL, wait_in_child, NULL), 0);
  assert_int_equal(pthread_join(thread, &entered), 0);
  assert_null(entered);
  assert_in_range(sleeps, 900, 1100);
  atomic_store(gate.alive, GATE_ADMITS);
}

static void begin(void) {
  unit_alone();
  other = unit_heap_attach();
  forker = unit_heap_attach();
  unit_heap_become(forker);
}

UNIT_MAIN(begin())
