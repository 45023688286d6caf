#include "heap/slow_path.h"

#include "heap/ids.h"
#include "os/os.h"

#define SPINS 200u         /* checks of the flags before the thread sleeps between checks */
#define LOOK_MS 1u         /* sleep between two checks */
#define WAIT_MS 10000u     /* covers the longest slow path: a trim of a huge heap */
#define WAIT_SELF_MS 20u   /* if the threads inside may wait for a lock of this thread */
#define PATIENCE_MS 1000u  /* of slow_path_begin_patiently */
#define GATE_LOST 0x10000u /* more than the forks at any time */

static _Atomic uint32_t unwatched = GATE_ADMITS; /* stands for a word in memory that a child finds zeroed */

struct gate gate = {.alive = &unwatched};
static _Atomic uint32_t lost_without_heap; /* threads without a heap that are inside for good */

static bool gate_is_watched(void) { return load_relaxed(&gate.alive) != &unwatched; }

static bool is_inside(const struct heap *heap) {
  return atomic_load_explicit(&heap->inside, memory_order_seq_cst) != 0;
}
static bool is_lost(const struct heap *heap) { return load_relaxed(&heap->lost); }

/* Tells whether the calling thread entered its slow path by this heap. */
static bool is_of_self(const struct heap *heap) {
  const struct heap *self = heap_current();
  return heap == self || (self != NULL && heap == self->entered);
}

static uint32_t own_share(void) { return (hak_thread & THREAD_WITHOUT_HEAP) != 0; }

/* Tells whether another thread is inside; with_lost false: except those that were given up. *id: the first heap to
 * check. It moves past heaps that were found outside, because no thread enters once the gate is shut. */
COLD static bool others_are_inside(uint32_t *id, bool with_lost) {
  for (struct heap *heap; (heap = heap_from(*id, true)) != NULL; *id = heap->id + 1) {
    if (!is_of_self(heap) && is_inside(heap) && (with_lost || !is_lost(heap)))
      return true;
    if (UNLIKELY(is_lost(heap)) && !is_inside(heap)) /* it left its slow path after all */
      store_relaxed(&heap->lost, false);
  }
  uint32_t inside = atomic_load_explicit(&gate.inside_without_heap, memory_order_seq_cst);
  uint32_t lost = load_relaxed(&lost_without_heap);
  if (UNLIKELY(lost > inside - own_share()))
    store_relaxed(&lost_without_heap, lost = inside - own_share());
  return inside > own_share() + (with_lost ? 0 : lost);
}

/* Marks the threads whose end could not be awaited. Later forks do not wait for them while they stay inside. */
static void give_up(uint32_t id) {
  for (struct heap *heap; (heap = heap_from(id, true)) != NULL; id = heap->id + 1)
    if (!is_of_self(heap) && is_inside(heap))
      store_relaxed(&heap->lost, true);
  store_relaxed(&lost_without_heap, load_relaxed(&gate.inside_without_heap) - own_share());
}

COLD void gate_wake_sleeper(void) { os_futex_wake(&gate.shut); }

bool gate_shut(void) {
  hak_thread |= THREAD_FORKS;
  if (atomic_fetch_add_explicit(&gate.shut, 1, memory_order_seq_cst) >= GATE_LOST)
    return false;
  bool interrupts = thread_is_busy();
  uint64_t until_ms = os_milliseconds() + (interrupts ? WAIT_SELF_MS : WAIT_MS);
  uint32_t id = 1;
  for (unsigned looks = 0; others_are_inside(&id, false); looks++) {
    if (looks < SPINS) {
      os_spin_hint();
    } else if (os_milliseconds() < until_ms) {
      atomic_fetch_add_explicit(&gate.sleepers, 1, memory_order_seq_cst);
      if (others_are_inside(&id, false))
        os_futex_wait_for(&gate.shut, load_relaxed(&gate.shut), LOOK_MS);
      atomic_fetch_sub_explicit(&gate.sleepers, 1, memory_order_relaxed);
    } else {
      if (!interrupts)
        give_up(id);
      return false;
    }
  }
  hak_thread |= THREAD_FORKS_ALONE;
  return true;
}

COLD void gate_open(void) {
  hak_thread &= ~(uintptr_t)(THREAD_FORKS | THREAD_FORKS_ALONE);
  /* No fork is under way in the child of a handler's fork that interrupted this fork. */
  for (uint32_t shut = load_relaxed(&gate.shut); shut % GATE_LOST != 0;)
    if (atomic_compare_exchange_weak_explicit(&gate.shut, &shut, shut - 1, memory_order_release, memory_order_relaxed))
      break;
}

