/* use_up.h: makes as many mappings as the system allows a process. */
#pragma once

#include <sys/mman.h>

#include "../check.h"

#define USED_UP_PAGES 140000
#define USED_UP_BYTES ((size_t)USED_UP_PAGES * 4096)

/* Returns the range whose end gives them back. */
static inline char *use_up_mappings(void) {
  char *range = mmap(NULL, USED_UP_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(range != MAP_FAILED);
  for (size_t i = 0; i < USED_UP_PAGES; i += 2)
    if (mprotect(range + i * 4096, 4096, PROT_READ) != 0)
      return range;
  test_skip("the system allows more mappings than this test makes");
}
