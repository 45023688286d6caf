#include "checked/checked_block.h"

bool zero_is_wide;

void *block_begin_clear(struct kept kept, size_t bytes, size_t size) {
  return block_make_live(kept, bytes, size, checked.has_canary);
}

void *block_begin_narrow(struct kept kept, size_t bytes, size_t size) {
  if (UNLIKELY(!block_is_zero(kept.block, bytes)))
    fault_written_after_free(kept.block);
  return block_make_live(kept, bytes, size, checked.has_canary);
}

#if defined(__x86_64__)
#include <cpuid.h>

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

WIDE __attribute__((flatten)) void *block_begin_wide(struct kept kept, size_t bytes, size_t size) {
  if (UNLIKELY(!block_is_zero_wide(kept.block, bytes)))
    fault_written_after_free(kept.block);
  return block_make_live(kept, bytes, size, checked.has_canary);
}
#else
void zero_begin(void) {}
void *block_begin_wide(struct kept kept, size_t bytes, size_t size) { return block_begin_narrow(kept, bytes, size); }
#endif
