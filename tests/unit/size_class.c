/* size_class: the table and the arithmetic around it, exhaustively. */
#include "unit.h"

#include "base/doubling.h"
#include "slab/slab.h"

UNIT_TEST(sizes_grow_and_are_multiples_of_16) {
  assert_int_equal(class_bytes(0), 0);
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    assert_true(class_bytes(cls) > class_bytes(cls - 1));
    assert_int_equal(class_bytes(cls) % BLOCK_ALIGNMENT, 0);
  }
  assert_int_equal(class_bytes(HAK_TINY_CLASS_COUNT - 1), HAK_TINY_MAX);
  assert_int_equal(class_bytes(HAK_CLASS_COUNT - 1), HAK_SMALL_MAX);
}

UNIT_TEST(every_size_gets_the_smallest_class_that_holds_it) {
  unsigned smallest = 1;
  for (size_t size = 1; size <= HAK_SMALL_MAX; size++) {
    if (class_bytes(smallest) < size)
      smallest++;
    if (hak_class_of(size) != smallest)
      fail_msg("size %zu: class %u, not %u", size, hak_class_of(size), smallest);
  }
}

UNIT_TEST(one_kib_and_a_header_is_hardly_rounded_up) {
  for (size_t header = 0; header <= 128; header++)
    assert_true(class_bytes(hak_class_of(1024 + header)) < 1024 + header + BLOCK_ALIGNMENT);
}

UNIT_TEST(a_page_and_a_header_is_hardly_rounded_up) {
  const struct size_class *class = &size_classes[hak_class_of(4096 + 269)]; /* a page in sqlite's cache */
  assert_true(class->bytes < 4096 + 269 + BLOCK_ALIGNMENT);
  assert_true(class_slab_bytes((unsigned)(class - size_classes)) - class->block_count * (size_t)class->bytes < 64);
}

UNIT_TEST(waste_inside_a_block_is_bounded) {
  for (size_t size = 129; size <= HAK_SMALL_MAX; size++) {
    size_t waste = class_bytes(hak_class_of(size)) - size;
    size_t share = size <= HAK_MID_MAX ? 8 : 4;
    if (waste * share > size)
      fail_msg("size %zu wastes %zu bytes, over 1/%zu", size, waste, share);
  }
}

UNIT_TEST(slabs_hold_8_blocks_and_tails_stay_below_an_eighth) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    const struct size_class *class = &size_classes[cls];
    size_t used = (size_t)class->block_count * class->bytes;
    assert_true(class->order <= RUN_ORDER_MAX);
    assert_true(class->block_count >= 8);
    assert_true(class->block_count <= 64 * 64); /* bits of one unit's bitmap */
    assert_true(used <= class_slab_bytes(cls));
    assert_true(class_slab_bytes(cls) - used < class->bytes);
    assert_true((class_slab_bytes(cls) - used) * 8 < class_slab_bytes(cls));
  }
}

/* Around each block's start: the last and first offsets where a wrong quotient would show. */
UNIT_TEST(the_inverse_divides_exactly) {
  size_t index;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    const struct size_class *class = &size_classes[cls];
    for (size_t start = 0; start <= class_slab_bytes(cls); start += class->bytes)
      for (size_t offset = start < 2 ? 0 : start - 2; offset <= start + 2 && offset < class_slab_bytes(cls); offset++)
        if (block_index(class->inverse, offset, &index) != (offset % class->bytes == 0) ||
            index != offset / class->bytes)
          fail_msg("class %u, offset %zu", cls, offset);
  }
}

UNIT_TEST(only_block_starts_are_block_starts) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    uintptr_t base = (uintptr_t)7 << ROW_SHIFT;
    size_t bytes = class_bytes(cls), count = size_classes[cls].block_count;
    for (size_t index = 0; index < count; index++) {
      assert_true(slab_is_block_start((void *)(base + index * bytes), cls));
      assert_false(slab_is_block_start((void *)(base + index * bytes + 1), cls));
      assert_false(slab_is_block_start((void *)(base + index * bytes + bytes / 2), cls));
      assert_false(slab_is_block_start((void *)(base + index * bytes + bytes - 1), cls));
    }
    if (count * bytes < class_slab_bytes(cls)) /* the tail */
      assert_false(slab_is_block_start((void *)(base + count * bytes), cls));
  }
}

static unsigned smallest_aligned_class(size_t size, size_t alignment) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++)
    if (class_bytes(cls) >= size && class_bytes(cls) % alignment == 0)
      return cls;
  return 0;
}

UNIT_TEST(class_aligned_is_the_smallest_that_serves_the_alignment) {
  for (size_t alignment = 1; alignment <= HAK_SMALL_MAX; alignment *= 2) {
    for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++) {
      size_t sizes[] = {class_bytes(cls), class_bytes(cls) + 1, class_bytes(cls) + alignment - 1};
      for (unsigned i = 0; i < 3; i++) {
        unsigned got = class_aligned(sizes[i], alignment);
        unsigned wanted = sizes[i] <= HAK_SMALL_MAX ? smallest_aligned_class(sizes[i], alignment) : 0;
        if (got != wanted)
          fail_msg("size %zu, alignment %zu: class %u, not %u", sizes[i], alignment, got, wanted);
        /* Blocks are then aligned because the slab is, to its own length. */
        assert_true(got == 0 || alignment <= class_slab_bytes(got));
      }
    }
    for (size_t size = 1; size <= HAK_SMALL_MAX; size += 61)
      assert_int_equal(class_aligned(size, alignment), smallest_aligned_class(size, alignment));
  }
}

UNIT_TEST(class_aligned_knows_its_limits) {
  assert_int_equal(class_aligned(HAK_SMALL_MAX + 1, 1), 0);
  assert_int_equal(class_aligned(1, HAK_SMALL_MAX * 2), 0);
  assert_int_equal(class_aligned(SIZE_MAX, 16), 0);
  assert_int_equal(class_aligned(1, (size_t)1 << 63), 0);
  assert_int_equal(class_bytes(class_aligned(0, 1)), 16);
  assert_int_equal(class_bytes(class_aligned(1, HAK_SMALL_MAX)), HAK_SMALL_MAX);
}

/* A quarter more each time: 1.25^25 is above 64. A block that shrinks gets what was asked for. */
UNIT_TEST(a_block_that_grows_in_steps_is_copied_rarely) {
  enum { FIRST = 1000, COPIES_MAX = 25 };
  unsigned char *block = hak_malloc(FIRST);
  size_t usable = hak_usable_size(block);
  unsigned copies = 0;
  memset(block, 7, FIRST);
  for (size_t size = FIRST + 1; size <= HAK_SMALL_MAX; size++) {
    block = UNIT_GOT(hak_realloc(block, size));
    block[size - 1] = 7;
    if (hak_usable_size(block) == usable)
      continue;
    copies++;
    assert_true(hak_usable_size(block) >= min_size(usable + usable / 4, HAK_SMALL_MAX));
    usable = hak_usable_size(block);
    for (size_t i = 0; i < size; i++)
      assert_int_equal(block[i], 7);
  }
  assert_in_range(copies, 1, COPIES_MAX);
  block = hak_realloc(block, FIRST);
  assert_int_equal(hak_usable_size(block), class_bytes(hak_class_of(FIRST)));
  hak_free(block);
}

/* A long block stays as long as five eighths of it are asked for, so one that grew by a little and shrinks again is not
 * copied twice a turn. For less it moves to a shorter class. */
UNIT_TEST(a_long_block_that_shrinks_by_much_moves) {
  enum { SHORT_MAX = 2048 };
  for (unsigned cls = hak_class_of(SHORT_MAX) + 1; cls < HAK_CLASS_COUNT; cls++) {
    size_t bytes = class_bytes(cls), least = bytes / 8 * 5;
    unsigned char *block = UNIT_GOT(hak_malloc(bytes));
    memset(block, 7, bytes);
    assert_ptr_equal(hak_realloc(block, least), block);
    block = UNIT_GOT(hak_realloc(block, least - 1));
    assert_true(hak_usable_size(block) < bytes);
    for (size_t i = 0; i < least - 1; i++)
      assert_int_equal(block[i], 7);
    hak_free(block);
    block = UNIT_GOT(hak_malloc(bytes));
    block = UNIT_GOT(hak_realloc(block, bytes + 1));
    assert_ptr_equal(hak_realloc(block, bytes - bytes / 64), block);
    hak_free(block);
  }
}

/* One block lives at a time. Whatever length it has at its end, the next one takes its memory on the way. */
UNIT_TEST(blocks_that_grow_leave_little_behind) {
  enum { ROUNDS = 200 };
  static const struct {
    size_t longest, share, step;
  } rows[] = {{4000000, 8, 0}, {8000000, SIZE_MAX, 10000}, {1000000, SIZE_MAX, 4096}, {500000, SIZE_MAX, 1000}};
  for (unsigned row = 0; row < sizeof rows / sizeof rows[0]; row++)
    for (unsigned round = 0; round < ROUNDS; round++) {
      void *block = NULL;
      for (size_t size = 1000; size < rows[row].longest; size += size / rows[row].share + rows[row].step)
        block = UNIT_GOT(hak_realloc(block, size));
      hak_free(block);
      assert_in_range(usage_held(), 1, 32 << 20);
    }
}

/* Not of classes, but arithmetic, too. */
UNIT_TEST(chunks_that_double_have_one_place_for_each_index) {
  for (uint32_t first = 1; first <= 8; first *= 8) {
    struct doubling_place expected = {0};
    for (uint32_t index = 0; index < 1u << 20; index++) {
      struct doubling_place place = doubling_place(index, first);
      if (place.chunk != expected.chunk || place.index != expected.index)
        fail_msg("index %u of %u: chunk %u, %u", index, first, place.chunk, place.index);
      bool is_last = ++expected.index == first << expected.chunk;
      expected.chunk += is_last;
      expected.index *= !is_last;
    }
  }
}

UNIT_MAIN()
