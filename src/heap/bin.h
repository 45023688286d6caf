/* bin.h: the bin of one class of a heap. The owner calls these, with the lock of its pool held. */
#pragma once

#include "heap/heap.h"
#include "os/fault.h"

/* Pushes a block into a full bin. Makes room first: grows the bin, or flushes its older half. */
void bin_overflow(struct heap *heap, unsigned cls, void *block);
/* Pushes a block into its bin or, if the bin is full, puts it into its slab, or into an envelope for another pool. If
 * memory is out for the envelope, and that pool's lock is taken, the block is lost. */
void bin_put(struct heap *heap, unsigned cls, void *block);
/* Returns what is ready in the bin and its hand. Any holder of the lock may call it, while the owner may pop. */
size_t bin_blocks(const struct heap *heap, unsigned cls);

/* --- for bins.c --- */

/* Fills the bin of a class from inbox or slabs and pops a block. NULL when memory is out. */
void *bin_fill_and_pop(struct heap *heap, unsigned cls);
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
/* Sets how many blocks a hand gets: few, so that recently freed blocks are used next, enough to make the slow path
 * rare, and no more than half of a bin. */
void hand_set_size(struct heap *heap, unsigned cls);

/* In a split heap malloc pops from another array, the hand (heap/split.h). */
static inline struct hak_bin *bin_of(struct heap *heap, unsigned cls) { return &heap->front.bins[cls ^ heap->split]; }

static inline size_t bin_count(const struct heap *heap, unsigned cls) {
  void **base = heap->bin_state[cls].base;
  return base ? (size_t)(__atomic_load_n(&heap->front.bins[cls ^ heap->split].top, __ATOMIC_RELAXED) - base) : 0;
}

static inline void top_store(struct hak_bin *bin, void **top) { __atomic_store_n(&bin->top, top, __ATOMIC_RELAXED); }

/* T2: what was pushed since the slow path's last change was freed. Call before the slow path moves top. */
static inline void tally_pushes(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  uint32_t level = (uint32_t)bin_count(heap, cls);
  hak_assert(level >= class->level);
  class->freed += level - class->level;
  class->level = level;
}
/* Call after the slow path moved top. */
static inline void tally_level(struct heap *heap, unsigned cls) {
  heap->tally->classes[cls].level = (uint32_t)bin_count(heap, cls);
}

void bin_set_top_split(struct heap *heap, unsigned cls, void **top); /* the part of bin_set_top for split heaps */
static inline void bin_set_top(struct heap *heap, unsigned cls, void **top) {
  if (UNLIKELY(heap->split))
    bin_set_top_split(heap, cls, top);
  else
    top_store(&heap->front.bins[cls], top);
}

static inline void **hand_base(const struct heap *heap, unsigned cls) { return heap->tally->hands[cls] + 1; }

static inline size_t hand_count(const struct heap *heap, unsigned cls) {
  if (heap->split == 0)
    return 0;
  void **top = __atomic_load_n(&heap->front.bins[cls].top, __ATOMIC_RELAXED);
  return (size_t)(top - hand_base(heap, cls));
}

#ifdef HAK_DEBUG
bool bin_is_valid(const struct heap *heap, unsigned cls); /* the bin and its hand */
#endif
