/* keep_policy.h: how long free memory stays resident (decay): as long as the preset says, or by a strategy that the
 * policy engine chose. The owner of free ranges keeps a list by age for each strategy.
 */
#pragma once

#include "base/words.h"

enum keep {
  KEEP_AT_ONCE, /* back to the system at once */
  KEEP_10MS,    /* its pages go back after this idle time */
  KEEP_100MS,
  KEEP_1S,
  KEEP_10S,
  KEEP_WARM, /* kept resident */
  KEEP_STRATEGIES,
};
#define KEEP_BY_PRESET ((unsigned)KEEP_STRATEGIES)
#define KEEP_LISTS (KEEP_BY_PRESET + 1)

/* Returns the idle time after which a strategy gives pages back; KEEP_NEVER if it does not. */
#define KEEP_NEVER UINT32_MAX
static inline uint32_t keep_delay_ms(enum keep strategy) {
  static const uint32_t delays_ms[KEEP_STRATEGIES] = {
      [KEEP_AT_ONCE] = 0, [KEEP_10MS] = 10,   [KEEP_100MS] = 100,
      [KEEP_1S] = 1000,   [KEEP_10S] = 10000, [KEEP_WARM] = KEEP_NEVER,
  };
  return delays_ms[strategy];
}

/* Returns when a range that is free since freed_ms is to go back by its strategy; 0 if the preset decides. */
static inline uint64_t keep_due_ms(unsigned keep, uint64_t freed_ms) {
  if (keep == KEEP_BY_PRESET || keep_delay_ms((enum keep)keep) == KEEP_NEVER)
    return 0;
  return freed_ms + keep_delay_ms((enum keep)keep);
}

/* Returns the earlier of two times, where 0 means none. */
static inline uint64_t keep_earlier_ms(uint64_t a, uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }
