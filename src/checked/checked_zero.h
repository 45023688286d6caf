/* checked_zero.h: tells whether a free block reads as zero, and clears one. The length is a multiple of 16. */
#pragma once

#include "base/words.h"

/* The processor has vectors of a cache line. Set once, at program start. */
extern HAK_HIDDEN bool zero_is_wide;
void zero_begin(void);

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

/* The same by vectors of a cache line, inlined, for functions with this attribute. */
#ifdef __x86_64__
#include <immintrin.h>

#define WIDE __attribute__((target("avx512f")))
#define WIDE_INLINE WIDE static ALWAYS_INLINE
#define WIDE_BYTES ((size_t)CACHE_LINE)
#define WIDE_STEP 8u         /* lines */
#define WIDE_WORD 4u         /* a bit of a mask each */
#define WIDE_CLEAR_MAX 2048u /* memset clears longer blocks faster */

/* Reads both ends, and the whole cache lines between them in steps. A step past the last line reads that one again. So
 * one branch in 512 bytes depends on the length, which the processor cannot foresee. */
WIDE_INLINE bool block_is_zero_wide(const void *block, size_t bytes) {
  const char *begin = block, *end = begin + bytes;
  __m512i any;
  if (bytes <= WIDE_BYTES) {
    any = _mm512_maskz_loadu_epi32((__mmask16)((1u << bytes / WIDE_WORD) - 1), begin);
    return _mm512_test_epi32_mask(any, any) == 0;
  }
  any = _mm512_or_si512(_mm512_loadu_si512(begin), _mm512_loadu_si512(end - WIDE_BYTES));
  if (bytes > 2 * WIDE_BYTES) {
    const char *at = (const char *)round_up((uintptr_t)begin, WIDE_BYTES);
    const char *last = (const char *)round_down((uintptr_t)end, WIDE_BYTES) - WIDE_BYTES;
    do {
#pragma GCC unroll 8
      for (unsigned i = 0; i < WIDE_STEP; i++) {
        const char *line = at + i * WIDE_BYTES;
        any = _mm512_or_si512(any, _mm512_load_si512(line < last ? line : last));
      }
      at += WIDE_STEP * WIDE_BYTES;
    } while (at <= last);
  }
  return _mm512_test_epi32_mask(any, any) == 0;
}

/* How often the loop runs depends on the length only, not on the address, so that the processor can foresee the end for
 * blocks of one class. */
WIDE_INLINE void block_clear_wide(void *block, size_t bytes) {
  char *begin = block, *end = begin + bytes;
  __m512i zero = _mm512_setzero_si512();
  if (bytes <= WIDE_BYTES) {
    _mm512_mask_storeu_epi32(begin, (__mmask16)((1u << bytes / WIDE_WORD) - 1), zero);
    return;
  }
  _mm512_storeu_si512(begin, zero);
  for (char *at = begin + WIDE_BYTES; at < end - WIDE_BYTES; at += WIDE_BYTES) {
    _mm512_storeu_si512(at, zero);
    __asm__("" : "+r"(at)); /* or the compiler would call memset */
  }
  _mm512_storeu_si512(end - WIDE_BYTES, zero);
}
#endif
