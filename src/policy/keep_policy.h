/* keep_policy.h: how long something free stays resident: as long as the profile says, or by a strategy of its own, which
 * was learned. What holds such things has a list by age for each.
 */
#ifndef HAK_POLICY_KEEP_POLICY_H
#define HAK_POLICY_KEEP_POLICY_H

#include "base/words.h"

enum keep {
  KEEP_AT_ONCE, /* back to the system at once */
  KEEP_10MS,    /* kept, its pages given back when it was idle for so long */
  KEEP_100MS,
  KEEP_1S,
  KEEP_10S,
  KEEP_WARM, /* kept resident */
  KEEP_STRATEGIES,
};
#define KEEP_BY_PROFILE ((unsigned)KEEP_STRATEGIES)
#define KEEP_LISTS (KEEP_BY_PROFILE + 1)

/* Idle time after which a strategy gives pages back; KEEP_NEVER: it does not. */
#define KEEP_NEVER UINT32_MAX
static inline uint32_t keep_delay_ms(enum keep strategy) {
  static const uint32_t delays_ms[KEEP_STRATEGIES] = {
      [KEEP_AT_ONCE] = 0, [KEEP_10MS] = 10,   [KEEP_100MS] = 100,
      [KEEP_1S] = 1000,   [KEEP_10S] = 10000, [KEEP_WARM] = KEEP_NEVER,
  };
  return delays_ms[strategy];
}

/* When something that is free since freed_ms is to go, by what was learned; 0: that says nothing. */
static inline uint64_t keep_due_ms(unsigned keep, uint64_t freed_ms) {
  if (keep == KEEP_BY_PROFILE || keep_delay_ms((enum keep)keep) == KEEP_NEVER)
    return 0;
  return freed_ms + keep_delay_ms((enum keep)keep);
}

/* The earlier of two times, of which 0 is none. */
static inline uint64_t keep_earlier_ms(uint64_t a, uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

#endif
