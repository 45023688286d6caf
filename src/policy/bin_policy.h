/* bin_policy.h: how many slots a bin (thread cache of one size class) has. Pure: numbers in, numbers out. */
#pragma once

#include "base/words.h"

struct bin_limits {
  size_t bin_bytes_max;  /* a bin that could hold more does not double */
  size_t heap_bytes_max; /* all grown bins of a heap together */
};

/* No bin has more slots than this, whatever its budget. The number of slots is a power of two; one more word holds the
 * NULL before the first slot. */
#define BIN_SLOTS_MAX ((size_t)16384)
#define BIN_SLOTS_MIN ((size_t)1)

/* Returns the slots of a bin that is used and has not grown: slots_max, or fewer if its blocks would exceed 24 KiB. A
 * block above 16 KiB has no room in such a bin. */
size_t bin_slots_initial(size_t slots_max, size_t block_bytes);

/* Returns the slots of a new bin, which has few until it is used again: so threads that use many classes a little hold
 * few blocks. They make up some cache lines, so threads seldom share one. */
size_t bin_slots_first(size_t slots_initial, size_t block_bytes);

/* Tells whether a bin of `slots` slots may double. granted_bytes: what the heap's bins were granted beyond their
 * initial slots. taken_bytes: the heap's share of the blocks outside its slabs, which measure how much it works with.
 * heaps: how many heaps of the process are in use. */
bool bin_may_double(const struct bin_limits *limits, size_t slots, size_t block_bytes, size_t granted_bytes,
                    size_t taken_bytes, size_t heaps);

/* Tells whether a bin may double that serves a steady set of blocks. all_granted_bytes: what the bins of all heaps were
 * granted. taken_bytes: of the blocks outside the slabs of the heap's pool. Blocks in bins count as taken, too. */
bool bin_may_double_steadily(const struct bin_limits *limits, size_t slots, size_t block_bytes, size_t granted_bytes,
                             size_t all_granted_bytes, size_t taken_bytes);

/* Tells whether a bin of `slots` slots is not too long for its use. A bin gives the blocks out in the reverse of the
 * order in which it got them. With each turn from freeing to allocating a long one shuffles them anew, and what the
 * program allocates together lies ever further apart. Blocks that pass through their slabs come back in the order of
 * their addresses. So a bin of tiny blocks is longer than a part of the second-level cache only if it then holds a good
 * part of what the thread allocates in a turn. refilled: the blocks that the refills of this turn brought. */
bool bin_may_be_long(size_t slots, size_t block_bytes, size_t refilled);

/* Tells whether a bin should be nearly empty when the thread allocates again, because frees without a refill between
 * went far beyond what it holds: then it holds a small part of what comes next, from anywhere. dropped: the blocks that
 * left it since its last refill. */
bool bin_drains(size_t slots, size_t block_bytes, size_t dropped);

/* Returns how many blocks a bin should give back that never held fewer than `low` blocks since the last look. */
size_t bin_surplus(size_t low);

/* What the slabs did that the bins should follow, so that slabs close and serve other classes. */
enum bins_follow {
  FOLLOW_NOTHING,
  FOLLOW_FALL,   /* each bin gives back half of what it did not need since it followed last */
  FOLLOW_GROWTH, /* each bin gives back all of it */
};

/* slab_bytes: of the open slabs; seen_bytes: when the bins followed last. */
enum bins_follow bins_follow(size_t seen_bytes, size_t slab_bytes);

/* Tells whether so much of a pool's slabs is free that bins which pin slabs should give back. taken_bytes: of the
 * blocks outside the slabs, those in bins, too. */
bool slabs_are_mostly_free(size_t slab_bytes, size_t taken_bytes);

/* Of fewer slabs no bin gives back what pins them: classes that take turns would open and close them each time. */
#define PINNED_SLABS_MIN 5u

/* Tells whether at least half of a class's slabs are open for nothing but what a bin holds, which is half of their
 * blocks at most. taken_blocks: those of the class outside the slabs, the bin's included. */
bool bin_pins_slabs(size_t blocks, size_t taken_blocks, size_t block_bytes, size_t slabs, size_t slab_bytes);

/* Returns how many slots the bin should have after a look (bins_tick): half, if a quarter was enough, but not fewer
 * than slots_least. high: the most blocks it held. */
size_t bin_slots_after(size_t slots, size_t slots_least, size_t high);
