/* RTLD_DEEPBIND lets a loaded library find libc's malloc and free before ours, while libc's strdup, getline and so on
 * call ours. The library then frees our blocks with libc's free, which aborts. So this wrapper of dlopen drops the flag
 * (HAKMEM_DEEPBIND=keep leaves it; docs/decisions/0004). dlopen finds the caller's search path by the return address,
 * so the wrapper ends in a tail call; tests/dlopen checks that the compiler makes it a jump. */
#include "base/observers.h"
#include "base/options.h"

#include <dlfcn.h>

#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0
#endif

typedef void *dlopen_function(const char *path, int flags);

static _Atomic(dlopen_function *) next_dlopen;

__attribute__((constructor)) static void find_next(void) {
  dlopen_function *next;
  *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
  atomic_store_explicit(&next_dlopen, next, memory_order_relaxed);
  atomic_store_explicit(&observers_libraries_told, true, memory_order_relaxed);
}

__attribute__((visibility("default"))) void *dlopen(const char *path, int flags) {
  if (option_value(OPTION_DEEPBIND) == DEEPBIND_DROP)
    flags &= ~RTLD_DEEPBIND;
  if (path != NULL && *path != 0 && observers.libraries_changed != NULL) /* without a path: the program, which stays */
    observers.libraries_changed();
  dlopen_function *next = atomic_load_explicit(&next_dlopen, memory_order_relaxed);
  if (UNLIKELY(next == NULL)) {
    find_next();
    next = atomic_load_explicit(&next_dlopen, memory_order_relaxed);
  }
  return next(path, flags);
}
