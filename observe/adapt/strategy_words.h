/* strategy_words.h: the strategies' names, in JSON and for people. */
#pragma once

#include "policy/keep_policy.h"

static const struct {
  const char *name;   /* in JSON, and as an argument */
  const char *action; /* what it does */
} strategy_words[KEEP_STRATEGIES] = {
    [KEEP_AT_ONCE] = {"at_once", "at once"},  [KEEP_10MS] = {"10ms", "after 10 ms"},
    [KEEP_100MS] = {"100ms", "after 100 ms"}, [KEEP_1S] = {"1s", "after 1 s"},
    [KEEP_10S] = {"10s", "after 10 s"},       [KEEP_WARM] = {"warm", "kept warm"},
};
