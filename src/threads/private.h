/* private.h: private pools: the memory of a hak_heap (hakmem/hakmem.h).
 *
 * A hak_heap is a private pool, which shares its slabs with no thread that did not ask for it, and a list of large
 * objects. A thread that uses it has a heap (bins and an outbox) attached to that pool, beside its ordinary heap, its
 * *home*. malloc and free see a private pool as any other: an entry names it, and other threads' frees go to its inbox.
 *   V1  a pool's `life` changes when its hak_heap is destroyed. A handle holds the pool's id and its life. So the
 *       handle of a destroyed heap is recognised for ever, and the pool and its id can be used again
 *   V2  a heap and an envelope hold the life of their pool. If it is over, the heap's bins are empty and its key
 *       matches no entry, and the envelope's blocks are dropped
 *   V3  `attached` lists the heaps of this life, under the pool's lock
 *   V4  the home lists its thread's heaps for private pools, the last used first, also those whose pool's life is over.
 *       Only the owner reads the list
 *   V5  a large object of the hak_heap has the pool's id as its owner, and is in the list `objects`, under the pool's
 *       lock
 * Blocks that a refused call gets (threads/spare.h) belong to no pool. */
#pragma once

#include "heap/heap.h"

/* Makes a private pool; limit_bytes 0: no limit. NULL when memory is out. All functions are for slow paths, unless
 * they say otherwise. */
struct pool *private_make(size_t limit_bytes);
/* Returns the handle of a pool's present life. Takes no lock. */
struct hak_heap *private_handle(const struct pool *pool);
/* Returns the pool of a handle. Ends the program if its life is over, or if it is no handle. Takes no lock. */
struct pool *private_pool(const struct hak_heap *handle);

/* Returns the calling thread's heap for a pool, which it attaches if necessary. NULL when memory is out, or if a
 * lock is stuck. */
struct heap *private_heap(struct pool *pool);
/* The calling thread allocates from this heap, one of its own, until private_leave. */
void private_enter(struct heap *heap);
void private_leave(struct heap *heap);
/* The calling thread's fast path finds the heap by this handle. */
void private_remember(struct heap *heap, const struct hak_heap *handle);

/* Returns the ordinary heap of the calling thread; NULL: it has none. */
static inline struct heap *private_home(void) {
  struct heap *heap = heap_current();
  return heap != NULL && heap->home != NULL ? heap->home : heap;
}
/* Walks over a thread's heaps: the home comes first, then those for private pools (V4). NULL after the last. */
static inline struct heap *private_next(const struct heap *heap) {
  return heap->home ? heap->next_private : heap->privates;
}
/* Makes one of the thread's heaps its default. Call outside slow paths. Returns the heap that was the default. */
struct heap *private_switch(struct heap *heap);

/* Frees everything that the pool holds, and gives the pool back. No other thread may use it, or free one of its
 * blocks, at the same time. False if it is the default of another thread, or if its lock is stuck, or the purge of its
 * holes; then nothing happened. */
bool private_destroy(struct pool *pool);

/* --- large objects --- */

/* Returns the private pool that the calling thread's present heap is attached to; NULL: it is an ordinary heap. */
static inline struct pool *private_current(void) {
  struct heap *heap = heap_current();
  return UNLIKELY(heap != NULL && heap_life(heap) != 0) ? heap_pool(heap) : NULL;
}

/* Counts the bytes of an object that is to be made. False if the limit does not allow it. */
bool private_reserve(struct pool *pool, size_t bytes);
/* Adds the object. Its bytes may differ from those that were reserved. NULL: none was made. If the lock is stuck, it
 * belongs to no heap. */
void private_object_add(struct pool *pool, void *object, size_t reserved);
/* Takes an object out, before it is freed or resized. *from: of its pool; NULL: it belongs to none. False: the pool's
 * lock is stuck. */
bool private_object_remove(void *object, struct pool **from);

/* Tells whether the pool's limit is why a request of this size failed. */
bool private_forbids(struct pool *pool, size_t size);

/* Returns the private pool that owns a live block; NULL: none. entry: its page-map entry. Takes no lock. */
struct pool *private_owner(const void *block, uint32_t entry);

/* False if the lock is stuck. */
struct hak_heap_stats;
bool private_stats(struct pool *pool, struct hak_heap_stats *out);
/* All heaps of the calling thread empty their bins. */
void private_flush_own(void);
/* The heaps of a pool empty their bins: the caller's at once, others at their next slow paths. Empty slabs are
 * closed. */
void private_flush(struct pool *pool);
