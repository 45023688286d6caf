/* The version and the build. */
#include "hakmem/hakmem.h"

const char *hak_version(void) {
  return "hakmem 0.1.0 ("
#if defined(__clang__)
         "clang " __clang_version__
#else
         "gcc " __VERSION__
#endif
#ifdef HAK_DEBUG
         ", check build"
#endif
         ")";
}
