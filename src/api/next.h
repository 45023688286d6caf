/* next.h: the functions behind those that the preloaded library wraps, as the libraries after it define them. */
#pragma once

#include "base/words.h"

/* clang-format off */
#define NEXT_FUNCTIONS(DO) \
  DO(unshare) DO(setns) DO(_Fork) DO(fork) DO(clone) DO(mlockall) DO(dlopen) DO(prctl) DO(syscall)
/* clang-format on */
#define NEXT_NUMBER(name) NEXT_##name,
enum next { NEXT_FUNCTIONS(NEXT_NUMBER) NEXT_COUNT };
extern _Atomic(void *) next_functions[NEXT_COUNT];

/* Looks for all of them. It runs at program start. Other constructors may call a wrapper earlier. */
void next_find(void);
/* What stands for one that no library defines: it returns -1 and ENOSYS. */
int next_is_missing(void);

static inline void *next_function(enum next which) {
  if (UNLIKELY(load_relaxed(&next_functions[which]) == NULL))
    next_find();
  return load_relaxed(&next_functions[which]);
}
