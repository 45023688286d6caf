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

/* The classes above 1152 bytes, each behind the one before it. Long classes are few, so that what a program frees
 * serves its next sizes (decision 0054). All but 4368 (decision 0074) are multiples of an eighth or a quarter of a
 * power of two, so that they serve aligned requests. */
/* clang-format off */
#define MID_CLASSES(DO) \
  DO(1152, 1280) DO(1280, 1408) DO(1408, 1536) DO(1536, 1664) DO(1664, 1792) DO(1792, 1920) DO(1920, 2048) \
  DO(2048, 2304) DO(2304, 2560) DO(2560, 2816) DO(2816, 3072) DO(3072, 3328) DO(3328, 3584) DO(3584, 3840) \
  DO(3840, 4096) DO(4096, 4368) DO(4368, 4608) DO(4608, 5120) DO(5120, 5632) DO(5632, 6144) DO(6144, 6656) \
  DO(6656, 7168) DO(7168, 7680) DO(7680, 8192)
#define LONG_CLASSES(DO) \
  DO(8192, 10240) DO(10240, 12288) DO(12288, 14336) DO(14336, 16384) DO(16384, 20480) DO(20480, 24576) \
  DO(24576, 28672) DO(28672, 32768) DO(32768, 40960) DO(40960, 49152) DO(49152, 57344) DO(57344, 65536)

#define ROW(before, bytes) CLASS(bytes),
const struct size_class size_classes[HAK_CLASS_COUNT] = {
    {.bytes = 0}, TINY16(1), TINY16(17), TINY16(33), TINY16(49), TINY4(65), TINY4(69),
    MID_CLASSES(ROW) LONG_CLASSES(ROW)};

#define NUMBER(before, bytes) CLASS_OF_##bytes,
enum { CLASS_OF_TINY_MAX = HAK_TINY_CLASS_COUNT - 1, MID_CLASSES(NUMBER) LONG_CLASSES(NUMBER) CLASS_COUNT };
#define MID_STEPS(before, bytes) [(before) / HAK_MID_STEP + 1 ... (bytes) / HAK_MID_STEP] = CLASS_OF_##bytes,
const uint8_t hak_mid_classes[] = {MID_CLASSES(MID_STEPS)};
#define LONG_STEPS(before, bytes) [(before) / HAK_LONG_STEP + 1 ... (bytes) / HAK_LONG_STEP] = CLASS_OF_##bytes,
const uint8_t hak_long_classes[] = {LONG_CLASSES(LONG_STEPS)};
/* clang-format on */

_Static_assert(CLASS_COUNT == HAK_CLASS_COUNT, "one row a class");
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
