/* split.h: split heaps, which know how much is allocated and freed by class, without instructions on the fast path.
 *
 * In a split heap malloc and free work on two arrays of a class. Free pushes to the class's bin. Malloc pops from its
 * *hand*, a short array that only the slow path fills, from the top of the bin. So
 *   T1  blocks given to malloc = blocks handed out by the slow path - blocks still in the hand
 *   T2  blocks freed by the owner = what the bin's level rose by between two changes by the slow path
 * Blocks go through the hand in the order in which they were freed, several at a time. They are a little colder in the
 * cache than in a heap that is not split. There is no other cost.
 *   T3  front.bins[class] is the hand and front.bins[class ^ HAK_SPLIT] the bin if heap->split is HAK_SPLIT, and the
 *       key says so; else front.bins[class] is the bin
 *   T4  only the owner splits its heap, in a slow path, under the lock. A thread that wants a split sets the key, under
 *       the lock or as the owner; then the owner's next free finds no room and takes the slow path
 * The observer observe/count decides when heaps are split.
 */
#pragma once

#include "base/words.h"

struct heap;

#define HAND_MAX 32u

/* The counts stay while the heap has no owner. The owner may write handed, freed and level without the lock
 * (sample_refill); statistics read them under it. */
struct class_tally {
  _Alignas(CACHE_LINE) uint64_t handed;
  uint64_t freed;                   /* up to the moment when the bin had `level` blocks */
  _Atomic uint64_t freed_of_others; /* written by the owner, without the lock */
  int64_t until;                    /* bytes to allocate before the next block is picked */
  int64_t until_stratum;            /* bytes to allocate before the next place of a pick is drawn */
  uint32_t hand_blocks;             /* blocks of a full hand */
  uint32_t level;                   /* the bin's blocks after the slow path's last change */
};

/* Made when the heap is first split, and kept. Class 0: large objects. The pages of the hands are given back with those
 * of the bins when the heap has no owner. */
struct tally {
  struct class_tally classes[HAK_CLASS_COUNT];
  uint64_t random;
  uint64_t interval;                          /* bytes; 0: no samples */
  void *hands[HAK_CLASS_COUNT][HAND_MAX + 1]; /* each after a NULL, which was there from the start */
};

/* The version of what all heaps are to do: it changes with each change; odd means split. Each heap follows at its
 * owner's next slow path (observers.heap_follow). */
extern HAK_HIDDEN _Atomic uint32_t split_wanted;

/* tally_allocated: a block was allocated that did not go through the hand; the lock is held. tally_freed_of_other: the
 * owner freed another pool's block; no lock. */
void tally_allocated(struct heap *heap, unsigned cls, int count);
void tally_freed_of_other(struct heap *heap, unsigned cls);

struct class_counts {
  uint64_t allocated, freed;
};
