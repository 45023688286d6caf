/* checked_zero: each byte of a block is read, or cleared, and none beside it, with each kind of vectors. */
#include "unit.h"

#include "checked/checked_zero.h"

#define SHORT_MAX ((size_t)2304)

static _Alignas(CACHE_LINE) unsigned char memory[CACHE_LINE + HAK_SMALL_MAX + CACHE_LINE];

static bool (*is_zero)(const void *block, size_t bytes);

#ifdef WIDE
WIDE static bool is_zero_wide(const void *block, size_t bytes) { return block_is_zero_wide(block, bytes); }
#endif

static void look(size_t offset, size_t bytes, size_t step) {
  unsigned char *block = memory + offset;
  memset(memory, 0xff, sizeof memory);
  memset(block, 0, bytes);
  if (!is_zero(block, bytes))
    fail_msg("%zu zeros at %zu are none", bytes, offset);
  for (size_t i = 0; i < bytes; i += step) {
    block[i] = 1;
    if (is_zero(block, bytes))
      fail_msg("byte %zu of %zu at %zu is not seen", i, bytes, offset);
    block[i] = 0;
  }
}

static void look_at_all(void) {
  for (size_t offset = BLOCK_ALIGNMENT; offset <= CACHE_LINE; offset += BLOCK_ALIGNMENT) {
    for (size_t bytes = BLOCK_ALIGNMENT; bytes <= SHORT_MAX; bytes += BLOCK_ALIGNMENT)
      look(offset, bytes, bytes < 512 ? 1 : 7);
    for (unsigned cls = HAK_TINY_CLASS_COUNT; cls < HAK_CLASS_COUNT; cls += 5)
      look(offset, class_bytes(cls), class_bytes(cls) / 7);
  }
}

UNIT_TEST(each_byte_counts) {
  is_zero = block_is_zero;
  look_at_all();
}

UNIT_TEST(each_byte_counts_in_wide_vectors) {
  zero_begin();
  if (!zero_is_wide)
    print_message("the processor has no wide vectors\n");
  is_zero = block_is_zero;
#ifdef WIDE
  if (zero_is_wide)
    is_zero = is_zero_wide;
#endif
  look_at_all();
}

#ifdef WIDE
WIDE static void clear(size_t offset, size_t bytes) {
  memset(memory, 0xff, sizeof memory);
  block_clear_wide(memory + offset, bytes);
  for (size_t i = 0; i < offset + bytes + CACHE_LINE; i++)
    if (memory[i] != (i < offset || i >= offset + bytes ? 0xff : 0))
      fail_msg("byte %zd of %zu at %zu is %u", (ssize_t)(i - offset), bytes, offset, memory[i]);
}

UNIT_TEST(each_byte_is_cleared_by_wide_vectors) {
  zero_begin();
  if (!zero_is_wide)
    return;
  for (size_t offset = BLOCK_ALIGNMENT; offset <= CACHE_LINE; offset += BLOCK_ALIGNMENT) {
    for (size_t bytes = BLOCK_ALIGNMENT; bytes <= SHORT_MAX; bytes += BLOCK_ALIGNMENT)
      clear(offset, bytes);
    for (unsigned cls = HAK_TINY_CLASS_COUNT; cls < HAK_CLASS_COUNT; cls += 5)
      clear(offset, class_bytes(cls));
  }
}
#endif

UNIT_MAIN()
