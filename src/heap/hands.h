/* hands.h: the hands of a split heap (heap/split.h). The owner calls these, with the lock held. */
#pragma once

#include "heap/bin.h"

/* Splits the heap, or makes it whole again: then the blocks in its hands go back to the bins. It cannot fail. */
void bins_split(struct heap *heap, bool is_split);

/* Refills an empty hand from the top of the bin, and from the slabs if the bin has too few. The hand gets only blocks
 * in front of the one that is to be a sample. Returns one block; NULL when memory is out. */
void *hand_fill(struct heap *heap, unsigned cls);
/* The same, if that is quick: the bin has enough blocks, and none is a sample. Otherwise NULL. Call in a step of the
 * owner (bins_step_begin); it needs no lock. */
void *sample_refill(struct heap *heap, unsigned cls);

/* Makes the hand of a class empty, whatever is in it. hand_close: moves its blocks back to the bin first. */
void hand_open(struct heap *heap, unsigned cls);
void hand_close(struct heap *heap, unsigned cls);

/* Returns the counts of a class in this heap. */
struct class_counts bin_counts(const struct heap *heap, unsigned cls);

/* Fills the bin of a class, or its hand, and pops a block. NULL when memory is out. */
static ALWAYS_INLINE void *bin_refill(struct heap *heap, unsigned cls) {
  return UNLIKELY(heap->split) ? hand_fill(heap, cls) : bin_fill_and_pop(heap, cls);
}
