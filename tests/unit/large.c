/* large: objects above the size classes, as extents and as mappings: cache, resizing, marks in the page map,
 * alignment, zeroes. */
#include "unit.h"

#include "large/range.h"
#include "pages/arena.h"

#define GIB ((size_t)1 << 30)
#define MAPPING_BYTES (32 * MIB) /* objects from here on are mappings */
#define GROWN_COUNT_MAX 256u     /* extents that became mappings */

#define LARGE_TEST(name) UNIT_TEST_BETWEEN(name, nothing_held, nothing_held)

static void *resize_at_once(void *object, size_t size) {
  bool is_dirty;
  return large_resize(object, size, &is_dirty);
}

static struct large_stats stats(void) {
  struct large_stats s;
  large_stats(&s);
  return s;
}

#define SITE_CHANGING 1u /* asks for many sizes */
#define SITE_STEADY 77u
#define STEADY_TIMES 16u

static char *alloc(size_t size, size_t alignment) {
  size_t dirty;
  return large_alloc(size, alignment, SITE_CHANGING, &dirty);
}

#define EXACT UNIT_BYTES /* alignment of an object that begins where its range does */

/* From a site that asked for this size many times: what it frees is cached. */
static char *alloc_steady_dirty(size_t size, size_t *dirty) {
  uintptr_t site = 1000 + units_class(large_length(size) / UNIT_BYTES);
  for (unsigned i = 0; i < STEADY_TIMES; i++)
    large_free(large_alloc(size, EXACT, site, dirty));
  return large_alloc(size, EXACT, site, dirty);
}
static char *alloc_steady(size_t size) {
  size_t dirty;
  return alloc_steady_dirty(size, &dirty);
}
/* So that the site of alloc has no habit. */
static void forget_habits(void) {
  for (unsigned i = 0; i < 8; i++) {
    large_free(alloc(HAK_SMALL_MAX + 1 + i % 2 * MIB, 16));
    range_evict(UNIT_EVERYTHING);
  }
}

static uint32_t entry_at(const char *address) {
  uint32_t entry = map_entry(address);
  return entry != ENTRY_NONE || address_in_arena(address) ? entry : range_entry_inside(address);
}

static void assert_marks(const char *object, size_t bytes, uint32_t first, uint32_t others) {
  assert_int_equal(map_entry(object), first);
  assert_int_equal(map_entry(object + UNIT_BYTES - 1), first);
  for (size_t i = UNIT_BYTES; i < bytes; i += UNIT_BYTES)
    assert_int_equal(entry_at(object + i), others);
}

static void assert_live(const char *object) {
  size_t offset = (uintptr_t)object % UNIT_BYTES;
  assert_marks(object - offset, offset + large_bytes(object), ENTRY_LARGE, ENTRY_LARGE_BODY);
}

static void assert_not_live(const char *address, size_t bytes) {
  for (size_t i = 0; i < bytes; i += UNIT_BYTES)
    assert_true(entry_at(address + i) != ENTRY_LARGE && entry_at(address + i) != ENTRY_LARGE_BODY);
}

/* A word in each unit or so, each time on another of its pages: ranges are whole units. */
#define PATTERN_BYTES (UNIT_BYTES + 4096)

static void pattern_write(char *object, size_t bytes) {
  for (size_t i = 0; i < bytes; i += PATTERN_BYTES) {
    uintptr_t word = (uintptr_t)i * 2654435761u + 1;
    memcpy(object + i, &word, sizeof word);
  }
}

static void assert_pattern(const char *object, size_t bytes) {
  for (size_t i = 0; i < bytes; i += PATTERN_BYTES) {
    uintptr_t word = (uintptr_t)i * 2654435761u + 1;
    assert_memory_equal(object + i, &word, sizeof word);
  }
}

static void valid(void) {
  UNIT_EXTENTS_VALID();
  UNIT_VALID(big_cache_is_valid());
}

static int nothing_held(void **state) {
  forget_habits();
  range_evict(UNIT_EVERYTHING);
  extents_purge(UNIT_EVERYTHING);
  valid();
  assert_int_equal(stats().cached_bytes, 0);
  assert_int_equal(stats().live_count, 0);
  assert_int_equal(stats().live_bytes, 0);
  assert_int_equal(stats().mapping_count, 0);
  assert_int_equal(usage_taken(), 0);
  assert_int_equal(usage_free(), 0);
  return 0;
}

LARGE_TEST(marks_follow_the_object) {
  const size_t sizes[] = {1, HAK_SMALL_MAX + 1, MIB, 5 * MIB + 1, 30 * MIB, 31 * MIB, MAPPING_BYTES, 50 * MIB + 1};
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    size_t dirty;
    bool mapping = large_length(sizes[i]) >= MAPPING_BYTES;
    char *object = UNIT_GOT(large_alloc(sizes[i], 16, 1, &dirty));
    assert_int_equal(dirty, 0); /* nothing is held that was used */
    size_t bytes = large_bytes(object);
    assert_int_equal(bytes, large_length(sizes[i]));
    assert_true(bytes >= sizes[i] && bytes - sizes[i] <= max_size(sizes[i] / 32, UNIT_BYTES));
    assert_live(object);
    assert_int_equal((uintptr_t)object % (mapping ? ROW_BYTES : UNIT_BYTES), 0);
    assert_int_equal(stats().mapping_count, mapping);
    assert_int_equal(address_in_arena(object), !mapping);
    for (size_t b = 0; b < bytes; b += 1000)
      assert_int_equal(object[b], 0);
    assert_int_equal(stats().live_bytes, bytes);
    assert_int_equal(usage_taken(), bytes);
    memset(object, 1, bytes);
    large_free(object);
    assert_not_live(object, bytes);
    range_evict(UNIT_EVERYTHING);
    extents_purge(UNIT_EVERYTHING);

    object = alloc_steady(sizes[i]);
    assert_live(object);
    large_free(object);
    assert_marks(object, bytes, ENTRY_LARGE_FREE, ENTRY_LARGE_FREE);
    assert_int_equal(stats().cached_bytes, bytes);
    assert_int_equal(usage_taken(), 0);
    assert_int_equal(usage_free(), bytes);
    valid();
    assert_int_equal(range_evict(UNIT_EVERYTHING), mapping ? bytes : 0);
    assert_int_equal(usage_free(), mapping ? 0 : bytes);
    if (mapping) {
      assert_marks(object, bytes, ENTRY_NONE, ENTRY_NONE);
    } else {
      assert_int_equal(map_entry(object), ENTRY_EXTENT);
      assert_int_equal(map_entry(object + bytes - UNIT_BYTES), ENTRY_EXTENT);
      assert_not_live(object, bytes);
      assert_int_equal(extents_purge(UNIT_EVERYTHING), bytes);
    }
    valid();
  }
}

