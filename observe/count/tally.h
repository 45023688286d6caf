/* tally.h: which heaps are split (heap/split.h), to count what is allocated and freed by class, and which allocation is a
 * sample.
 *
 * Samples are spread over the bytes that go through a class: one byte of each `interval`, drawn evenly, picks the block
 * it lies in. So a block of b bytes is picked b / interval times on average (at most once if it is that long: then it
 * always is), each pick stands for `interval` bytes, and sums over many are nearly exact.
 */
#ifndef HAK_COUNT_TALLY_H
#define HAK_COUNT_TALLY_H

#include "heap/heap.h"

/* What all heaps are to do: be split, because the option `count` says so or samples are wanted, and pick samples.
 * tally_apply: the option may have changed. Every thread follows at a slow call; for threads that have none,
 * tally_tell_all has to be called, without locks; slow calls do that. The first two wait for no lock. */
void tally_apply(void);
void tally_sample(uint64_t interval); /* bytes; 0: no samples */
void tally_tell_all(void);
bool tally_is_on(void);

extern _Atomic bool tally_is_untold;

/* Does in this heap what is wanted. The owner, in a slow path, with the lock. */
void tally_follow(struct heap *heap);

/* How often a block of so many bytes, which is about to be allocated, is picked; 0: it is no sample. Lock held. */
uint32_t tally_picks(struct heap *heap, unsigned cls, size_t bytes);

/* While heaps were split, by all threads. */
void tally_counts(struct class_counts out[HAK_CLASS_COUNT]);

#endif
