/* strategy_words.h: what the strategies are called, in files that programs read and for people. */
#ifndef HAK_POLICY_STRATEGY_WORDS_H
#define HAK_POLICY_STRATEGY_WORDS_H

#include "policy/evolve_policy.h"

static const struct {
  const char *name;   /* in JSON, and as an argument */
  const char *action; /* what it does */
} strategy_words[EVOLVE_STRATEGIES] = {
    [EVOLVE_AT_ONCE] = {"at_once", "at once"},  [EVOLVE_10MS] = {"10ms", "after 10 ms"},
    [EVOLVE_100MS] = {"100ms", "after 100 ms"}, [EVOLVE_1S] = {"1s", "after 1 s"},
    [EVOLVE_10S] = {"10s", "after 10 s"},       [EVOLVE_WARM] = {"warm", "kept warm"},
};

#endif