/* A refused thread sets its flag for a moment, and the child may have a copy of that. So if gate_shut was called before
 * the fork, its result decides. */
COLD bool gate_reset(void) {
  uint32_t id = 1;
  bool is_whole =
      load_relaxed(&gate.shut) < GATE_LOST && ((hak_thread & THREAD_FORKS_ALONE) != 0 || !others_are_inside(&id, true));
  hak_thread &= ~(uintptr_t)(THREAD_FORKS | THREAD_FORKS_ALONE);
  store_relaxed(&gate.inside_without_heap, own_share());
  store_relaxed(&gate.sleepers, 0);
  enum gate_alive alive = thread_is_busy() ? GATE_OF_PARENT : is_whole ? GATE_PREPARES : GATE_ADMITS;
  store_relaxed(load_relaxed(&gate.alive), alive);
  atomic_store_explicit(&gate.shut, is_whole ? 0 : GATE_LOST, memory_order_release);
  return is_whole;
}

COLD void gate_admit(void) {
  uint32_t prepares = GATE_PREPARES;
  atomic_compare_exchange_strong_explicit(load_relaxed(&gate.alive), &prepares, GATE_ADMITS, memory_order_release,
                                          memory_order_relaxed);
}

NOINLINE bool slow_path_begin(void) { return slow_path_begin_inlined(); }
NOINLINE void slow_path_end(void) { slow_path_end_inlined(); }

bool slow_path_begin_patiently(void) {
  uint64_t until_ms = os_milliseconds() + PATIENCE_MS;
  while (!slow_path_begin()) {
    uint32_t shut = load_relaxed(&gate.shut);
    if ((hak_thread & (THREAD_BUSY | THREAD_FORKS)) != 0 || shut >= GATE_LOST || os_milliseconds() > until_ms)
      return false;
    if (shut != 0 || gate_is_of_parent())
      os_futex_wait_for(&gate.shut, shut, LOOK_MS);
  }
  return true;
}

/* --- children that fork's handlers did not prepare --- */

/* An emulator may ignore MADV_WIPEONFORK, so the word alone proves nothing. gate_reset also leaves the gate open or
 * lost. */
COLD bool gate_child_is_prepared(void) {
  return gate_is_watched() && !gate_is_of_parent() && load_relaxed(&gate.shut) % GATE_LOST == 0;
}

/* The child's first thread is the one that forked. Under a filter the kernel must not be asked; but a thread that was
 * made in the child has no heap before it has come here. */
static bool is_forker(void) {
  int process_id = os_process_id();
  return process_id != 0 ? process_id == os_thread_id() : heap_current() != NULL || heap_count() == 0;
}

/* Only the thread that forked knows which heap it uses, and so which ones have no owner any more. False: another thread
 * calls. A signal handler may fork during the preparation, and its child is back here then: it is prepared next. */
COLD bool gate_child_noticed(void) {
  if (!is_forker())
    return false;
  do
    gate_child_prepare();
  while (gate_is_of_parent());
  return true;
}

/* Each thread that enters without a heap comes here, and so does the background thread. From the second thread on, a
 * child may lack a thread. */
static void watch_begin(void) {
  _Atomic uint32_t *none = &unwatched, *word = os_map_for_this_process(os_page_bytes());
  if (word == NULL) /* such a child will not be noticed */
    return;
  store_relaxed(word, GATE_ADMITS);
  if (!atomic_compare_exchange_strong_explicit(&gate.alive, &none, word, memory_order_release, memory_order_relaxed))
    os_unmap(word, os_page_bytes());
}

COLD void gate_enter_without_heap(void) {
  if (heap_count() > 0 && !gate_is_watched())
    watch_begin();
  atomic_fetch_add_explicit(&gate.inside_without_heap, 1, memory_order_seq_cst);
}

/* The heap that the thread got meanwhile counts, too, so that nobody uses it if the thread ends inside. */
COLD void gate_leave_without_heap(void) {
  struct heap *heap = heap_current();
  if (heap != NULL)
    atomic_store_explicit(&heap->inside, 0, memory_order_release);
  atomic_fetch_sub_explicit(&gate.inside_without_heap, 1, memory_order_release);
}
