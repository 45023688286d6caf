/* RTLD_DEEPBIND lets a loaded library find libc's malloc and free before ours, while libc's strdup, getline and so on
 * call ours. The library then frees our blocks with libc's free, which aborts. So this wrapper of dlopen drops the flag
 * (HAKMEM_DEEPBIND=keep leaves it; docs/decisions/0004). dlopen finds the caller's search path by the return address,
 * so the wrapper ends in a tail call; tests/dlopen checks that the compiler makes it a jump. */
#include "api/next.h"
#include "base/observers.h"
#include "base/options.h"

#include <dlfcn.h>

#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0
#endif

__attribute__((constructor)) static void libraries_are_told(void) { store_relaxed(&observers_libraries_told, true); }

EXPORT void *dlopen(const char *path, int flags) {
  if (option_value(OPTION_DEEPBIND) == DEEPBIND_DROP)
    flags &= ~RTLD_DEEPBIND;
  if (path != NULL && *path != 0 && observers.libraries_changed != NULL) /* without a path: the program, which stays */
    observers.libraries_changed();
  return ((void *(*)(const char *, int))next_function(NEXT_dlopen))(path, flags);
}
