/* large: objects of their own range: cache, resizing, marks in the page map, alignment, trimming. */
#include "unit.h"

#include "large/large.h"
#include "map/page_map.h"
#include "os/os.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static struct large_stats stats(void) {
  struct large_stats s;
  large_stats(&s);
  return s;
}

static char *alloc(size_t size, size_t alignment) {
  bool zeroed;
  return large_alloc(size, alignment, &zeroed);
}

static void assert_marks(const char *object, size_t bytes, uint32_t first, uint32_t others) {
  assert_int_equal(map_entry(object), first);
  assert_int_equal(map_entry(object + UNIT_BYTES - 1), first);
  for (size_t i = UNIT_BYTES; i < bytes; i += UNIT_BYTES)
    assert_int_equal(map_entry(object + i), others);
}

static void pattern_write(char *object, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 4096)
    memcpy(object + i, &i, sizeof i);
}

static void assert_pattern(const char *object, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 4096)
    assert_memory_equal(object + i, &i, sizeof i);
}

static int empty_cache(void **state) {
  (void)state;
  large_trim(0);
  assert_int_equal(stats().cached_bytes, 0);
  assert_int_equal(stats().live_count, 0);
  assert_int_equal(stats().live_bytes, 0);
  return 0;
}

static void marks_follow_the_object(void **state) {
  (void)state;
  const size_t sizes[] = {1, HAK_SMALL_MAX + 1, MIB, 5 * MIB + 1};
  for (unsigned i = 0; i < 4; i++) {
    bool zeroed;
    char *object = large_alloc(sizes[i], 16, &zeroed);
    size_t bytes = round_up(sizes[i], UNIT_BYTES);
    assert_non_null(object);
    assert_true(zeroed);
    assert_int_equal(large_bytes(object), bytes);
    assert_marks(object, bytes, ENTRY_LARGE, ENTRY_LARGE_BODY);
    assert_int_equal((uintptr_t)object % (sizes[i] >= SUPERSLAB_BYTES ? SUPERSLAB_BYTES : UNIT_BYTES), 0);
    for (size_t b = 0; b < bytes; b += 1000)
      assert_int_equal(object[b], 0);
    assert_int_equal(stats().live_bytes, bytes);
    large_free(object);
    assert_marks(object, bytes, ENTRY_LARGE_FREE, ENTRY_LARGE_FREE);
    assert_int_equal(stats().cached_bytes, bytes);
    assert_int_equal(large_trim(0), bytes);
    assert_marks(object, bytes, ENTRY_NONE, ENTRY_NONE);
  }
}

static void cache_serves_what_fits_closely(void **state) {
  (void)state;
  char *object = alloc(8 * MIB, 16);
  large_free(object);
  bool zeroed = true;
  char *small = large_alloc(6 * MIB, 16, &zeroed); /* a quarter would be wasted */
  assert_ptr_not_equal(small, object);
  assert_true(zeroed);
  char *same = large_alloc(8 * MIB - MIB / 2, 16, &zeroed);
  assert_ptr_equal(same, object);
  assert_false(zeroed);
  assert_int_equal(large_bytes(same), 8 * MIB); /* the whole range */
  assert_marks(same, 8 * MIB, ENTRY_LARGE, ENTRY_LARGE_BODY);
  assert_int_equal(stats().cached_bytes, 0);
  large_free(small);
  large_free(same);
  /* The smallest that fits. */
  char *tight = alloc(8 * MIB - 2 * UNIT_BYTES, 16);
  assert_ptr_equal(tight, object);
  char *other = alloc(8 * MIB - UNIT_BYTES, 16);
  large_free(tight);
  large_free(other);
  assert_ptr_equal(alloc(8 * MIB - 3 * UNIT_BYTES, 16), other);
  large_free(other);
}

static void cache_looks_at_alignment(void **state) {
  (void)state;
  char *object;
  char *kept[8];
  unsigned count = 0;
  while (((uintptr_t)(object = alloc(MIB / 2, 16)) & (4 * MIB - 1)) == 0 && count < 8)
    kept[count++] = object;
  large_free(object);
  char *aligned = alloc(MIB / 2, 4 * MIB);
  assert_int_equal((uintptr_t)aligned & (4 * MIB - 1), 0);
  assert_ptr_not_equal(aligned, object);
  large_free(aligned);
  while (count > 0)
    large_free(kept[--count]);
}

static void cache_is_bounded(void **state) {
  (void)state;
  assert_int_equal(options_parse("HAKMEM_LARGE_CACHE_MB", 21, "64"), OPTION_OK);
  size_t bytes_max = (size_t)option_value(OPTION_LARGE_CACHE_MB) << 20;
  char *huge = alloc(bytes_max / 2 + UNIT_BYTES, 16); /* too much for the cache */
  large_free(huge);
  assert_int_equal(stats().cached_bytes, 0);
  assert_int_equal(map_entry(huge), ENTRY_NONE);
  enum { COUNT = 100 };
  static char *objects[COUNT];
  for (unsigned i = 0; i < COUNT; i++)
    objects[i] = alloc(MIB + i * UNIT_BYTES, 16);
  for (unsigned i = 0; i < COUNT; i++) {
    large_free(objects[i]);
    assert_true(stats().cached_bytes <= bytes_max);
  }
  /* Every range is either cached or gone. */
  size_t cached = 0;
  for (unsigned i = 0; i < COUNT; i++) {
    uint32_t entry = map_entry(objects[i]);
    assert_true(entry == ENTRY_LARGE_FREE || entry == ENTRY_NONE);
    cached += entry == ENTRY_LARGE_FREE ? MIB + i * UNIT_BYTES : 0;
  }
  assert_int_equal(cached, stats().cached_bytes);
  assert_true(cached > bytes_max / 4);
  large_trim(4 * MIB);
  assert_true(stats().cached_bytes <= 4 * MIB);
}

