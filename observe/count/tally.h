/* tally.h: which heaps are split (heap/split.h), to count what is allocated and freed by class, and which allocation is
 * a sample.
 *
 * Samples are spread over the bytes that are allocated: of each `interval` of bytes one is drawn at random, and picks
 * the block in which it lies. So a block of b bytes is picked b / interval times on average; a block as long as the
 * interval is always picked, once. Each pick stands for `interval` bytes, so sums over many picks are nearly exact.
 */
#pragma once

#include "base/words.h"

struct heap;

/* These set what all heaps do: whether they are split (for the option `count`, or for samples), and the sampling
 * interval. Call tally_apply when the option may have changed. Each thread follows at its next slow path. For threads
 * without slow paths call tally_broadcast, without a lock; slow paths do that. The first two wait for no lock. */
void tally_apply(void);
#define TALLY_INTERVAL_MAX ((uint64_t)1 << 40) /* sums of several intervals cannot overflow */
enum tally_user { TALLY_PROFILE, TALLY_GUARD, TALLY_USERS };
void tally_sample(enum tally_user user, uint64_t interval); /* bytes; 0: no samples; the shortest one is in force */
uint64_t tally_interval(enum tally_user user);
void tally_broadcast(void);
bool tally_is_on(void);

extern _Atomic bool tally_broadcast_pending;

/* Makes this heap follow split_wanted (heap/split.h). Only the owner calls it, in a slow path, with the lock. */
void tally_follow(struct heap *heap);

/* Returns how often a block of this many bytes, which is about to be allocated, is picked; 0: it is no sample. The lock
 * is held. */
uint32_t tally_picks(struct heap *heap, unsigned cls, size_t bytes);