/* Two extents side by side. */
static void neighbours(size_t bytes, char **left, char **right) {
  extents_release(UNIT_BYTES); /* what other tests left is in pieces */
  *left = alloc(bytes, 16);
  for (unsigned i = 0; i < 64; i++) {
    *right = alloc(bytes, 16);
    if (*right == *left + bytes)
      return;
    if (*left == *right + bytes) {
      char *swap = *left;
      *left = *right;
      *right = swap;
      return;
    }
    large_free(*left);
    range_evict(UNIT_EVERYTHING);
    *left = *right;
  }
  fail_msg("no two extents lie side by side");
}

/* A cached range of a slab's length comes before fresh memory. */
LARGE_TEST(slabs_take_cached_ranges) {
  char *object = alloc_steady(ROW_BYTES);
  size_t bytes = large_bytes(object);
  large_free(object);
  assert_true(stats().cached_bytes >= bytes);
  char *units = run_take(RUN_ORDER_MAX, false);
  assert_true(units >= object && units < object + bytes);
  assert_true(stats().cached_bytes < bytes);
  run_give(units, RUN_ORDER_MAX, KEEP_BY_PRESET);
}

/* A mapping that an extent grew into becomes an extent when its object ends, so that its pages serve slabs and
 * objects. */
LARGE_TEST(freed_mappings_serve_anything) {
  char *object, *neighbour;
  neighbours(MIB, &object, &neighbour);
  object = UNIT_GOT(resize_at_once(object, 5 * MIB));
  size_t bytes = large_bytes(object);
  assert_int_equal(stats().mapping_count, 1);
  pattern_write(object, bytes);
  large_free(object);
  assert_int_equal(stats().mapping_count, 0);
  assert_int_equal(stats().mapping_bytes, 0);
  assert_int_equal(stats().cached_bytes, 0);
  assert_true(address_in_arena(object) && address_in_arena(object + bytes - 1));
  size_t free_bytes = usage_free();
  char *units = run_take(RUN_ORDER_MAX, false);
  assert_true(units >= object && units < object + bytes);
  assert_int_equal(usage_free(), free_bytes - ROW_BYTES);
  valid();
  char *other = alloc(2 * MIB, 16);
  assert_true(other >= object && other < object + bytes);
  assert_live(other);
  large_free(other);
  run_give(units, RUN_ORDER_MAX, KEEP_BY_PRESET);
  valid();
  assert_not_live(object, bytes);
  large_free(neighbour);
}

/* By half each time, from less than 1 MiB to `most` bytes and back. */
static char *grow_and_shrink(char *object, size_t most) {
  size_t size = 64 * 1024;
  for (; size < most; size += size / 2) {
    char *grown = resize_at_once(object, size);
    if (grown == NULL) { /* as realloc does */
      grown = alloc(size, 16);
      memcpy(grown, object, min_size(large_bytes(object), size));
      large_free(object);
    }
    object = grown;
    pattern_write(object, size);
  }
  while ((size = size / 3 * 2) > 64 * 1024) {
    assert_ptr_equal(resize_at_once(object, size), object);
    assert_live(object);
    assert_pattern(object, size);
  }
  return object;
}

static void growths_use_what_growths_left(size_t most) {
  char *object, *neighbour;
  neighbours(MIB, &object, &neighbour);
  size_t held = 0;
  for (unsigned round = 0; round < 40; round++) {
    object = grow_and_shrink(object, most);
    valid();
    large_free(object);
    object = alloc(MIB, 16);
    held = round == 3 ? usage_held() : held;
  }
  assert_true(held > 0 && usage_held() <= held + most);
  large_free(object);
  large_free(neighbour);
}

/* What one growth leaves serves the next. Extents of more than 4 MiB have multiples of several units. */
LARGE_TEST(growth_uses_what_growth_left) { growths_use_what_growths_left(4 * MIB); }
LARGE_TEST(long_growth_uses_what_it_left) { growths_use_what_growths_left(20 * MIB); }

/* Ranges of a length that is not asked for any more serve longer objects: they join, though their site was steady. */
LARGE_TEST(lengths_of_the_past_serve_longer_objects) {
  enum { OBJECTS_MAX = 6, UNITS_MAX = 100 };
  for (unsigned round = 0, state = 1; round < 400; round++) {
    char *objects[OBJECTS_MAX];
    state = state * 1103515245 + 12345;
    size_t units = 2 + (state >> 16) % (UNITS_MAX - 1), count = 2 + (state >> 8) % (OBJECTS_MAX - 1);
    for (unsigned i = 0; i < count; i++)
      objects[i] = alloc(units * UNIT_BYTES, 16);
    for (unsigned i = 0; i < count; i++)
      large_free(objects[i]);
  }
  valid();
  assert_true(usage_held() <= (size_t)2 * OBJECTS_MAX * UNITS_MAX * UNIT_BYTES);
}

/* Also if it grows anew after all free memory went back: the address space goes too. */
LARGE_TEST(address_space_of_growth_goes_back) {
  char *left, *object, *right;
  neighbours(3 * MIB, &left, &right);
  assert_ptr_equal(resize_at_once(left, 2 * MIB), left); /* leaves a gap of 1 MiB, which fits the object */
  size_t reserved = 0;
  for (unsigned round = 0; round < 40; round++) {
    object = alloc(MIB, 16);
    assert_ptr_equal(object, left + 2 * MIB);
    large_free(grow_and_shrink(object, 4 * MIB));
    extents_purge(UNIT_EVERYTHING);
    struct extent_stats extents;
    extents_stats(&extents);
    reserved = round == 3 ? extents.reserved_bytes : reserved;
    assert_true(round <= 3 || extents.reserved_bytes <= reserved + 4 * MIB);
  }
  large_free(left);
  large_free(right);
}

