#include "api/next.h"

#include <dlfcn.h>
#include <errno.h>

#define NEXT_NAME(name) #name,

_Atomic(void *) next_functions[NEXT_COUNT];

int next_is_missing(void) {
  errno = ENOSYS;
  return -1;
}

__attribute__((constructor)) void next_find(void) {
  static const char names[NEXT_COUNT][9] = {NEXT_FUNCTIONS(NEXT_NAME)};
  for (unsigned i = 0; i < NEXT_COUNT; i++) {
    void *found = dlsym(RTLD_NEXT, names[i]);
    store_relaxed(&next_functions[i], found ? found : (void *)next_is_missing);
  }
}
