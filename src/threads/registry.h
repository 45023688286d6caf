/* registry.h: which thread gets which heap, and what becomes of the heaps of dead threads. */
#pragma once

#include "heap/heap.h"

/* Gives the calling thread a heap: that of a dead thread, or a new one. NULL when memory is out. */
struct heap *heap_attach(void);
/* Returns the calling thread's heap, which it makes if necessary. */
static ALWAYS_INLINE struct heap *heap_of_thread(void) {
  struct heap *heap = heap_current();
  return LIKELY(heap != NULL) ? heap : heap_attach();
}
/* The calling thread waited in vain for the lock of its pool (pool_lock). It leaves its heap, as if it ended, and gets
 * one in another pool. If the lock is given later, a sweep finds what the bins hold. NULL when memory is out: then it
 * keeps its heap. */
struct heap *heap_replace(void);
/* Moves a heap of the calling thread, with empty bins, to a pool that counts it already; NULL: it stays, and its key is
 * set anew. False: it stays, because memory is out or a lock is stuck. */
bool heap_move(struct heap *heap, struct pool *pool);
/* Moves the calling thread's heap to a pool of the node that the thread runs on, if it has run there for some time.
 * Call now and then, without a lock. */
void heap_follow_node(struct heap *heap);
/* Moves the calling thread's heap out of a pool whose other threads allocate what this one frees. Call as above. */
void heap_leave_contended(struct heap *heap);
/* Returns a heap for the calling thread: of a private pool, which lists it, so the thread's home must list it, too
 * (threads/private.h); or (NULL) an ordinary one. NULL when memory is out, or if a private pool's lock is stuck. */
struct heap *heap_begin(struct pool *pool);
/* Attaches a heap whose private pool's life is over to another private pool. False if a lock is stuck. */
bool heap_rejoin(struct heap *heap, struct pool *pool);
/* Parks a heap: its blocks return to their slabs, and it waits for a new owner. The caller holds its lifeline: a dead
 * thread's, or its own, but not of its present heap. At the return the heap may be another thread's, so no list of the
 * caller's may have it. If the pool's lock is stuck, a sweep does it later. */
void heap_park(struct heap *heap);
/* Notes the calling thread's id in its heap, for the option `live`. */
void heap_note_thread(struct heap *heap);
/* Lock the registry, and unlock it. Meanwhile no thread takes the heap of a dead one, so is_default agrees with the
 * state of the lifeline. Hold no pool's lock when calling heaps_hold. */
void heaps_hold(void);
void heaps_let_go(void);
/* Looks at one heap, from where the last call stopped, and sweeps it if its thread is dead. */
void heaps_sweep_next(void);
/* Sweeps all of them; if thoroughly, also those whose lifelines the kernel did not mark. True if there was one. */
bool heaps_sweep_all(bool thoroughly);
/* Returns how much the bins of all heaps hold, or a little less. In a slow path, without a lock. */
size_t heaps_kept_bytes(void);
/* Tells whether there is a heap, other than the caller's, that has an owner or is not swept. */
bool heaps_of_others(void);
/* Gives back the pages of heaps without an owner. Returns the bytes. */
size_t heaps_rest(void);
/* Asks the owners of all heaps but `self` (or NULL) to empty their bins at their next slow path. A sleeping thread
 * keeps its bins: another thread cannot empty them, because the owner may be in the middle of a malloc. */
void heaps_ask_to_flush(const struct heap *self);
/* Empties bins and outbox into slabs and inboxes, and gives the bins' arrays back. The caller owns the heap and holds
 * no pool's lock. */
void heap_flush_all(struct heap *heap);

/* --- forks (heap_fork.c) --- */

/* Call before a fork, and after it in the parent, while the gate is shut (heap/slow_path.h). */
void heaps_before_fork(void);
void heaps_in_parent(void);
/* Call in the child: it has one thread, and keeps that thread's heaps only. Memory that other threads change outside
 * slow paths was copied page by page while they ran. So their bins and outboxes may be inconsistent: they are
 * dropped. is_noticed: no fork handler called. In a child of clone(2) robust mutexes get the parent's thread id, so no
 * owner that looks dead for that alone counts as dead. */
void heaps_in_child(bool is_noticed);
/* For heaps_in_child: from now on the owners are this process's threads. */
void registry_process_changed(bool is_noticed);
