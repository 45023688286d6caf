/* locations.h: numbers addresses 1, 2, 3, ... in the order of the first request. For use by one thread. Memory comes
 * from os_map. A struct of zeros is empty.
 */
#pragma once

#include "base/words.h"

struct location {
  uintptr_t address;
  uint64_t number; /* 0: the place is free */
};

struct locations {
  struct location *places; /* open addressing */
  size_t capacity, count;
};

/* Returns the number of an address, a new one if `count` has grown. 0: no memory. */
uint64_t locations_number(struct locations *locations, uintptr_t address);
void locations_clear(struct locations *locations);
