/* bin_policy.h: how many slots a bin has. Pure: numbers in, numbers out. */
#ifndef HAK_POLICY_BIN_POLICY_H
#define HAK_POLICY_BIN_POLICY_H

#include "base/words.h"

struct bin_limits {
  size_t slots_initial;
  size_t bin_bytes_max;  /* a bin that could hold more does not double */
  size_t heap_bytes_max; /* all grown bins of a heap together */
};

/* No bin has more slots than this, whatever its budget. Slots are powers of two (one more word holds
 * the NULL before the first). */
#define BIN_SLOTS_MAX ((size_t)16384)
#define BIN_SLOTS_MIN ((size_t)1)

/* Slots of a bin that has not grown: slots_initial, fewer where the blocks would exceed 16 KiB. */
size_t bin_slots_initial(const struct bin_limits *limits, size_t block_bytes);

/* May a bin of `slots` slots double? granted_bytes: what the heap's bins were granted beyond their
 * initial slots; taken_bytes: its blocks outside the slabs, the measure of how much it works with. */
bool bin_may_double(const struct bin_limits *limits, size_t slots, size_t block_bytes, size_t granted_bytes,
                    size_t taken_bytes);

/* Blocks to give back from a bin that never held fewer than `low` and never more than `high` blocks
 * since the last look. */
size_t bin_surplus(size_t low);

/* Slots a bin should have after that look: half, if a quarter was enough. */
size_t bin_slots_after(size_t slots, size_t slots_initial, size_t high);

#endif
