/* slow_path.h: who is inside the allocator, and how a fork keeps everybody out.
 *
 * Every call that takes a lock or changes what locks guard runs between slow_path_begin and slow_path_end.
 *   W1  While a thread is in a slow path, hak_self points to hak_heap_none. So a signal handler that interrupts it finds
 *       no bins: its calls take the slow path too, where slow_path_begin refuses them. No step of a slow path has to
 *       keep the bins whole for a handler.
 *   W2  Before a fork the gate is shut: slow_path_begin refuses everybody, and gate_shut waits until nobody is inside. At
 *       the fork no lock is held and nothing is half done, so the child needs no lock of the parent's threads.
 *   W3  A refused call waits for nothing: its thread may hold a lock of libc that the forking thread waits for. It gets
 *       memory from heap/spare.h, and what it frees is put off (heap/deferred.h).
 * The gate is a lock of many readers with a flag for each in its own heap (a "big reader lock"): one atomic exchange on a
 * line that the owner's slow path writes anyway.
 */
#ifndef HAK_HEAP_SLOW_PATH_H
#define HAK_HEAP_SLOW_PATH_H

#include "heap/heap.h"

extern struct gate {
  _Atomic uint32_t shut;                 /* forks under way; GATE_LOST: for good */
  const _Atomic uint32_t *_Atomic alive; /* reads 0 in a child that fork's handlers did not prepare */
  _Alignas(CACHE_LINE) _Atomic uint32_t inside_without_heap;
} gate;
COLD void gate_child_noticed(void);
COLD void gate_enter_without_heap(void);
static inline bool gate_is_of_parent(void) {
  const _Atomic uint32_t *alive = atomic_load_explicit(&gate.alive, memory_order_acquire);
  return atomic_load_explicit(alive, memory_order_relaxed) == 0;
}

static inline bool thread_is_busy(void) { return (hak_thread & THREAD_BUSY) != 0; }

/* The counterpart of slow_path_begin, if that said true. */
static inline void slow_path_end(void) {
  struct heap *heap = heap_current();
  if (LIKELY((hak_thread & THREAD_WITHOUT_HEAP) == 0))
    atomic_store_explicit(&heap->inside, 0, memory_order_release);
  else
    atomic_fetch_sub_explicit(&gate.inside_without_heap, 1, memory_order_release);
  atomic_signal_fence(memory_order_seq_cst);
  hak_self = heap ? &heap->front : (struct hak_front *)(uintptr_t)&hak_heap_none;
  atomic_signal_fence(memory_order_seq_cst); /* W1: the bins are whole again before a handler is let in */
  hak_thread &= ~(uintptr_t)(THREAD_BUSY | THREAD_WITHOUT_HEAP);
  HAK_OWNER_STEPPED();
}

/* False: the thread is in a slow path already, so this is a signal handler; or a fork is under way. */
static inline bool slow_path_begin(void) {
  if (UNLIKELY(thread_is_busy()))
    return false;
  if (UNLIKELY(gate_is_of_parent()))
    gate_child_noticed();
  struct heap *heap = heap_current();
  hak_thread |= heap ? THREAD_BUSY : THREAD_BUSY | THREAD_WITHOUT_HEAP;
  atomic_signal_fence(memory_order_seq_cst); /* W1: a handler is refused before the bins change */
  hak_self = (struct hak_front *)(uintptr_t)&hak_heap_none;
  if (LIKELY(heap != NULL))
    atomic_exchange_explicit(&heap->inside, 1, memory_order_seq_cst);
  else
    gate_enter_without_heap();
  /* We say that we are inside, then look at the gate; gate_shut shuts it, then looks who is inside. All four accesses
   * are sequentially consistent, so one of us sees the other. */
  if (LIKELY(atomic_load_explicit(&gate.shut, memory_order_seq_cst) == 0))
    return true;
  slow_path_end();
  return false;
}

/* The same for calls that a program makes for their own sake (trim, statistics, profiles): waits up to a second for the
 * gate. False in a signal handler that interrupted a slow path, and in a fork handler. */
bool slow_path_begin_patiently(void);

/* Marks a step that needs no lock: a signal handler's calls are refused, a fork is not kept waiting. What the step
 * changes is either dropped in the child of a fork or whole after each instruction. The thread has a heap. */
static inline void owner_step_begin(void) {
  hak_thread |= THREAD_BUSY;
  atomic_signal_fence(memory_order_seq_cst);
}
static inline void owner_step_end(void) {
  atomic_signal_fence(memory_order_seq_cst);
  hak_thread &= ~(uintptr_t)THREAD_BUSY;
  HAK_OWNER_STEPPED();
}

/* Before a fork: shuts the gate and waits until no other thread is inside. False: one is. The wait is bounded, as a
 * thread may be inside because it waits for a lock of the calling one, which forks in a signal handler that interrupted its own slow path; or
 * because a handler that interrupted it does not return. */
bool gate_shut(void);
/* After it, in the parent. */
void gate_open(void);
/* In the child, before anything is mended: opens the gate and says true if no other thread was inside at the fork. Else
 * the gate stays shut: what the threads left half done cannot be trusted, and the child lives on spare memory. If the
 * calling thread is inside, which forked in a handler, its next slow path is to prepare the child. */
bool gate_reset(void);

/* What is called when a slow path finds itself in a child that fork's handlers did not prepare (_Fork, the clone system
 * call), or did not prepare to the end. */
void gate_child_calls(void (*prepare)(void));
/* Such a call has prepared this child already. */
bool gate_child_is_prepared(void);

#endif