static void growth_and_shrinkage_keep_the_contents(void **state) {
  (void)state;
  uint64_t seed = UNIT_SEED;
  for (unsigned round = 0; round < 10; round++) {
    size_t bytes = MIB;
    char *object = alloc(bytes, 16);
    char *neighbour = alloc(MIB, 16); /* often in the way */
    pattern_write(object, bytes);
    for (unsigned i = 0; i < 12; i++) {
      size_t wanted = round_up(HAK_SMALL_MAX + 1 + unit_random(&seed) % (12 * MIB), UNIT_BYTES);
      char *before = object;
      assert_non_null(object = large_resize(object, wanted - unit_random(&seed) % UNIT_BYTES));
      assert_pattern(object, min_size(bytes, wanted));
      for (size_t b = bytes; b < wanted; b += 4096)
        assert_int_equal(object[b], 0); /* fresh pages */
      assert_int_equal(large_bytes(object), wanted);
      assert_marks(object, wanted, ENTRY_LARGE, ENTRY_LARGE_BODY);
      if (object == before && wanted < bytes)
        assert_marks(object + wanted, bytes - wanted, ENTRY_NONE, ENTRY_NONE);
      if (wanted < bytes)
        assert_ptr_equal(object, before);
      if (object != before && before + bytes <= object)
        assert_int_equal(map_entry(before), ENTRY_NONE);
      bytes = wanted;
      pattern_write(object, bytes);
      assert_int_equal(stats().live_bytes, bytes + MIB);
    }
    large_free(neighbour);
    large_free(object);
    large_trim(0);
  }
}

static void resizing_within_the_last_unit_changes_nothing(void **state) {
  (void)state;
  char *object = alloc(MIB, 16);
  assert_ptr_equal(large_resize(object, MIB - UNIT_BYTES + 1), object);
  assert_int_equal(large_bytes(object), MIB);
  large_free(object);
}

static void alignment_reaches_a_gib(void **state) {
  (void)state;
  for (size_t alignment = 16; alignment <= GIB; alignment *= 2) {
    const size_t sizes[] = {1, MIB / 2, 3 * MIB};
    for (unsigned i = 0; i < 3; i++) {
      char *object = alloc(sizes[i], alignment);
      assert_non_null(object);
      assert_int_equal((uintptr_t)object & (alignment - 1), 0);
      assert_marks(object, round_up(sizes[i], UNIT_BYTES), ENTRY_LARGE, ENTRY_LARGE_BODY);
      object[0] = object[sizes[i] - 1] = 1;
      large_free(object);
      char *block = unit_opaque(hak_aligned_alloc(alignment, sizes[i]));
      assert_non_null(block);
      assert_int_equal((uintptr_t)block & (alignment - 1), 0);
      memset(block, 1, sizes[i]);
      hak_free(block);
    }
  }
}

static void impossible_requests_are_refused(void **state) {
  (void)state;
  const size_t sizes[] = {(size_t)1 << 50, (size_t)1 << 62, PTRDIFF_MAX};
  for (unsigned i = 0; i < 3; i++) {
    assert_null(alloc(sizes[i], 16));
    assert_null(alloc(sizes[i], (size_t)1 << 62));
    errno = 0;
    assert_null(hak_malloc(sizes[i]));
    assert_int_equal(errno, ENOMEM);
  }
  assert_null(alloc(1, (size_t)1 << 62));
  char *object = alloc(MIB, 16);
  pattern_write(object, MIB);
  assert_null(large_resize(object, PTRDIFF_MAX));
  assert_int_equal(large_bytes(object), MIB);
  assert_pattern(object, MIB);
  assert_marks(object, MIB, ENTRY_LARGE, ENTRY_LARGE_BODY);
  large_free(object);
}

static void free_object(void *object) { hak_free(object); }

static void bugs_end_the_program_with_their_sentence(void **state) {
  (void)state;
  char *object = alloc(MIB, 16);
  static const char inside[] = ", which is not the start of a block";
  unit_must_die(free_object, object + 16, "free of ", object + 16, inside);
  unit_must_die(free_object, object + UNIT_BYTES, "free of ", object + UNIT_BYTES, inside);
  large_free(object);
  unit_must_die(free_object, object, "double free of block ", object, "");
  unit_must_die(free_object, object + UNIT_BYTES, "double free of block ", object + UNIT_BYTES, "");
  large_trim(0);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, empty_cache, empty_cache)
  const struct CMUnitTest tests[] = {
      TEST(marks_follow_the_object),
      TEST(cache_serves_what_fits_closely),
      TEST(cache_looks_at_alignment),
      TEST(cache_is_bounded),
      TEST(growth_and_shrinkage_keep_the_contents),
      TEST(resizing_within_the_last_unit_changes_nothing),
      TEST(alignment_reaches_a_gib),
      TEST(impossible_requests_are_refused),
      TEST(bugs_end_the_program_with_their_sentence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
