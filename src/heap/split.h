/* split.h: split heaps, in which it is known how much is allocated and freed, by class, without the fast path's help.
 *
 * In a split heap malloc and free work on two arrays of a class. Free pushes to the class's bin, as ever; malloc pops from
 * its hand, a short array that only the slow path fills, from the top of the bin. So
 *   T1  blocks given to malloc = blocks handed out by the slow path - blocks still in the hand
 *   T2  blocks freed by the owner = what the bin's level rose by between two changes by the slow path
 * Blocks go through the hand in the order they were freed, some of them at a time: a little further from the cache than
 * without, and that is all it costs.
 *   T3  front.bins[class] is the hand and front.bins[class ^ HAK_SPLIT] the bin if heap->split is HAK_SPLIT, and the key
 *       says so; else front.bins[class] is the bin. The last class's bin would stand where class 0's hand is: it has no
 *       room for a block, so malloc(0) finds nothing there
 *   T4  only the owner splits its heap, in a slow path, under the lock. Who wants that sets the key, under the lock or as
 *       the owner: then the owner's next free finds no room, and its slow path looks
 * Who wants heaps to be split, and what for, is an observer's (observe/count).
 */
#ifndef HAK_HEAP_SPLIT_H
#define HAK_HEAP_SPLIT_H

#include "base/words.h"

struct heap;

#define HAND_MAX 64u

struct class_tally {
  void *hand[HAND_MAX + 1]; /* behind a NULL */
  uint32_t hand_blocks;     /* at a time, */
  int64_t hand_bytes;       /* and their bytes */
  uint64_t handed;
  uint64_t freed;                   /* up to when the bin had `level` blocks */
  uint32_t level;                   /* of the bin after the slow path's last change */
  _Atomic uint64_t freed_of_others; /* written by the owner, without the lock */
  int64_t until;                    /* bytes before the next picked one, */
  int64_t until_stratum;            /* and before the next draw */
};

/* Made when the heap is first split, and kept. Class 0: large objects. */
struct tally {
  uint64_t random;
  uint64_t interval; /* bytes; 0: no samples */
  struct class_tally classes[HAK_CLASS_COUNT];
};

/* Changes with each change of what all heaps are to do; odd: they are to be split. Each heap follows at a slow call of its
 * owner (observers.heap_follow). */
extern _Atomic uint32_t split_wanted;

/* A block that the hand had no part in was allocated; one that was not pushed to the bin was freed: lock held; or it is
 * another heap's: the owner, without the lock. */
void tally_allocated(struct heap *heap, unsigned cls, int count);
void tally_freed(struct heap *heap, unsigned cls);
void tally_freed_of_other(struct heap *heap, unsigned cls);

struct class_counts {
  uint64_t allocated, freed;
};

#endif
