/* keep_policy.h: who decides how long something free stays resident: the profile, or a strategy that was learned. Who
 * holds such things has a list by age for each.
 */
#ifndef HAK_POLICY_KEEP_POLICY_H
#define HAK_POLICY_KEEP_POLICY_H

#include "policy/evolve_policy.h"

#define KEEP_BY_PROFILE ((unsigned)EVOLVE_STRATEGIES)
#define KEEP_LISTS (KEEP_BY_PROFILE + 1)

/* When something that is free since freed_ms is to go, by what was learned; 0: that says nothing. */
static inline uint64_t keep_due_ms(unsigned keep, uint64_t freed_ms) {
  if (keep == KEEP_BY_PROFILE || evolve_delay_ms((enum evolve_strategy)keep) == EVOLVE_NEVER)
    return 0;
  return freed_ms + evolve_delay_ms((enum evolve_strategy)keep);
}

/* The earlier of two times, of which 0 is none. */
static inline uint64_t keep_earlier_ms(uint64_t a, uint64_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

#endif