/* What lives on in adopted arenas keeps few mappings: others that shrink are copied, as before. */
LARGE_TEST(what_shrank_leaves_few_mappings) {
  enum { COUNT = 560 };
  static char *objects[COUNT];
  unsigned cut = 0, pins = 0;
  long before = test_mappings();
  for (unsigned i = 0; i < COUNT; i++) {
    char *object = alloc(MIB / 2, 16), *wall = alloc(MIB / 2, 16); /* mostly neighbours */
    char *grown = resize_at_once(object, 3 * MIB);
    objects[i] = grown ? grown : object;
    pins += large_would_pin(objects[i], 2 * UNIT_BYTES);
    char *shrunk = resize_at_once(objects[i], 2 * UNIT_BYTES);
    if (shrunk == NULL) {
      large_free(objects[i]);
      objects[i] = alloc(2 * UNIT_BYTES, 16);
    } else {
      cut++;
    }
    large_free(wall);
    range_evict(UNIT_EVERYTHING);
    extents_purge(UNIT_EVERYTHING);
  }
  assert_true(cut > 64 && test_mappings() < before + COUNT / 2);
  assert_true(pins > 0 && pins < COUNT - 16); /* not the first ones */
  for (unsigned i = 0; i < COUNT; i++)
    large_free(objects[i]);
}

/* What no extent can serve stays a mapping, and is used again. */
LARGE_TEST(wide_alignments_are_served_by_what_they_left) {
  for (unsigned i = 0; i < 64; i++) {
    char *object = alloc((i % 4 + 1) * MIB, 4 * MIB);
    assert_int_equal((uintptr_t)object % (4 * MIB), 0);
    large_free(object);
  }
  assert_true(usage_held() <= 16 * MIB);
}

/* A purge of adopted arenas keeps what it is to keep, too. */
LARGE_TEST(purge_of_adopted_memory_is_bounded) {
  char *object, *wall;
  neighbours(MIB, &object, &wall);
  object = UNIT_GOT(resize_at_once(object, 30 * MIB));
  large_free(object);
  size_t before = usage_free(), keep = 10 * MIB, step = 3 * MIB;
  struct purge purge = purge_by_preset(keep, UNIT_ANY_TIME);
  purge.most_bytes = step;
  size_t purged = extents_purge(purge);
  assert_true(purged >= step && purged <= 2 * ROW_BYTES + MIB); /* 1 MiB of it before the object moved */
  assert_int_equal(usage_free(), before - purged);
  extents_purge(purge_by_preset(keep, UNIT_ANY_TIME));
  assert_true(usage_free() <= keep && usage_free() > keep - ROW_BYTES);
  large_free(wall);
}

/* Its site asks for the first length again. */
LARGE_TEST(a_resized_object_is_not_kept_for_its_site) {
  char *object = alloc_steady(2 * MIB);
  object = UNIT_GOT(resize_at_once(object, 2 * MIB - 3 * UNIT_BYTES));
  large_free(object);
  assert_int_equal(stats().cached_bytes, 0);
}

/* Only a mapping can take the place of a long one, so it is not kept for a site that may never ask again. */
LARGE_TEST(long_mappings_are_kept_for_steady_sites_only) {
  size_t sizes[] = {MAPPING_BYTES_MIN, 2 * MAPPING_BYTES_MIN};
  size_t dirty;
  for (unsigned i = 0; i < 4; i++) {
    large_free(large_alloc(sizes[i % 2], 16, 4711, &dirty));
    assert_int_equal(stats().cached_bytes, 0);
    assert_int_equal(usage_held(), 0);
  }
  large_free(alloc_steady(sizes[1]));
  assert_int_equal(stats().cached_bytes, sizes[1]);
  assert_int_equal(range_evict(UNIT_EVERYTHING), sizes[1]);
  valid();
}

/* A site whose long objects become longer, and then are short again, leaves one mapping, which serves each length. What
 * is said to read as zero does so. */
LARGE_TEST(a_mapping_serves_other_lengths_of_its_site) {
  const size_t most = 2 * MAPPING_BYTES_MIN;
  size_t dirty, dirty_before = 0;
  for (unsigned round = 0; round < 2; round++)
    for (size_t size = MAPPING_BYTES_MIN; size < most; size += MIB) {
      char *object = UNIT_GOT(large_alloc(size, 16, 4712, &dirty));
      assert_in_range(large_bytes(object), size, size + size / 7);
      assert_live(object);
      assert_int_equal(stats().mapping_count, 1);
      assert_true(usage_held() <= most);
      assert_true(dirty == 0 || dirty >= min_size(size, dirty_before));
      for (size_t i = (dirty + PATTERN_BYTES - 1) / PATTERN_BYTES * PATTERN_BYTES; i < size; i += PATTERN_BYTES)
        assert_int_equal(object[i], 0);
      dirty_before = large_bytes(object);
      pattern_write(object, dirty_before);
      large_free(object);
      valid();
    }
  size_t cached_bytes = stats().cached_bytes;
  assert_true(cached_bytes > MAPPING_BYTES_MIN);
  char *other = large_alloc(MAPPING_BYTES_MIN, 16, 4711, &dirty); /* another site leaves it alone */
  char *aligned = large_alloc(MAPPING_BYTES_MIN, ROW_BYTES, 4712, &dirty);
  assert_int_equal((uintptr_t)aligned % ROW_BYTES, 0);
  assert_int_equal(stats().cached_bytes, cached_bytes);
  large_free(other);
  large_free(aligned);
}

LARGE_TEST(cache_serves_what_fits_closely) {
  size_t dirty = 0;
  char *object = alloc_steady(8 * MIB);
  large_free(object);
  assert_int_equal(stats().cached_bytes, 8 * MIB);
  char *same = large_alloc(8 * MIB - MIB / 2, 16, 2, &dirty);
  assert_ptr_equal(same, object);
  assert_int_not_equal(dirty, 0);
  assert_int_equal(large_bytes(same), 8 * MIB); /* the whole range */
  assert_live(same);
  assert_int_equal(stats().cached_bytes, 0);
  large_free(same);
  object = alloc_steady(8 * MIB);
  large_free(object);
  /* A quarter would be wasted: the range is given up and cut. */
  char *small = large_alloc(6 * MIB, 16, 2, &dirty);
  assert_int_equal(large_bytes(small), 6 * MIB);
  assert_int_equal(stats().cached_bytes, 0);
  assert_int_equal(usage_held(), 8 * MIB);
  large_free(small);
}

