/* words.h: the sizes of address space and the small arithmetic that all layers share. */
#pragma once

#ifndef HAK_NO_INLINE_NAMES
#define HAK_NO_INLINE_NAMES
#endif
#include "hakmem/inline.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A unit is the granule of the page map. A row is the range that one row of the page map covers: 32 units, and one huge
 * page on x86-64 and on aarch64 with 4 KiB pages. A leaf is the range that one page-map leaf covers. */
#define UNIT_BYTES ((size_t)1 << HAK_UNIT_SHIFT)
#define ROW_SHIFT 21
#define ROW_BYTES ((size_t)1 << ROW_SHIFT)
#define ROW_UNITS 32u
#define LEAF_BYTES ((size_t)1 << HAK_LEAF_SHIFT)
#define LEAF_UNITS ((size_t)1 << (HAK_LEAF_SHIFT - HAK_UNIT_SHIFT))
#define LEAF_ROWS ((size_t)1 << (HAK_LEAF_SHIFT - ROW_SHIFT))

#define MAPPING_BYTES_MIN ((size_t)32 << 20) /* large objects from here on are mappings of their own */
#define BLOCK_ALIGNMENT ((size_t)16)
#define CACHE_LINE 64

#define EXPORT __attribute__((visibility("default"))) /* a name of the library */
#define NOINLINE __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define COLD __attribute__((cold, noinline))
/* A zeroed array of which most programs use little or nothing. The shared library (src/hakmem.ld.in) puts such arrays
 * behind the other variables, so that those share pages. */
#define SPARSE __attribute__((section(".bss.sparse")))
#define LIKELY HAK_LIKELY
#define UNLIKELY HAK_UNLIKELY

_Static_assert(ROW_BYTES / UNIT_BYTES == ROW_UNITS, "a row is 32 units");
_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "64-bit systems only");
_Static_assert(sizeof(struct hak_bin) == 1 << HAK_ENTRY_CLASS_SHIFT, "an entry's class part is a bin's offset");
_Static_assert(HAK_ENTRY_END <= 1 << HAK_ENTRY_KIND_SHIFT, "classes stay below kinds");
_Static_assert(HAK_CLASS_COUNT <= HAK_SPLIT && HAK_CLASS_COUNT + HAK_SPLIT <= HAK_BIN_COUNT,
               "the two bins of a class in a split heap are of no other class");

static inline uintptr_t round_up(uintptr_t value, size_t power_of_two) {
  return (value + power_of_two - 1) & ~(uintptr_t)(power_of_two - 1);
}
static inline uintptr_t round_down(uintptr_t value, size_t power_of_two) {
  return value & ~(uintptr_t)(power_of_two - 1);
}
static inline bool is_power_of_two(size_t value) { return value != 0 && (value & (value - 1)) == 0; }
/* Saturating subtraction: a - b, or 0 if b is larger. Both are read once, because other threads may change them. */
static inline size_t sub_sat(size_t a, size_t b) { return a > b ? a - b : 0; }
static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* At the end of the function or block errno is what it is here, whatever was called between. */
#define KEEP_ERRNO __attribute__((cleanup(errno_restore), unused)) const int errno_kept = errno
static ALWAYS_INLINE void errno_restore(const int *kept) { errno = *kept; }

/* Relaxed accesses order nothing. Those that order others are written out. */
#define load_relaxed(object) atomic_load_explicit((object), memory_order_relaxed)
#define store_relaxed(object, value) atomic_store_explicit((object), (value), memory_order_relaxed)
/* Adds to a sum with one writer at a time, its owner or the holder of a lock: a plain store is enough. */
#define add_as_owner(sum, amount) store_relaxed((sum), load_relaxed(sum) + (amount))

/* SplitMix64 (Steele, Lea and Flood): scatters neighbouring numbers over all 64 bits. */
#define MIX_STEP UINT64_C(0x9e3779b97f4a7c15)
static inline uint64_t mix_bits(uint64_t z) {
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}
