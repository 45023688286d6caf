/* The version and the build. */
#include "hakmem/hakmem.h"

#define TEXT(first, second, third) #first "." #second "." #third
#define DOTTED(first, second, third) TEXT(first, second, third) /* of the macros' values */

const char *hak_version(void) {
  return "hakmem " DOTTED(HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR, HAKMEM_VERSION_PATCH)
#if defined(__clang__)
      " (clang " DOTTED(__clang_major__, __clang_minor__, __clang_patchlevel__)
#else
      " (gcc " __VERSION__
#endif
#ifdef HAK_DEBUG
          ", check build"
#endif
          ")";
}
