/* bins.h: the bins of a heap. The owner calls these, with the lock held, unless it says otherwise. */
#pragma once

#include "base/bits.h"
#include "heap/bin.h"

/* Half fills the bins of the tiny classes that were not used yet; takes the lock itself. */
void bins_prewarm(struct heap *heap);
/* Does a step of the periodic work on the bins (bins_tick). */
void bins_step(struct heap *heap, unsigned cls);
#define TICK_BYTES ((size_t)32 << 10)
/* Call at the end of each slow path of a small block. Now and then idle bins give blocks back
 * and shrink: once in SLOW_CALLS_PERIOD ticks. Long blocks count for more, because more bytes idle in their bins, and
 * their slow calls are fewer. */
static inline void bins_tick(struct heap *heap, unsigned cls) {
  heap->ticks += 1 + (uint32_t)(class_bytes(cls) / TICK_BYTES);
  bit_set(heap->bins_work.filled, cls, true);
  if (UNLIKELY(heap->ticks >= SLOW_CALLS_PERIOD) || UNLIKELY(heap->bins_work.follows != 0))
    bins_step(heap, cls);
}
/* If most of the slabs' memory is free, flushes bins whose blocks alone keep slabs open, so that the slabs close and
 * serve other classes and large objects. Call when slabs were opened or closed, with the lock held. */
void bins_unpin(struct heap *heap);
/* The same for tiny blocks. Call when a large object of so many bytes was freed, without a lock. */
void bins_after_large(struct heap *heap, size_t bytes);
/* Empties the bins as bin_flush does, and gives the arrays back. False if some are not empty, because memory is out. */
bool bins_flush_all(struct heap *heap);
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
