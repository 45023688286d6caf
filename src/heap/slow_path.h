/* slow_path.h: brackets each slow path, and keeps all threads out of them during a fork.
 *
 * Every call that takes a lock, or changes data that a lock guards, runs between slow_path_begin and slow_path_end.
 *   W1  While a thread is in a slow path, hak_self points to hak_heap_none. So a signal handler that interrupts it
 *       finds empty bins. Its calls take the slow path too, where slow_path_begin refuses them. So a slow path may
 *       leave the bins inconsistent between its steps.
 *   W2  Before a fork the gate is shut: slow_path_begin refuses all threads, and gate_shut waits until none is inside.
 *       So at the fork no lock is held and no change is half done. If the wait ends before, the child's gate stays
 *       shut.
 *   W3  A refused call does not wait, because its thread may hold a lock of libc that the forking thread waits for. It
 *       gets memory from threads/spare.h. What it frees is deferred (api/housekeep.c).
 * The gate is a readers' lock with one flag for each reader, in its own heap (a "big reader lock"). It costs one atomic
 * exchange on a cache line that the owner's slow path writes anyway.
 */
#pragma once

#include "heap/heap.h"

enum gate_alive {
  GATE_OF_PARENT, /* reads so in each new child: it is not prepared */
  GATE_ADMITS,
  GATE_PREPARES,
};

extern HAK_HIDDEN struct gate {
  _Atomic uint32_t shut;           /* forks under way; GATE_LOST: for good */
  _Atomic uint32_t sleepers;       /* forks that sleep until no thread is inside */
  _Atomic uint32_t *_Atomic alive; /* enum gate_alive */
  _Alignas(CACHE_LINE) _Atomic uint32_t inside_without_heap;
} gate;
COLD bool gate_child_noticed(void);
COLD void gate_enter_without_heap(void);
COLD void gate_leave_without_heap(void);
COLD void gate_wake_sleeper(void);
static inline bool gate_is_of_parent(void) {
  _Atomic uint32_t *alive = atomic_load_explicit(&gate.alive, memory_order_acquire);
  return atomic_load_explicit(alive, memory_order_acquire) != GATE_ADMITS;
}

static inline bool thread_is_busy(void) { return (hak_thread & THREAD_BUSY) != 0; }

/* Returns the calling thread's heap; NULL if it has none, or is busy. */
static inline struct heap *heap_if_idle(void) {
  uintptr_t thread = hak_thread;
  return LIKELY((thread & THREAD_BUSY) == 0) ? (struct heap *)(thread & ~(uintptr_t)THREAD_FLAGS) : NULL;
}

static inline void slow_path_leave(void) {
  struct heap *heap = heap_current();
  if (LIKELY((hak_thread & THREAD_WITHOUT_HEAP) == 0))
    atomic_store_explicit(&heap->inside, 0, memory_order_release);
  else
    gate_leave_without_heap();
  atomic_signal_fence(memory_order_seq_cst);
  hak_self = heap ? &heap->front : FRONT_OF_NONE;
  atomic_signal_fence(memory_order_seq_cst); /* W1: the bins are consistent before a handler may use them */
  hak_thread &= ~(uintptr_t)(THREAD_BUSY | THREAD_WITHOUT_HEAP);
  HAK_OWNER_STEPPED();
}

/* Call after a slow_path_begin that returned true. A fork whose sleep begins meanwhile may not be woken; it looks again
 * soon. */
static inline void slow_path_end_inlined(void) {
  slow_path_leave();
  if (UNLIKELY(load_relaxed(&gate.sleepers) != 0))
    gate_wake_sleeper();
}

/* Brackets a step that needs no lock. A signal handler's calls are refused during it, but a fork does not wait for it.
 * So what it changes must be consistent after each instruction, or be dropped in the child of a fork. The thread has a
 * heap. The first fence makes the flag one instruction: a handler may give the thread another heap before it. */
static ALWAYS_INLINE void owner_step_begin(void) {
  atomic_signal_fence(memory_order_seq_cst);
  hak_thread |= THREAD_BUSY;
  atomic_signal_fence(memory_order_seq_cst);
}
static inline void owner_step_end(void) {
  atomic_signal_fence(memory_order_seq_cst);
  hak_thread &= ~(uintptr_t)THREAD_BUSY;
  HAK_OWNER_STEPPED();
}

/* Returns false if the thread is in a slow path already (then this is a signal handler), or during a fork, or in a
 * child whose first thread has not prepared it yet. */
static inline bool slow_path_begin_inlined(void) {
  if (UNLIKELY(thread_is_busy()))
    return false;
  if (UNLIKELY(gate_is_of_parent()) && !gate_child_noticed())
    return false;
  owner_step_begin(); /* W1: a handler is refused before the bins change */
  struct heap *heap = heap_current();
  if (UNLIKELY(heap == NULL))
    hak_thread |= THREAD_WITHOUT_HEAP;
  hak_self = FRONT_OF_NONE;
  if (LIKELY(heap != NULL))
    atomic_exchange_explicit(&heap->inside, 1, memory_order_seq_cst);
  else
    gate_enter_without_heap();
  /* This thread sets its flag, then reads the gate. gate_shut shuts the gate, then reads the flags. All four accesses
   * are sequentially consistent, so one of the two sees the other. */
  if (LIKELY(atomic_load_explicit(&gate.shut, memory_order_seq_cst) == 0))
    return true;
  slow_path_leave();
  return false;
}

/* The same, out of line: for calls that are not frequent. */
bool slow_path_begin(void);
void slow_path_end(void);

/* Call in a slow path whose thread gives its heap up: the thread counts as one without a heap until the end. gate_shut
 * checks such threads last, so it meets this one in one place or the other. */
static inline void slow_path_part_from_heap(void) {
  struct heap *heap = heap_current();
  if ((hak_thread & THREAD_WITHOUT_HEAP) == 0) /* else it counts already */
    atomic_fetch_add_explicit(&gate.inside_without_heap, 1, memory_order_seq_cst);
  atomic_store_explicit(&heap->inside, 0, memory_order_seq_cst);
  hak_thread = (hak_thread & THREAD_FLAGS) | THREAD_WITHOUT_HEAP;
}

/* As slow_path_begin for explicit calls of the program (trim, statistics, profiles): waits up to a second for the gate.
 * False in a signal handler that interrupted a slow path, and in a fork handler. */
bool slow_path_begin_patiently(void);

/* Call before a fork: shuts the gate and waits until no other thread is inside. False: one still is. The wait is
 * bounded for two reasons. The caller may fork in a signal handler that interrupted its own slow path, and the thread
 * inside may wait for a lock of that slow path. Or a handler that interrupted the thread inside does not return. */
bool gate_shut(void);
/* Call after the fork, in the parent. */
void gate_open(void);
/* Call first in the child. If no other thread was inside at the fork, it opens the gate and returns true. Otherwise the
 * gate stays shut: data may be half changed, and the child uses spare memory only. If the calling thread is inside (it
 * forked in a signal handler), its next slow path prepares the child. */
bool gate_reset(void);
/* Call when the child is prepared, after a gate_reset that returned true. Until then slow paths are refused. It has no
 * effect in the child of a fork that came in between (in a signal handler): that one is not prepared. */
void gate_admit(void);

/* A slow path calls it when it finds that the fork handlers did not prepare this child (_Fork, the clone system call),
 * or did not finish. Until the library's constructor sets it, it prepares the heaps alone (threads/heap_fork.c). */
extern void (*gate_child_prepare)(void);
/* Tells whether such a call has prepared this child already. */
bool gate_child_is_prepared(void);
