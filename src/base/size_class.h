/* size_class.h: the only table of size classes.
 *
 * A slab of class c is `1 << order` units long, aligned to its length inside its superslab, and cut
 * into blocks from offset 0. So a class serves an alignment up to the slab's length if its size is a
 * multiple of the alignment.
 *   C1  bytes is a multiple of BLOCK_ALIGNMENT and grows with c
 *   C2  offset / bytes == offset * reciprocal >> RECIPROCAL_SHIFT for every offset inside a slab
 * The table is a constant: valid before any constructor.
 */
#pragma once

#include "base/words.h"

/* C2 (Granlund and Montgomery 1994, theorem 4.2): with reciprocal = floor(2^s / d) + 1 the excess
 * e = reciprocal * d - 2^s is at most d, and the quotient is exact while offset * e < 2^s.
 * offset < 2^21 and d <= 2^16 give 2^37. */
#define RECIPROCAL_SHIFT 40

struct size_class {
  uint64_t reciprocal;
  uint32_t bytes;       /* block size */
  uint16_t block_count; /* blocks in a slab */
  uint8_t order;        /* log2 of the slab's units */
};

extern HAK_HIDDEN const struct size_class size_classes[HAK_CLASS_COUNT];

static inline size_t class_bytes(unsigned cls) { return size_classes[cls].bytes; }
static inline size_t class_slab_bytes(unsigned cls) { return UNIT_BYTES << size_classes[cls].order; }
/* Returns the index of the block that an offset inside a slab lies in (C2). */
static inline size_t class_index(const struct size_class *class, size_t offset) {
  return (size_t)(offset * class->reciprocal >> RECIPROCAL_SHIFT);
}

/* Returns the smallest class with `size` bytes at multiples of `alignment` (a power of two); 0 if there is none. */
unsigned class_aligned(size_t size, size_t alignment);
