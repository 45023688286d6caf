/* bins.h: the bins of a heap, and the hands of a split one. The owner calls these, with the lock held, unless it says
 * otherwise. */
#ifndef HAK_HEAP_BINS_H
#define HAK_HEAP_BINS_H

#include "heap/bin.h"

/* Fills the bin of a class from inbox or slabs and pops a block. NULL when memory is out. */
void *bin_refill(struct heap *heap, unsigned cls);
/* Refills the empty hand of a split heap, if that is quick: the bin has enough blocks, and none is a sample. Otherwise
 * NULL. */
void *sample_refill(struct heap *heap, unsigned cls);
/* Half fills the bins of the tiny classes that were not used yet; takes the lock itself. */
void bins_prewarm(struct heap *heap);
/* Call from time to time: idle bins give blocks back and shrink. */
void bins_tick(struct heap *heap);
/* Returns all blocks of the bins to the slabs, and gives the arrays back. */
void bins_flush_all(struct heap *heap);
/* Gives the heap hands, or takes what is in them back into the bins (heap/split.h); any memory that takes is there. */
void bins_split(struct heap *heap, bool is_split);
/* Returns the counts of a class in this heap. */
struct class_counts bin_counts(const struct heap *heap, unsigned cls);
/* Drops the blocks of the bins without returning them. */
void bins_drop_all(struct heap *heap);
/* Returns what is ready in the bins. Any holder of the lock may call it, while the owner may pop. */
struct bins_content {
  size_t blocks, bytes;
};
struct bins_content bins_content(const struct heap *heap);

#ifdef HAK_DEBUG
bool heap_is_valid(struct heap *heap);
#endif

#endif
