/* size_class.h: the only table of size classes.
 *
 * A slab of class c is `1 << order` units long, aligned to its length, and cut into blocks from offset 0. So a class
 * serves an alignment up to the slab's length if its size is a multiple of the alignment.
 *   C1  bytes is a multiple of BLOCK_ALIGNMENT and grows with c
 *   C2  of offset * inverse the upper 64 bits are offset / bytes, and the lower ones are below the inverse if and only
 *       if the remainder is 0, for every offset inside a slab
 * The table is a constant: valid before any constructor.
 */
#pragma once

#include "base/words.h"

struct size_class {
  uint64_t inverse;     /* 2^64 / bytes, rounded up: C2 holds below 2^32 (Lemire, Kaser and Kurz 2019) */
  uint32_t bytes;       /* block size */
  uint16_t block_count; /* blocks in a slab */
  uint8_t order;        /* log2 of the slab's units */
};

extern HAK_HIDDEN const struct size_class size_classes[HAK_CLASS_COUNT];

static inline size_t class_bytes(unsigned cls) { return size_classes[cls].bytes; }
static inline size_t class_slab_bytes(unsigned cls) { return UNIT_BYTES << size_classes[cls].order; }
/* Sets the index of the block that an offset inside a slab lies in. False: it is not the block's start (C2). */
static ALWAYS_INLINE bool block_index(uint64_t inverse, size_t offset, size_t *index) {
  __uint128_t product = (__uint128_t)offset * inverse;
  *index = (size_t)(product >> 64);
  return (uint64_t)product < inverse;
}
/* The same by two products, for a function that calls nothing: gcc saves two registers for one of 128 bits. */
static ALWAYS_INLINE bool block_index_alone(uint64_t inverse, size_t offset, size_t *index) {
  *index = (size_t)((__uint128_t)offset * inverse >> 64);
  return offset * inverse < inverse;
}

/* Returns the smallest class with `size` bytes at multiples of `alignment` (a power of two); 0 if there is none. */
unsigned class_aligned(size_t size, size_t alignment);
