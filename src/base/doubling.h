/* doubling.h: where the elements of an array lie that grows by chunks, each twice as long as the one before. Nothing
 * moves, so reading needs no lock, and a short array takes little memory. */
#pragma once

#include "base/words.h"

struct doubling_place {
  unsigned chunk;
  uint32_t index; /* in the chunk */
};

/* first: elements of the first chunk. */
static inline struct doubling_place doubling_place(uint32_t index, uint32_t first) {
  unsigned chunk = 31u - (unsigned)__builtin_clz(index / first + 1);
  return (struct doubling_place){.chunk = chunk, .index = index + first - (first << chunk)};
}
