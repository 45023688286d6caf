/* split.h: split heaps, which count what is allocated and freed by class, without an instruction on the fast path.
 *
 * In a split heap free pushes to another bin than malloc looks into, and malloc's bin is always empty. So each malloc
 * goes on to a second fast path (hak_malloc_split), which pops from free's bin and counts the blocks. A heap may also
 * be split to give out the oldest blocks first (heap/queue.h). Then nothing is counted.
 *   T1  blocks allocated by malloc = class_tally.begun - hak_bin.until
 *   T2  blocks freed by the owner = blocks in the bin + blocks allocated - class_tally.brought
 *   T3  front.bins[class] is malloc's bin and front.bins[class ^ HAK_SPLIT] free's if front.split is HAK_SPLIT, and the
 *       key says so; else front.bins[class] is both
 *   T4  only the owner splits its heap, in a slow path, under the lock. A thread that wants a change sets the key,
 *       under the lock or as the owner; then the owner's next free finds no room, or no match, and takes the slow path
 * The observer observe/count decides when heaps are split. docs/decisions/0018 has what it costs.
 */
#pragma once

#include "base/size_class.h"
#include "base/words.h"

struct heap;

/* The counts stay while the heap has no owner, or is not split to count: then `until` and the blocks in the bin are 0
 * in T1 and T2. The owner changes them under the lock, but for `until`. */
struct class_tally {
  uint64_t begun;                   /* blocks allocated, and blocks until the next sample */
  uint64_t brought;                 /* blocks that slow paths put into the bin, less those that they took out */
  _Atomic uint64_t freed_of_others; /* written by the owner, without the lock */
  int64_t until_rest;               /* bytes of the sample's block before the byte that was drawn */
  int64_t until_stratum;            /* bytes from that byte to where the place of the one after it is drawn */
};

/* Made when the heap is first split, and kept. Class 0: large objects, of which only `until` is used. */
struct tally {
  struct class_tally classes[HAK_CLASS_COUNT];
  uint64_t random;
  uint64_t interval; /* bytes; 0: no samples */
};

/* The version of what all heaps are to do: it changes with each change; odd means split. Each heap follows at its
 * owner's next slow path (observers.heap_follow). */
extern HAK_HIDDEN _Atomic uint32_t split_wanted;

/* An atomic access would be an instruction more. */
static ALWAYS_INLINE int64_t until_add(struct hak_bin *counter, int64_t blocks) {
#ifdef HAK_TSAN
  int64_t until = __atomic_load_n(&counter->until, __ATOMIC_RELAXED) + blocks;
  __atomic_store_n(&counter->until, until, __ATOMIC_RELAXED);
  return until;
#else
  return counter->until += blocks;
#endif
}

/* Pops a block of the class from a split heap. NULL: none is ready, or the next one may be a sample; then call
 * split_missed, or queue_pop (heap/queue.h). A handler that interrupts it finds the bins as it does in malloc's fast
 * path. */
static ALWAYS_INLINE void *split_try(struct hak_bin *counter) {
  return LIKELY(until_add(counter, -1) >= 0) ? hak_bin_pop(counter + HAK_SPLIT) : NULL;
}
static ALWAYS_INLINE void split_missed(struct hak_bin *counter) { until_add(counter, 1); }

/* Pops a block as split_try does. If it gets none, it takes the count back (split_missed). */
static ALWAYS_INLINE void *split_pop(struct hak_bin *counter) {
  void *block = split_try(counter);
  if (UNLIKELY(block == NULL))
    split_missed(counter);
  return block;
}

/* Splits the heap, or makes it whole again. The lock is held. */
void heap_split(struct heap *heap, bool is_split);
/* The blocks of a class before the next sample, of class 0 the bytes; 0 if the heap is not split. The counts stay when
 * they are set. */
int64_t tally_until(const struct heap *heap, unsigned cls);
void tally_set_until(struct heap *heap, unsigned cls, int64_t until);

/* tally_allocated: blocks were allocated that were in no bin; the lock is held. tally_freed_of_other: the owner freed
 * another pool's block; no lock. */
void tally_allocated(struct heap *heap, unsigned cls, int count);
void tally_freed_of_other(struct heap *heap, unsigned cls);

struct class_counts {
  uint64_t allocated, freed;
};
/* Returns the counts of a class in this heap, which has a tally. The lock is held. What the owner allocates meanwhile
 * may be missing from `freed`. */
struct class_counts tally_counts(const struct heap *heap, unsigned cls);