/* What is held and free is used before more is taken. */
LARGE_TEST(free_memory_is_used_first) {
  enum { COUNT = 12 };
  char *objects[COUNT];
  extents_release(UNIT_BYTES); /* what other tests left is in pieces */
  for (unsigned i = 0; i < COUNT; i++)
    objects[i] = alloc_steady(MIB);
  size_t held = usage_held();
  for (unsigned i = 0; i < COUNT; i++)
    large_free(objects[i]);
  assert_int_equal(usage_held(), held);
  assert_int_equal(stats().cached_bytes, COUNT * MIB);
  uint64_t evictions = counter_read(cache_evictions);
  char *merged = alloc(10 * MIB, 16); /* the cached ranges are neighbours */
  assert_int_equal(usage_held(), held);
  assert_true(counter_read(cache_evictions) >= evictions + 10);
  large_free(merged);
}

/* A mapping costs the row and the leaf of its first unit, however long it is. */
LARGE_TEST(a_mapping_needs_one_row) {
  size_t before = map_bytes(), bytes = 9 * GIB;
  char *object = TEST_EMULATED ? NULL : alloc(bytes, 16);
  unit_skip_if(object == NULL, "the system promises no more than it has; an emulator takes minutes afterwards");
  assert_true(map_bytes() - before <= sizeof(struct map_leaf) + MIB / 2);
  const size_t offsets[] = {UNIT_BYTES, ROW_BYTES - 1, ROW_BYTES, LEAF_BYTES, 2 * LEAF_BYTES, bytes - 1};
  for (unsigned i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
    assert_int_equal(map_entry(object + offsets[i]), ENTRY_NONE);
    assert_int_equal(range_entry_inside(object + offsets[i]), ENTRY_LARGE_BODY);
    assert_false(address_in_arena(object + offsets[i]));
  }
  assert_int_equal(range_entry_inside(object - 1), ENTRY_NONE);
  assert_int_equal(range_entry_inside(object + bytes), ENTRY_NONE);
  large_free(object);
  assert_int_equal(entry_at(object), ENTRY_NONE);
  assert_int_equal(entry_at(object + bytes - 1), ENTRY_NONE);
}

/* What the units of an arena hold may be old, so it says nothing of an address behind the arena. */
LARGE_TEST(only_mappings_are_searched) {
  large_free(alloc(2 * MAPPING_BYTES, 16)); /* the search goes back so far */
  char *base = os_map(4 * MIB, ROW_BYTES), *unit = base + MIB, *foreign = base + 3 * MIB;
  assert_true(base != NULL && map_cover(base, 4 * MIB));
  *(struct large *)map_record(unit) = (struct large){.base = unit, .units = 3 * MIB / UNIT_BYTES, .mapping = true};
  map_start_note(unit);
  map_entry_set(unit, ENTRY_LARGE_FREE);
  assert_int_equal(range_entry_inside(foreign), ENTRY_LARGE_FREE);
  map_entry_set(unit, ENTRY_LARGE);
  assert_int_equal(range_entry_inside(foreign), ENTRY_LARGE_BODY);
  assert_int_equal(range_entry_inside(base + 4 * MIB), ENTRY_NONE);
  arena_mark_set(base, 2 * MIB, 1);
  assert_int_equal(range_entry_inside(foreign), ENTRY_NONE);
  map_entry_set(unit, ENTRY_LARGE_FREE);
  assert_int_equal(range_entry_inside(foreign), ENTRY_NONE);
  map_entry_set(unit, ENTRY_NONE);
  arena_mark_set(base, 2 * MIB, 0);
  os_unmap(base, 4 * MIB);
}

LARGE_TEST(cache_looks_at_alignment) {
  char *object;
  char *kept[8];
  unsigned count = 0;
  while (((uintptr_t)(object = alloc_steady(MIB / 2)) & (4 * MIB - 1)) == 0 && count < 8)
    kept[count++] = object;
  large_free(object);
  char *aligned = alloc(MIB / 2, 4 * MIB);
  assert_int_equal((uintptr_t)aligned & (4 * MIB - 1), 0);
  assert_ptr_not_equal(aligned, object);
  large_free(aligned);
  while (count > 0)
    large_free(kept[--count]);
}

LARGE_TEST(cache_is_bounded) {
  unit_option("HAKMEM_LARGE_CACHE_MB", "64");
  size_t bytes_max = (size_t)option_value(OPTION_LARGE_CACHE_MB) << 20;
  char *huge = alloc(bytes_max / 2 + UNIT_BYTES, 16); /* too much for the cache */
  large_free(huge);
  assert_int_equal(stats().cached_bytes, 0);
  assert_int_equal(map_entry(huge), ENTRY_NONE);
  enum { COUNT = 100 };
  static char *objects[COUNT];
  size_t total = 0;
  for (unsigned i = 0; i < COUNT; i++) {
    objects[i] = alloc_steady(MIB + i * UNIT_BYTES);
    total += large_bytes(objects[i]);
  }
  for (unsigned i = 0; i < COUNT; i++) {
    large_free(objects[i]);
    assert_true(stats().cached_bytes <= bytes_max);
  }
  valid();
  /* Every range is cached or a free extent. */
  assert_true(stats().cached_bytes > bytes_max / 4);
  assert_int_equal(stats().cached_bytes + decay_total(&extents_decay), total);
  assert_int_equal(usage_free(), total);
  range_evict(purge_by_preset(4 * MIB, UNIT_ANY_TIME));
  assert_true(stats().cached_bytes <= 4 * MIB);
  assert_int_equal(usage_free(), total);
  unit_option("HAKMEM_LARGE_CACHE_MB", "512");
}

/* As large_resize. What large_keeps_length tells before is true. */
static char *resize(char *object, size_t size) {
  bool keeps = large_keeps_length(object, size);
  size_t before = large_bytes(object);
  char *result = resize_at_once(object, size);
  assert_int_equal(keeps, result == object && large_bytes(object) == before);
  return result;
}

/* As hak_realloc does it. */
static char *resized(char *object, size_t size) {
  char *result = resize(object, size);
  if (result)
    return result;
  char *copy = UNIT_GOT(alloc(size, 16));
  memcpy(copy, object, min_size(large_bytes(object), size));
  large_free(object);
  return copy;
}

