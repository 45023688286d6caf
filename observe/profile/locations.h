/* locations.h: numbers for addresses: 1, 2, 3, ..., in the order in which they are first asked for. One thread's.
 * Memory comes from os_map; all zeros is empty.
 */
#ifndef HAK_PROFILE_LOCATIONS_H
#define HAK_PROFILE_LOCATIONS_H

#include "base/words.h"

struct location {
  uintptr_t address;
  uint64_t number; /* 0: the place is free */
};

struct locations {
  struct location *places; /* open addressing */
  size_t capacity, count;
};

/* 0: no memory. It is a fresh one if `count` has grown. */
uint64_t locations_number(struct locations *locations, uintptr_t address);
void locations_clear(struct locations *locations);

#endif
