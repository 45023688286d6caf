/* checked_zero.h: tells whether a free block reads as zero. The length is a multiple of 16. */
#pragma once

#include "base/words.h"

/* The processor has vectors of a cache line. Set once, at program start. */
extern HAK_HIDDEN bool zero_is_wide;
void zero_begin(void);

/* As block_is_zero, by such vectors. */
bool block_is_zero_wide(const void *block, size_t bytes);

typedef uint64_t vector __attribute__((vector_size(BLOCK_ALIGNMENT), may_alias));
#define STRIDE 4u /* vectors that are read at a time, from each end */

/* The strides from both ends meet or overlap in the middle, so that the loop's end is the only branch. */
static inline bool block_is_zero(const void *block, size_t bytes) {
  const vector *at = block, *end = at + bytes / BLOCK_ALIGNMENT;
  vector any = {0, 0};
  if (bytes < STRIDE * BLOCK_ALIGNMENT) {
    for (; at < end; at++)
      any |= *at;
    return (any[0] | any[1]) == 0;
  }
  do {
    end -= STRIDE;
    any |= (at[0] | at[1]) | (at[2] | at[3]);
    any |= (end[0] | end[1]) | (end[2] | end[3]);
    at += STRIDE;
  } while (at < end);
  return (any[0] | any[1]) == 0;
}