LARGE_TEST(growth_and_shrinkage_keep_the_contents) {
  uint64_t seed = UNIT_SEED;
  const size_t mosts[] = {2 * MIB, 12 * MIB, 60 * MIB};
  for (unsigned round = 0; round < unit_rounds(15, 2); round++) {
    char *object = alloc(MIB, 16);
    char *neighbour = alloc(MIB, 16); /* often in the way */
    size_t bytes = large_bytes(object);
    pattern_write(object, bytes);
    pattern_write(neighbour, MIB);
    for (unsigned i = 0; i < 12; i++) {
      size_t size = HAK_SMALL_MAX + 1 + test_random(&seed) % mosts[round % 3];
      char *before = object;
      object = resized(object, size);
      size_t now = large_bytes(object);
      assert_pattern(object, min_size(bytes, size));
      assert_true(now >= size && now - size <= max_size(size / 8, UNIT_BYTES));
      assert_live(object);
      if (object == before && now < bytes)
        assert_not_live(object + now, bytes - now);
      else if (object != before && (before + bytes <= object || object + now <= before))
        assert_not_live(before, bytes);
      bytes = now;
      pattern_write(object, bytes);
      assert_pattern(neighbour, MIB);
      assert_int_equal(stats().live_bytes, bytes + MIB);
      assert_int_equal(stats().live_count, 2);
      assert_int_equal(usage_taken(), bytes + MIB);
      if (i % 4 == 1)
        range_evict(UNIT_EVERYTHING);
      if (i % 4 == 3)
        extents_purge(UNIT_EVERYTHING);
      valid();
    }
    large_free(neighbour);
    large_free(object);
    range_evict(UNIT_EVERYTHING);
  }
}

LARGE_TEST(extents_are_resized_in_place) {
  char *left, *right;
  neighbours(2 * MIB, &left, &right);
  pattern_write(left, 2 * MIB);
  pattern_write(right, 2 * MIB);
  assert_ptr_equal(resize_at_once(left, MIB), left); /* shrunk: the tail is free */
  assert_int_equal(large_bytes(left), MIB);
  assert_live(left);
  assert_not_live(left + MIB, MIB);
  assert_int_equal(usage_taken(), 3 * MIB);
  assert_true(decay_total(&extents_decay) >= MIB);
  assert_ptr_equal(resize_at_once(left, 2 * MIB), left); /* grown into it again */
  assert_live(left);
  assert_pattern(left, MIB);
  assert_int_equal(usage_taken(), 4 * MIB);
  assert_pattern(right, 2 * MIB);
  large_free(right);
  range_evict(UNIT_EVERYTHING);
  assert_ptr_equal(resize_at_once(left, 3 * MIB + MIB / 2), left);
  assert_live(left);
  assert_pattern(left, MIB);
  assert_int_equal(usage_taken(), 3 * MIB + MIB / 2);
  assert_int_equal(stats().mapping_count, 0);
  valid();
  large_free(left);
}

/* A string that a program appends to by a page at a time is copied once. From then on the system moves its pages. */
LARGE_TEST(what_grows_by_small_steps_stays_a_mapping) {
  char *left, *right;
  neighbours(5 * MIB, &left, &right);
  pattern_write(left, 5 * MIB);
  uint64_t made = counter_read(large_allocations);
  for (size_t size = 5 * MIB; size <= 17 * MIB; size += 4096)
    left = UNIT_GOT(resize_at_once(left, size));
  assert_int_equal(counter_read(large_allocations) - made, 1);
  assert_false(address_in_arena(left));
  assert_int_equal(stats().mapping_count, 1);
  assert_live(left);
  assert_pattern(left, 5 * MIB);
  large_free(left);
  large_free(right);
}

LARGE_TEST(an_extent_that_cannot_grow_becomes_a_mapping) {
  const size_t sizes[] = {3 * MIB, 20 * MIB, 40 * MIB};
  for (unsigned i = 0; i < 3; i++) {
    char *left, *right;
    neighbours(2 * MIB, &left, &right);
    pattern_write(left, 2 * MIB);
    char *grown = UNIT_GOT(resize_at_once(left, sizes[i]));
    assert_false(address_in_arena(grown));
    assert_int_equal(stats().mapping_count, 1);
    assert_int_equal(stats().live_count, 2);
    assert_live(grown);
    assert_pattern(grown, 2 * MIB);
    assert_not_live(left, 2 * MIB);
    grown = UNIT_GOT(resize_at_once(grown, 100 * MIB)); /* by moving pages, or in place */
    assert_live(grown);
    assert_pattern(grown, 2 * MIB);
    pattern_write(grown, 100 * MIB);
    assert_ptr_equal(resize_at_once(grown, MIB), grown); /* a mapping shrinks where it lies, to any size */
    assert_int_equal(large_bytes(grown), MIB);
    assert_live(grown);
    assert_marks(grown + MIB, 99 * MIB, ENTRY_NONE, ENTRY_NONE);
    assert_pattern(grown, MIB);
    large_free(grown);
    large_free(right);
    range_evict(UNIT_EVERYTHING);
    assert_int_equal(stats().mapping_count, 0);
  }
}

/* The kernel limits a process's mappings: small ones that grow must not use them up. */
LARGE_TEST(grown_mappings_are_limited_in_number) {
  enum { COUNT = 2 * GROWN_COUNT_MAX };
  static char *objects[COUNT], *walls[COUNT];
  unsigned moved = 0;
  for (unsigned i = 0; i < COUNT; i++) {
    objects[i] = alloc(MIB / 2, 16);
    walls[i] = alloc(MIB / 2, 16);
  }
  for (unsigned i = 0; i < COUNT; i++) {
    char *grown = resize_at_once(objects[i], 3 * MIB / 2);
    moved += grown != NULL && grown != objects[i];
    if (grown)
      objects[i] = grown;
  }
  assert_true(moved > GROWN_COUNT_MAX / 2 && stats().mapping_count <= GROWN_COUNT_MAX);
  for (unsigned i = 0; i < COUNT; i++) {
    large_free(objects[i]);
    large_free(walls[i]);
  }
}

LARGE_TEST(resizing_within_the_last_unit_changes_nothing) {
  char *object = alloc(MIB, 16);
  assert_true(large_keeps_length(object, MIB - UNIT_BYTES + 1) && !large_keeps_length(object, MIB - UNIT_BYTES));
  assert_ptr_equal(resize(object, MIB - UNIT_BYTES + 1), object);
  assert_int_equal(large_bytes(object), MIB);
  large_free(object);
}

static void free_object(void *object) { hak_free(object); }

