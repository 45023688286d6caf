/* A library that hakmem is a part of: its own calls do not count. */
#include "profile/unwind.h"

#define KEEP() __asm__ volatile("" ::: "memory")

static NOINLINE unsigned deeper(uintptr_t *addresses, unsigned most, struct unwind_stack *known) {
  unsigned depth = unwind_from(0, addresses, most, known);
  KEEP();
  return depth;
}

__attribute__((visibility("default"))) unsigned library_walk(uintptr_t *addresses, unsigned most,
                                                             struct unwind_stack *known) {
  unsigned depth = deeper(addresses, most, known);
  KEEP();
  return depth;
}
