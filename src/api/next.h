/* next.h: the functions behind those that the preloaded library wraps, as the libraries after it define them. */
#pragma once

#include "base/words.h"

enum next {
  NEXT_UNSHARE,
  NEXT_SETNS,
  NEXT__FORK,
  NEXT_FORK,
  NEXT_CLONE,
  NEXT_MLOCKALL,
  NEXT_DLOPEN,
  NEXT_PRCTL,
  NEXT_SYSCALL,
  NEXT_COUNT
};
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