/* Objects of a steady site begin in all lines of their first page, and have no fewer bytes than asked for. */
LARGE_TEST(objects_begin_in_different_lines) {
  enum { COUNT = 256 };
  char *objects[COUNT];
  unsigned in_line[LARGE_COLORS] = {0}, most = 0;
  const size_t size = MIB - LARGE_COLOR_ROOM;
  size_t dirty;
  for (unsigned i = 0; i < STEADY_TIMES; i++)
    large_free(large_alloc(size, BLOCK_ALIGNMENT, SITE_STEADY, &dirty));
  for (unsigned i = 0; i < COUNT; i++) {
    objects[i] = large_alloc(size, BLOCK_ALIGNMENT, SITE_STEADY, &dirty);
    size_t offset = (uintptr_t)objects[i] % UNIT_BYTES;
    assert_true(offset <= LARGE_COLOR_ROOM && offset % CACHE_LINE == 0);
    assert_int_equal(large_bytes(objects[i]), MIB - offset);
    assert_true(large_is_start(objects[i]) && (offset == 0 || !large_is_start(objects[i] - offset)));
    most = (unsigned)max_size(most, ++in_line[offset / CACHE_LINE]);
    objects[i][0] = objects[i][size - 1] = (char)i;
  }
  assert_true(most <= 3 * COUNT / LARGE_COLORS);
  unit_must_die(free_object, objects[0] + CACHE_LINE, "free of ", objects[0] + CACHE_LINE,
                ", which is not the start of a block");
  for (unsigned i = 0; i < COUNT; i++) {
    assert_int_equal(objects[i][0], (char)i);
    assert_int_equal(objects[i][size - 1], (char)i);
  }
  char *object = objects[COUNT - 1], *longer;
  for (unsigned i = 0; i + 1 < COUNT; i++)
    large_free(objects[i]);
  for (size_t bytes = MIB + MIB / 2; bytes <= 64 * MIB; bytes *= 2, object = longer) {
    longer = UNIT_GOT(resize(object, bytes));
    assert_true(large_is_start(longer) && large_bytes(longer) >= bytes);
    assert_int_equal(longer[size - 1], (char)(COUNT - 1));
    memset(longer + size, 0, bytes - size);
    for (size_t less = 0; less <= 2 * UNIT_BYTES; less += UNIT_BYTES / 8)
      assert_ptr_equal(resize(longer, bytes - less), longer);
    assert_ptr_equal(resize(longer, bytes), longer);
  }
  assert_ptr_equal(resize(object, MIB), object);
  assert_true(large_bytes(object) >= MIB);
  assert_int_equal(object[size - 1], (char)(COUNT - 1));
  large_free(object);
  for (size_t alignment = CACHE_LINE; alignment <= 4096; alignment *= 2) {
    for (unsigned i = 0; i < 16; i++) {
      objects[i] = large_alloc(size, alignment, SITE_STEADY, &dirty);
      assert_int_equal((uintptr_t)objects[i] % alignment, 0);
      assert_true(large_bytes(objects[i]) >= size);
    }
    for (unsigned i = 0; i < 16; i++)
      large_free(objects[i]);
  }
}

/* The room for that is no more than a unit, and 1/64 of a range. */
LARGE_TEST(room_for_lines_is_bounded) {
  const size_t sizes[] = {HAK_SMALL_MAX + 1, MIB, 2 * MIB, 4 * MIB - UNIT_BYTES, 4 * MIB, 8 * MIB, 64 * MIB};
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    size_t dirty;
    for (unsigned j = 0; j < STEADY_TIMES; j++)
      large_free(large_alloc(sizes[i], BLOCK_ALIGNMENT, SITE_STEADY, &dirty));
    char *object = large_alloc(sizes[i], BLOCK_ALIGNMENT, SITE_STEADY, &dirty);
    size_t length = large_bytes(object) + (uintptr_t)object % UNIT_BYTES;
    assert_true(large_bytes(object) >= sizes[i]);
    assert_int_equal(length - large_length(sizes[i]), sizes[i] >= 4 * MIB ? UNIT_BYTES : 0);
    assert_true(large_good_size(sizes[i]) >= sizes[i] && large_good_size(sizes[i]) <= length);
    assert_int_equal(large_good_size(large_good_size(sizes[i])), large_good_size(sizes[i]));
    large_free(object);
  }
}

/* The page map covers the addresses that a program can have. */
UNIT_TEST(a_good_size_fits_into_the_address_space) {
  const size_t end = (size_t)1 << HAK_ADDRESS_BITS;
  const size_t never[] = {end - UNIT_BYTES / 2, end - 1, end, end + 1, 2 * end, PTRDIFF_MAX, SIZE_MAX};
  for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
    assert_int_equal(hak_good_size(never[i]), 0);
    assert_null(hak_malloc(test_opaque_size(never[i])));
  }
  for (size_t size = 1; size <= end / 2; size *= 2) {
    size_t good = hak_good_size(size);
    assert_true(good >= size && good < 2 * size + BLOCK_ALIGNMENT);
    assert_int_equal(hak_good_size(good), good);
  }
}

/* A range that would have room for lines for a 32nd of its length gets it in new memory. */
LARGE_TEST(new_ranges_of_a_row_have_room) {
  enum { COUNT = 32 };
  char *objects[COUNT];
  unsigned longer = 0, in_other_lines = 0;
  size_t dirty;
  for (unsigned i = 0; i < COUNT; i++) {
    objects[i] = large_alloc(ROW_BYTES, BLOCK_ALIGNMENT, SITE_STEADY, &dirty);
    memset(objects[i], (int)i, ROW_BYTES);
    longer += large_bytes(objects[i]) + (uintptr_t)objects[i] % UNIT_BYTES == ROW_BYTES + UNIT_BYTES;
    in_other_lines += (uintptr_t)objects[i] % UNIT_BYTES != 0;
  }
  assert_true(longer >= COUNT - 4 && in_other_lines >= longer / 2);
  for (unsigned i = 0; i < COUNT; i++) {
    assert_int_equal(objects[i][ROW_BYTES - 1], (char)i);
    large_free(objects[i]);
  }
  size_t held = usage_held();
  for (unsigned i = 0; i < COUNT; i++) /* of either length */
    objects[i] = large_alloc(ROW_BYTES, BLOCK_ALIGNMENT, SITE_STEADY, &dirty);
  assert_int_equal(usage_held(), held);
  for (unsigned i = 0; i < COUNT; i++)
    large_free(objects[i]);
  range_evict(UNIT_EVERYTHING);
}

static void assert_all_zero(const unsigned char *block, size_t size) {
  size_t i = 0;
  while (i < size && block[i] == 0)
    i++;
  if (i < size)
    fail_msg("byte %zu of %zu is %u", i, size, block[i]);
}

