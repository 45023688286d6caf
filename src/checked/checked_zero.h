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
#define WIDE_WORD 4u         /* a bit of a mask each */
#define WIDE_CLEAR_MAX 2048u /* memset clears longer blocks faster */

/* Both begin at both ends and meet or overlap in the middle: 1, 2, 4 and 8 lines from each end, then, in blocks above
 * 1 KiB, steps of 8 lines between them. So a branch depends only on whether the length is above a power of two, which
 * the processor can often foresee, and no line is outside the block. */

/* The bits of 2 * count lines: `count` from `skip` lines behind the begin, and as many before the end. */
WIDE_INLINE __m512i lines_or(__m512i any, const char *begin, const char *end, size_t skip, size_t count) {
#pragma GCC unroll 8
  for (size_t i = skip; i < skip + count; i++)
    any = _mm512_or_si512(any, _mm512_loadu_si512(begin + i * WIDE_BYTES));
#pragma GCC unroll 8
  for (size_t i = skip + count; i > skip; i--)
    any = _mm512_or_si512(any, _mm512_loadu_si512(end - i * WIDE_BYTES));
  return any;
}

WIDE_INLINE bool block_is_zero_wide(const void *block, size_t bytes) {
  const char *begin = block, *end = begin + bytes;
  __m512i any = _mm512_setzero_si512();
  if (bytes <= WIDE_BYTES) {
    any = _mm512_maskz_loadu_epi32((__mmask16)((1u << bytes / WIDE_WORD) - 1), begin);
    return _mm512_test_epi32_mask(any, any) == 0;
  }
  any = lines_or(any, begin, end, 0, 1);
  if (bytes > 2 * WIDE_BYTES)
    any = lines_or(any, begin, end, 1, 1);
  if (bytes > 4 * WIDE_BYTES)
    any = lines_or(any, begin, end, 2, 2);
  if (bytes > 8 * WIDE_BYTES)
    any = lines_or(any, begin, end, 4, 4);
  for (const char *at = begin + 8 * WIDE_BYTES; at < end - 8 * WIDE_BYTES; at += 8 * WIDE_BYTES)
    any = lines_or(any, at, at + 8 * WIDE_BYTES, 0, 4);
  return _mm512_test_epi32_mask(any, any) == 0;
}

WIDE_INLINE void lines_clear(char *begin, char *end, size_t skip, size_t count) {
#pragma GCC unroll 8
  for (size_t i = skip; i < skip + count; i++)
    _mm512_storeu_si512(begin + i * WIDE_BYTES, _mm512_setzero_si512());
#pragma GCC unroll 8
  for (size_t i = skip + count; i > skip; i--)
    _mm512_storeu_si512(end - i * WIDE_BYTES, _mm512_setzero_si512());
}

WIDE_INLINE void block_clear_wide(void *block, size_t bytes) {
  char *begin = block, *end = begin + bytes;
  if (bytes <= WIDE_BYTES) {
    _mm512_mask_storeu_epi32(begin, (__mmask16)((1u << bytes / WIDE_WORD) - 1), _mm512_setzero_si512());
    return;
  }
  lines_clear(begin, end, 0, 1);
  if (bytes <= 2 * WIDE_BYTES)
    return;
  lines_clear(begin, end, 1, 1);
  if (bytes <= 4 * WIDE_BYTES)
    return;
  lines_clear(begin, end, 2, 2);
  if (bytes <= 8 * WIDE_BYTES)
    return;
  lines_clear(begin, end, 4, 4);
  for (char *at = begin + 8 * WIDE_BYTES; at < end - 8 * WIDE_BYTES; at += 8 * WIDE_BYTES)
    lines_clear(at, at + 8 * WIDE_BYTES, 0, 4);
}
#endif
