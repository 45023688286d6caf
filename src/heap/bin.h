/* bin.h: the bin of one class of a heap. The owner calls these, with the lock of its pool held. */
#pragma once

#include "heap/heap.h"

/* Fills the empty bin of a class from inbox or slabs and pops a block. NULL when memory is out. In a split heap the bin
 * may have blocks: a sample was due and could not be had. */
void *bin_refill(struct heap *heap, unsigned cls);
/* Pushes a block into a full bin. Makes room first: grows the bin, or flushes its older half. */
void bin_overflow(struct heap *heap, unsigned cls, void *block);

/* --- for bins.c --- */

/* Fills up to `wanted` slots of an empty bin from the slabs. False when memory is out. */
bool bin_fill(struct heap *heap, unsigned cls, size_t wanted);
/* Takes the `count` oldest blocks out of a bin: those of its pool go to the slabs, those of others into envelopes. If
 * memory is out for those, they stay. are_freed: they count as freed (usage_freed). */
void bin_flush(struct heap *heap, unsigned cls, size_t count, bool are_freed);
/* bin_open: makes the array of a bin that has none. bin_set_slots: moves the bin's blocks into an array of `slots`
 * slots. Both return false when memory is out. bin_close: gives the array of an empty bin back. */
bool bin_open(struct heap *heap, unsigned cls);
bool bin_set_slots(struct heap *heap, unsigned cls, size_t slots);
void bin_close(struct heap *heap, unsigned cls);
/* A bin that never was a quarter full gets fewer slots. */
void bin_shrink(struct heap *heap, unsigned cls);
/* Returns the slots beyond the initial ones, which count against the heap's budget. */
size_t bin_granted_slots(const struct bin_state *state, size_t slots);
/* Returns the bytes of those slots in all bins of all heaps. Takes no lock. */
size_t bins_granted_bytes(void);
/* In a split heap it is free's bin (heap/split.h). */
static inline struct hak_bin *bin_of(struct heap *heap, unsigned cls) {
  return &heap->front.bins[cls ^ heap->front.split];
}

static inline void **top_load(const struct hak_bin *bin) { return __atomic_load_n(&bin->top, __ATOMIC_RELAXED); }
static inline void top_store(struct hak_bin *bin, void **top) { __atomic_store_n(&bin->top, top, __ATOMIC_RELAXED); }

/* Returns the slot of the oldest block. Any holder of the lock may call it, while the owner may pop. */
static inline void **bin_bottom(const struct heap *heap, unsigned cls) {
  void **base = heap->bin_state[cls].base;
  if (LIKELY(!heap->is_queue) || base == NULL)
    return base;
  void **bottom = top_load(&heap->front.bins[cls]), **top = top_load(&heap->front.bins[cls ^ HAK_SPLIT]);
  return bottom + (bottom < top && __atomic_load_n(bottom, __ATOMIC_RELAXED) == NULL); /* heap/queue.h, Q1 and Q2 */
}

/* Returns the number of its blocks. Any holder of the lock may call it, while the owner may pop. */
static inline size_t bin_count(const struct heap *heap, unsigned cls) {
  void **bottom = bin_bottom(heap, cls), **top = top_load(&heap->front.bins[cls ^ heap->front.split]);
  return bottom != NULL && top > bottom ? (size_t)(top - bottom) : 0;
}

/* Where the blocks of a queue's heap may begin behind the array's begin, moves them there. The lock is held. */
void bin_move_down(struct heap *heap, unsigned cls); /* heap/split.c */
static inline void bin_settle(struct heap *heap, unsigned cls) {
  if (UNLIKELY(heap->is_queue))
    bin_move_down(heap, cls);
}
/* The lock is held, and the owner is in a slow path. */
static inline void bin_set_bottom(struct heap *heap, unsigned cls, void **bottom) {
  if (UNLIKELY(heap->is_queue))
    top_store(&heap->front.bins[cls], bottom);
}

/* tally_brought: slow paths put blocks into the bin, or took them out (negative). tally_popped: one popped a block that
 * the program gets. */
static inline void tally_brought(struct heap *heap, unsigned cls, int64_t count) {
  if (UNLIKELY(heap_is_counted(heap)))
    heap->tally->classes[cls].brought += (uint64_t)count;
}
static inline void tally_popped(struct heap *heap, unsigned cls) {
  if (UNLIKELY(heap_is_counted(heap)))
    heap->front.bins[cls].until--;
}

static inline void bin_set_top(struct heap *heap, unsigned cls, void **top) {
  struct hak_bin *bin = bin_of(heap, cls);
  tally_brought(heap, cls, top - bin->top);
  top_store(bin, top);
}

#ifdef HAK_DEBUG
bool bin_is_valid(const struct heap *heap, unsigned cls);
#endif