LARGE_TEST(impossible_requests_are_refused) {
  const size_t sizes[] = {(size_t)1 << 50, (size_t)1 << 62, PTRDIFF_MAX};
  for (unsigned i = 0; i < 3; i++) {
    assert_null(alloc(sizes[i], 16));
    assert_null(alloc(sizes[i], (size_t)1 << 62));
    errno = 0;
    assert_null(hak_malloc(sizes[i]));
    assert_int_equal(errno, ENOMEM);
  }
  assert_null(alloc(1, (size_t)1 << 62));
  const size_t lives[] = {MIB, 40 * MIB};
  for (unsigned i = 0; i < 2; i++) {
    char *object = alloc(lives[i], 16);
    pattern_write(object, lives[i]);
    assert_null(resize_at_once(object, PTRDIFF_MAX));
    assert_null(resize_at_once(object, (size_t)1 << 50));
    assert_int_equal(large_bytes(object), lives[i]);
    assert_pattern(object, lives[i]);
    assert_live(object);
    large_free(object);
  }
}

static void realloc_object(void *object) { hak_free(hak_realloc(object, 5 * MIB)); }

LARGE_TEST(bugs_end_the_program_with_their_sentence) {
  char *object = alloc(MIB, 16);
  static const char inside[] = ", which is not the start of a block";
  static const char double_free[] = "double free of block ";
  unit_must_die(free_object, object + 16, "free of ", object + 16, inside);
  unit_must_die(free_object, object + UNIT_BYTES, "free of ", object + UNIT_BYTES, inside);
  large_free(object);
  unit_must_die(free_object, object, double_free, object, "");
  unit_must_die(free_object, object + UNIT_BYTES, double_free, object + UNIT_BYTES, "");
  range_evict(UNIT_EVERYTHING); /* a free extent */
  unit_must_die(free_object, object, double_free, object, "");
  unit_must_die(realloc_object, object, double_free, object, "");
  extents_purge(UNIT_EVERYTHING);
  unit_must_die(free_object, object, double_free, object, "");
}

static unsigned note_count;
TEST_WRAP(void, huge_note_mapping, const char *base, size_t bytes) { note_count++; }

/* What a mapping has resident is asked at its first free, and again when it may be less or more. */
LARGE_TEST(a_kept_mapping_is_noted_once) {
  const size_t size = MAPPING_BYTES;
  char *object = alloc_steady(size);
  unit_option("HAKMEM_HUGE", "large");
  note_count = 0;
  large_free(object);
  assert_int_equal(note_count, 1);
  char *again = alloc_steady(size); /* takes and frees it many times */
  assert_ptr_equal(again, object);
  assert_int_equal(note_count, 1);
  large_clear(again, size); /* nothing is resident */
  large_free(again);
  assert_int_equal(note_count, 2);
  object = UNIT_GOT(resize_at_once(alloc_steady(size), 2 * size));
  assert_int_equal(note_count, 2);
  large_free(object);
  assert_int_equal(note_count, 3);
  range_evict(UNIT_EVERYTHING);
  large_free(alloc_steady(size)); /* a new range */
  assert_int_equal(note_count, 4);
  unit_option("HAKMEM_HUGE", "off");
}

LARGE_TEST(a_kept_mapping_that_its_site_lengthens_is_noted_again) {
  size_t dirty;
  unit_option("HAKMEM_HUGE", "large");
  note_count = 0;
  for (unsigned i = 0; i < STEADY_TIMES + 1; i++)
    large_free(large_alloc(MAPPING_BYTES_MIN, 16, 4713, &dirty));
  assert_int_equal(stats().mapping_count, 1);
  unsigned before = note_count;
  char *object = large_alloc(2 * MAPPING_BYTES_MIN, 16, 4713, &dirty);
  assert_true(dirty > 0); /* it is the one that was kept */
  large_free(object);
  assert_int_equal(note_count, before + 1);
  unit_option("HAKMEM_HUGE", "off");
}

/* Writes the first part of an object, clears the object, and returns what is resident then. */
static size_t resident_when_cleared(char *object, size_t size, size_t written) {
  memset(object, 1, written);
  large_clear(object, size);
  size_t resident = os_resident_bytes(object, size);
  for (size_t i = 0; i < size; i += os_page_bytes())
    assert_int_equal(object[i], 0);
  return resident;
}

/* Long objects are purged to clear them, unless nearly all of it is resident: then its next use would be as dense. */
LARGE_TEST(dense_objects_are_cleared_in_place) {
  const size_t size = 40 * MIB;
  char *object = alloc_steady(size);
  assert_int_equal(resident_when_cleared(object, size, size / 2), 0);
  assert_int_equal(resident_when_cleared(object, size, size), size);
  large_free(object);
}

/* Returns what is resident of an object that had no page, was written in part, and cleared. */
static size_t resident_when_used(char *object, size_t size, size_t written) {
  assert_true(os_purge(object, size));
  return resident_when_cleared(object, size, written);
}

/* Shorter ones are purged if a 32nd of their pages is resident at most, and if there are 1 MiB of large objects; while
 * such are the rule, also if it is a quarter, which cleared neighbours may have left. */
LARGE_TEST(sparse_objects_are_purged) {
  const size_t size = MIB / 2, sparse = size / 32, mixed = size / 4;
  char *object = alloc(size, UNIT_BYTES), *shortest = alloc(UNIT_BYTES, UNIT_BYTES);
  assert_int_equal(resident_when_used(object, size, sparse), size);
  char *others = alloc(MIB, UNIT_BYTES);
  assert_int_equal(resident_when_used(shortest, UNIT_BYTES, 1), UNIT_BYTES);
  assert_int_equal(resident_when_used(object, size, sparse), 0);
  assert_int_equal(resident_when_used(object, size, mixed), size);
  for (unsigned i = 0; i < 6; i++)
    assert_int_equal(resident_when_used(object, size, sparse), 0);
  assert_int_equal(resident_when_used(object, size, mixed), 0);
  assert_int_equal(resident_when_used(object, size, size / 2), size);
  for (unsigned i = 0; i < 32; i++)
    assert_int_equal(resident_when_cleared(object, size, size), size);
  unsigned turns = 1; /* one of 17 is looked at by now */
  while (turns <= 16 && resident_when_used(object, size, sparse) == size)
    turns++;
  assert_in_range(turns, 2, 16);
  assert_int_equal(resident_when_used(object, size, sparse), 0);
  large_free(others);
  large_free(shortest);
  large_free(object);
}

