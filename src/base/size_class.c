#include "base/size_class.h"

/* Order of a class's slab: the shortest that holds 8 blocks and whose tail is below 1/24. The fewer blocks a slab has,
 * the sooner it is empty and serves another class (docs/decisions/0025-one-clock.md). */
#define BLOCKS_MIN 8
#define TAIL_SHARE 24
#define SERVES(bytes, order)                                                                                           \
  ((UNIT_BYTES << (order)) / (bytes) >= BLOCKS_MIN &&                                                                  \
   (UNIT_BYTES << (order)) % (bytes) * TAIL_SHARE <= UNIT_BYTES << (order))
#define ORDER(bytes)                                                                                                   \
  (SERVES(bytes, 0) ? 0 : SERVES(bytes, 1) ? 1 : SERVES(bytes, 2) ? 2 : SERVES(bytes, 3) ? 3 : SERVES(bytes, 4) ? 4 : 5)

#define CLASS(size)                                                                                                    \
  {.inverse = UINT64_MAX / (size) + 1,                                                                                 \
   .bytes = (size),                                                                                                    \
   .block_count = (uint16_t)((UNIT_BYTES << ORDER(size)) / (size)),                                                    \
   .order = ORDER(size)}
#define TINY4(n) CLASS((n) * 16), CLASS(((n) + 1) * 16), CLASS(((n) + 2) * 16), CLASS(((n) + 3) * 16)
#define TINY16(n) TINY4(n), TINY4((n) + 4), TINY4((n) + 8), TINY4((n) + 12)
/* The eight classes above `base`, a power of two, and all but the first of them. */
#define OCTAVE_REST(base)                                                                                              \
  CLASS((base) / 8 * 10), CLASS((base) / 8 * 11), CLASS((base) / 8 * 12), CLASS((base) / 8 * 13),                      \
      CLASS((base) / 8 * 14), CLASS((base) / 8 * 15), CLASS((base) / 8 * 16)
#define OCTAVE(base) CLASS((base) / 8 * 9), OCTAVE_REST(base)

/* The four classes above it. */
#define LONG_OCTAVE(base) CLASS((base) / 4 * 5), CLASS((base) / 4 * 6), CLASS((base) / 4 * 7), CLASS((base) / 4 * 8)

/* Long classes are few, so that what a program frees serves its next sizes (decision 0054). */
const struct size_class size_classes[HAK_CLASS_COUNT] = {
    {.bytes = 0},      TINY16(1),    TINY16(17),   TINY16(33),        TINY16(49),         TINY4(65),         TINY4(69),
    OCTAVE_REST(1024), OCTAVE(2048), OCTAVE(4096), LONG_OCTAVE(8192), LONG_OCTAVE(16384), LONG_OCTAVE(32768)};

_Static_assert(sizeof size_classes / sizeof size_classes[0] == 1 + 72 + 3 * 8 - 1 + 3 * 4, "one row a class");
_Static_assert((UNIT_BYTES << 5) == ROW_BYTES, "each slab fits a row");
_Static_assert(HAK_SMALL_MAX == UNIT_BYTES, "a large object has more than a unit (stash_units_of)");

unsigned class_aligned(size_t size, size_t alignment) {
  if (size > HAK_SMALL_MAX || alignment > HAK_SMALL_MAX)
    return 0;
  size_t rounded = round_up(max_size(size, 1), alignment);
  while (rounded <= HAK_SMALL_MAX) {
    unsigned cls = hak_class_of(rounded);
    if ((class_bytes(cls) & (alignment - 1)) == 0) /* a slab is longer than its blocks, and aligned to its length */
      return cls;
    rounded = round_up(class_bytes(cls) + 1, alignment);
  }
  return 0;
}
