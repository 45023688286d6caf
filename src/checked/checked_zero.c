#include "checked/checked_block.h"

bool zero_is_wide;

void *block_begin_clear(struct kept kept, size_t bytes, size_t size) { return block_make_live(kept, bytes, size); }

void *block_begin_narrow(struct kept kept, size_t bytes, size_t size) {
  if (UNLIKELY(!block_is_zero(kept.block, bytes)))
    fault_written_after_free(kept.block);
  return block_make_live(kept, bytes, size);
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define LINE ((size_t)CACHE_LINE)
#define STEP 8u /* lines */

#define AVX512_STATE 0xe6u /* in XCR0: the kernel saves the registers of SSE, AVX and AVX-512 */

static bool kernel_saves_registers(void) {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & AVX512_STATE) == AVX512_STATE;
}

/* Processors that have VBMI2 of AVX-512 do not lower their clock for wide loads. __builtin_cpu_supports would tell,
 * too, but its constructor in libgcc asks the processor a dozen times at the start of each program. In a virtual
 * machine each question costs 20 us. */
void zero_begin(void) {
  unsigned a, b, c, d;
  zero_is_wide = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE) && kernel_saves_registers() &&
                 __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX512F) && (c & bit_AVX512VBMI2);
}

#define WIDE __attribute__((target("avx512f")))
#define WORD_BYTES 4u /* a bit of a mask each */

/* Reads both ends, and the whole cache lines between them in steps. A step past the last line reads that one again. So
 * one branch in 512 bytes depends on the length, which the processor cannot foresee. */
WIDE bool block_is_zero_wide(const void *block, size_t bytes) {
  const char *begin = block, *end = begin + bytes;
  __m512i any;
  if (bytes <= LINE) {
    any = _mm512_maskz_loadu_epi32((__mmask16)((1u << bytes / WORD_BYTES) - 1), begin);
    return _mm512_test_epi32_mask(any, any) == 0;
  }
  any = _mm512_or_si512(_mm512_loadu_si512(begin), _mm512_loadu_si512(end - LINE));
  if (bytes > 2 * LINE) {
    const char *at = (const char *)round_up((uintptr_t)begin, LINE);
    const char *last = (const char *)round_down((uintptr_t)end, LINE) - LINE;
    do {
#pragma GCC unroll 8
      for (unsigned i = 0; i < STEP; i++) {
        const char *line = at + i * LINE;
        any = _mm512_or_si512(any, _mm512_load_si512(line < last ? line : last));
      }
      at += STEP * LINE;
    } while (at <= last);
  }
  return _mm512_test_epi32_mask(any, any) == 0;
}

WIDE __attribute__((flatten)) void *block_begin_wide(struct kept kept, size_t bytes, size_t size) {
  if (UNLIKELY(!block_is_zero_wide(kept.block, bytes)))
    fault_written_after_free(kept.block);
  return block_make_live(kept, bytes, size);
}
#else
void zero_begin(void) {}
bool block_is_zero_wide(const void *block, size_t bytes) { return block_is_zero(block, bytes); }
void *block_begin_wide(struct kept kept, size_t bytes, size_t size) { return block_begin_narrow(kept, bytes, size); }
#endif