/* The kernel refuses to purge locked pages. */
LARGE_TEST(locked_objects_are_cleared_in_place) {
  const size_t size = MIB / 2;
  char *others = alloc(MIB, UNIT_BYTES), *object = alloc(size, UNIT_BYTES);
  assert_true(os_purge(object, size));
  object[0] = 1;
  assert_int_equal(mlock(object, 1), 0);
  errno = 0;
  large_clear(object, size);
  assert_int_equal(errno, 0);
  assert_int_equal(object[0], 0);
  assert_int_equal(munlock(object, 1), 0);
  large_free(object);
  large_free(others);
}

/* These use the heap, which keeps slabs: they come last. */
UNIT_TEST(alignment_reaches_a_gib) {
  for (size_t alignment = 16; alignment <= GIB; alignment *= 2) {
    const size_t sizes[] = {1, MIB / 2, 3 * MIB, 40 * MIB};
    for (unsigned i = 0; i < 4; i++) {
      char *object = UNIT_GOT(alloc(sizes[i], alignment));
      assert_int_equal((uintptr_t)object & (alignment - 1), 0);
      assert_live(object);
      object[0] = object[sizes[i] - 1] = 1;
      large_free(object);
      char *block = UNIT_GOT(test_opaque(hak_aligned_alloc(alignment, sizes[i])));
      assert_int_equal((uintptr_t)block & (alignment - 1), 0);
      memset(block, 1, min_size(sizes[i], MIB));
      hak_free(block);
    }
    valid();
  }
  hak_trim(0);
}

/* calloc's memory is zero, wherever it comes from: fresh, cached, a free extent, purged or not. */
UNIT_TEST(calloc_is_zero_after_any_use) {
  static const char *const modes[] = {"dontneed", "free", "off"};
  uint64_t seed = UNIT_SEED;
  for (unsigned mode = 0; mode < 3; mode++) {
    unit_option("HAKMEM_PURGE", modes[mode]);
    for (unsigned round = 0; round < unit_rounds(20, 2); round++) {
      size_t size = 65537 + test_random(&seed) % (round % 8 ? 3 * MIB : 40 * MIB);
      unsigned char *block = UNIT_GOT(hak_calloc(size, 1));
      assert_all_zero(block, size);
      memset(block, 0xff, hak_usable_size(block));
      size_t kept = HAK_SMALL_MAX + 1 + test_random(&seed) % size;
      block = hak_realloc(block, kept);
      memset(block, 0xff, hak_usable_size(block));
      hak_free(block);
      unsigned char *dirty = hak_malloc(10000); /* runs of slabs are extents as well */
      memset(dirty, 0xff, 10000);
      hak_free(dirty);
      if (round % 3 == 1)
        range_evict(UNIT_EVERYTHING);
      if (round % 5 == 2)
        hak_trim(0);
    }
  }
  unit_option("HAKMEM_PURGE", "dontneed");
  hak_trim(0);
}

/* An object that begins with used memory and ends with fresh memory: calloc writes to the used part only. */
LARGE_TEST(calloc_leaves_fresh_memory_alone) {
  forget_habits();
  extents_release(UNIT_BYTES);
  char *used = alloc(2 * MIB, EXACT);
  memset(used, 0xff, 2 * MIB);
  hak_free(used);
  size_t dirty;
  char *object = large_alloc(8 * MIB, EXACT, SITE_CHANGING, &dirty);
  assert_ptr_equal(object, used);
  assert_int_equal(dirty, 2 * MIB);
  large_free(object);
  range_evict(UNIT_EVERYTHING);
  extents_purge(UNIT_EVERYTHING);

  used = alloc(2 * MIB, EXACT);
  memset(used, 0xff, 2 * MIB);
  hak_free(used);
  object = hak_calloc(8, MIB);
  assert_ptr_equal(object, used);
  assert_int_equal(os_resident_bytes(object + 2 * MIB, 6 * MIB), 0);
  assert_all_zero((unsigned char *)object, 8 * MIB);
  hak_free(object);
}

/* Blocks for those that may wait for nothing are mappings of any size: none is kept. */
UNIT_TEST(spare_mappings_are_not_cached) {
  size_t cached = decay_total(&big_cache_decay), mapped = range_mapping_bytes();
  void *spare = UNIT_GOT(large_alloc_unlocked(3 * MIB, UNIT_BYTES));
  large_free(spare);
  assert_int_equal(decay_total(&big_cache_decay), cached);
  assert_int_equal(range_mapping_bytes(), mapped);
}

/* One that shrinks to most of a unit stays large, so it grows again in place. */
UNIT_TEST(what_shrinks_to_a_unit_grows_in_place) {
  char *object = hak_malloc(70000);
  unsigned moves = 0;
  for (unsigned i = 0; i < 20; i++) {
    char *resized = UNIT_GOT(hak_realloc(object, i % 2 == 0 ? 60000 : 70000));
    moves += resized != object;
    object = resized;
  }
  assert_true(moves <= 1);
  object = hak_realloc(object, 40000); /* but less is a block of its class */
  assert_int_equal(hak_usable_size(object), hak_good_size(40000));
  hak_free(object);
}

/* Where there is no memory for a copy, it shrinks in place. */
UNIT_TEST(what_shrinks_without_memory_shrinks_in_place) {
  hak_heap *heap = hak_heap_new(MIB);
  char *object = UNIT_GOT(hak_heap_malloc(heap, MIB));
  object[0] = 7;
  object = hak_heap_realloc(heap, object, 100);
  assert_true(object != NULL && object[0] == 7 && hak_usable_size(object) <= UNIT_BYTES);
  assert_non_null(hak_heap_malloc(heap, MIB / 2));
  hak_heap_destroy(heap);
}

/* Where memory is short, extents have whole units, not the length of a class. */
UNIT_TEST_IN_CHILD(a_resize_to_the_same_size_changes_nothing) {
  usage_note_refusal(UNIT_BYTES);
  CHECK(usage_is_short());
  for (size_t size = 300000; size < 8 * MIB; size += size / 16) {
    unsigned char *object = hak_malloc(size);
    size_t bytes = large_bytes(object);
    CHECK(hak_realloc(object, size) == object && hak_realloc(object, size - 1) == object &&
          large_bytes(object) == bytes);
    hak_free(object);
  }
}

UNIT_MAIN(unit_alone())
