/* watch.h: what observers may see of heaps and pools, and ask of them. They do not access the members themselves. */
#pragma once

#include "heap/heap.h"

struct heap_figures {
  uint32_t id;
  uint32_t pool_id;
  int thread_id; /* of the last owner; 0: not known */
  bool is_parked;
  size_t bin_blocks, bin_bytes; /* these change without a lock */
  size_t open_bytes;            /* in open envelopes: other pools count them as taken */
  size_t checked_bytes;         /* in its cache of checked blocks, which other pools own */
  uint64_t envelopes_sent, remote_frees;
  struct heap_counters counters;
};
void heap_figures(const struct heap *heap, struct heap_figures *out);

struct pool_figures {
  uint32_t id, heaps;
  size_t slab_bytes, taken_bytes; /* taken: what slabs have given out */
  size_t inbox_bytes;             /* changes without the lock */
  struct pool_counters counters;
  struct slab_counters slab_counters;
};
void pool_figures(struct pool *pool, struct pool_figures *out);

struct class_figures {
  size_t slabs, taken_blocks, bin_blocks;
};
/* Sets the figures of the classes. Takes the locks of all pools, one after another. */
void pools_classes(struct class_figures classes[HAK_CLASS_COUNT]);
/* Sets the counts of all heaps, while they were split. Takes their locks. */
void heaps_counts(struct class_counts out[HAK_CLASS_COUNT]);

/* --- split heaps (heap/split.h) --- */

/* Sets the key of the calling thread's heap, or of all heaps that have not followed split_wanted yet. Their owners
 * follow at their next free. */
void heap_split_ask(void);
void heaps_split_ask(void);
/* Makes a heap follow split_wanted. `make` returns the tally of a heap that has none; NULL: it stays whole. Tells
 * whether the heap is split. Only the owner calls it, in a slow path, with the lock. */
bool heap_split_follow(struct heap *heap, struct tally *(*make)(uint32_t heap_id));
/* Tells whether the heap is attached to the pool of a hak_heap. */
bool heap_is_private(const struct heap *heap);
/* Returns the tally if the heap is split. The lock is held. */
struct tally *heap_tally(const struct heap *heap);

/* --- samples --- */

/* The owner of a heap locks its pool. False: the lock is stuck. */
bool heap_lock(struct heap *heap);
void heap_unlock(struct heap *heap);
/* Makes the calling thread's heap follow split_wanted at once. */
void heap_follow_at_once(struct heap *heap);
/* Takes a block from the slabs of the shared pool, or gives it back. NULL when memory is out. If the lock is stuck, it
 * gives none, and keeps what comes back. */
void *pool_shared_take(struct pool *shared, unsigned cls);
void pool_shared_give(struct pool *shared, unsigned cls, void *block);
/* HEAP_STACK_NOTES words for an observer. Only the owner touches them. */
void *heap_stack_notes(struct heap *heap);
