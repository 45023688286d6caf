/* page_map: any address may be looked up; what is set is read back, also over a leaf's border. */
#include "unit.h"

UNIT_TEST(foreign_addresses_read_as_none) {
  int on_stack = 0;
  static int in_data;
  void *mapped = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void *on_heap = malloc(100);
  assert_true(mapped != MAP_FAILED);
  const uintptr_t addresses[] = {
      0,
      1,
      UNIT_BYTES - 1,
      UNIT_BYTES,
      (uintptr_t)&on_stack,
      (uintptr_t)&in_data,
      (uintptr_t)foreign_addresses_read_as_none,
      (uintptr_t)mapped,
      (uintptr_t)on_heap,
      (uintptr_t)hak_map_top,
      (uintptr_t)&hak_map_home,
      ((uintptr_t)1 << HAK_ADDRESS_BITS) - 1,
      (uintptr_t)1 << HAK_ADDRESS_BITS,
      (uintptr_t)1 << 47,
      ((uintptr_t)1 << 48) - 1,
      (uintptr_t)1 << 48,
      (uintptr_t)1 << 63,
      0xffff800000000000u,
      0xffffffffff600000u, /* where x86-64's kernel shows its clock */
      UINTPTR_MAX - UNIT_BYTES,
      UINTPTR_MAX,
  };
  for (unsigned i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
    const void *address = (const void *)addresses[i];
    assert_int_equal(map_entry(address), ENTRY_NONE);
    assert_false(map_covers(address));
    assert_false(address_in_arena(address));
  }
  for (unsigned bit = 0; bit < 64; bit++) {
    assert_int_equal(map_entry((void *)((uintptr_t)1 << bit)), ENTRY_NONE);
    assert_int_equal(map_entry((void *)(((uintptr_t)1 << bit) - 1)), ENTRY_NONE);
    assert_int_equal(map_entry((void *)(((uintptr_t)mapped) | (uintptr_t)1 << 63 | (uintptr_t)1 << bit)), ENTRY_NONE);
  }
  free(on_heap);
  munmap(mapped, 1 << 20);
}

UNIT_TEST(covering_refuses_what_is_no_address) {
  size_t before = map_bytes();
  assert_false(map_cover((void *)((uintptr_t)1 << HAK_ADDRESS_BITS), 1));
  assert_false(map_cover((void *)(((uintptr_t)1 << HAK_ADDRESS_BITS) - UNIT_BYTES), 2 * UNIT_BYTES));
  assert_false(map_cover((void *)(UINTPTR_MAX - UNIT_BYTES + 1), UNIT_BYTES));
  assert_false(map_cover((void *)(UINTPTR_MAX - UNIT_BYTES + 1), 2 * UNIT_BYTES));
  assert_int_equal(map_bytes(), before);
}

#define AROUND 40u /* units on each side of the border */

UNIT_TEST(entries_and_records_reach_over_a_border) {
  char *range = UNIT_GOT(os_reserve(2 * LEAF_BYTES, UNIT_BYTES));
  char *border = (char *)round_up((uintptr_t)range + 4 * ROW_BYTES, LEAF_BYTES);
  char *first = border - AROUND * UNIT_BYTES;
  assert_true(map_cover(first, 2 * AROUND * UNIT_BYTES));
  size_t before = map_bytes();
  assert_true(map_cover(first, 2 * AROUND * UNIT_BYTES)); /* again: nothing to do */
  assert_int_equal(map_bytes(), before);

  for (unsigned i = 0; i < 2 * AROUND; i++) {
    char *unit = first + i * UNIT_BYTES;
    map_entries_set(unit, 1, entry_of(entry_key(1 + i, KIND_ORDINARY), i % HAK_CLASS_COUNT));
    memset(map_record(unit), (int)i, RECORD_BYTES);
    for (size_t word = 0; word < BITMAP_WORDS; word++)
      *bitmap_word(map_bitmap(unit), word) = (uint64_t)i << 32 | word;
  }
  for (unsigned i = 0; i < 2 * AROUND; i++) {
    char *unit = first + i * UNIT_BYTES;
    struct map_leaf *leaf = map_leaf(unit + 12345);
    struct map_row *row = map_leaf_row(leaf, unit + 12345);
    uint32_t entry = map_entry(unit + UNIT_BYTES - 1);
    char expected[RECORD_BYTES];
    assert_int_equal(entry, map_entry(unit));
    assert_int_equal(entry, *map_leaf_entry(leaf, unit + 12345));
    assert_int_equal(entry_pool_id(entry), 1 + i);
    assert_int_equal(entry_class(entry), i % HAK_CLASS_COUNT);
    assert_true(entry_is_of(entry, entry_key(1 + i, KIND_ORDINARY)));
    assert_false(entry_is_of(entry, entry_key(2 + i, KIND_ORDINARY)));
    assert_ptr_equal(row->records[map_unit_in_row(unit)], map_record(unit));
    assert_ptr_equal(row->bitmaps[0][map_unit_in_row(unit)], map_bitmap(unit));
    memset(expected, (int)i, sizeof expected);
    assert_memory_equal(map_record(unit), expected, RECORD_BYTES);
    for (size_t word = 0; word < BITMAP_WORDS; word++)
      assert_int_equal(*bitmap_word(map_bitmap(unit), word), (uint64_t)i << 32 | word);
  }
  assert_int_equal(map_entry(first - 1), ENTRY_NONE);
  assert_int_equal(map_entry(border + AROUND * UNIT_BYTES), ENTRY_NONE);

  map_entries_set(first, 2 * AROUND, ENTRY_NONE);
  for (unsigned i = 0; i < 2 * AROUND; i++)
    assert_int_equal(map_entry(first + i * UNIT_BYTES), ENTRY_NONE);
  os_unmap(range, 2 * LEAF_BYTES);
}

/* 512 blocks of 128 bytes and less have their bits in one line of a bitmap. */
UNIT_TEST(slabs_of_few_blocks_touch_few_pages_of_bitmaps) {
  enum { ROWS = 32 };
  char *range = os_reserve((ROWS + 1) * ROW_BYTES, ROW_BYTES);
  assert_non_null(range);
  assert_true(map_cover(range, ROWS * ROW_BYTES));
  size_t resident = 0;
  for (char *at = range; at < range + ROWS * ROW_BYTES; at += UNIT_BYTES)
    for (size_t word = 0; word < 8; word++)
      *bitmap_word(map_bitmap(at), word) = 1;
  for (char *at = range; at < range + ROWS * ROW_BYTES; at += ROW_BYTES) {
    char *first = (char *)round_down((uintptr_t)map_row(at)->bitmaps, os_page_bytes());
    resident += os_resident_bytes(first, round_down(sizeof map_row(at)->bitmaps, os_page_bytes()));
  }
  assert_true(resident <= ROWS * 2 * os_page_bytes());
  os_unmap(range, (ROWS + 1) * ROW_BYTES);
}

UNIT_TEST(bins_take_blocks_of_their_kind) {
  const uint32_t marks[] = {ENTRY_NONE, ENTRY_LARGE, ENTRY_LARGE_BODY, ENTRY_LARGE_FREE, ENTRY_EXTENT};
  const uint32_t ids[] = {1, 2, 255, 256, 4095, 0xffff};
  const unsigned kinds[] = {KIND_ORDINARY, KIND_SHARED - 1, KIND_SHARED, KIND_PRIVATE};
  const unsigned id_count = sizeof ids / sizeof ids[0], kind_count = sizeof kinds / sizeof kinds[0];
  for (unsigned own = 0; own < id_count * kind_count; own++) {
    unsigned kind = kinds[own / id_count];
    uint32_t key = entry_key(ids[own % id_count], kind);
    struct hak_front front = {.key = kind == KIND_PRIVATE ? key : (uint16_t)key};
    for (unsigned m = 0; m < sizeof marks / sizeof marks[0]; m++) {
      assert_int_equal(entry_pool_id(marks[m]), 0);
      assert_false(front_takes(&front, marks[m]));
      assert_false(front_takes(&hak_heap_none, marks[m]));
    }
    for (unsigned other = 0; other < id_count * kind_count; other++)
      for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
        unsigned other_kind = kinds[other / id_count];
        uint32_t entry = entry_of(entry_key(ids[other % id_count], other_kind), cls);
        assert_int_equal(entry_is_of(entry, key), own == other);
        assert_int_equal(front_takes(&front, entry), kind == KIND_PRIVATE ? own == other : kind == other_kind);
        assert_int_equal(entries_are_alike(entry, entry_of(key, cls)), kind == other_kind);
        assert_false(front_takes(&hak_heap_none, entry));
      }
  }
}

static void *cover(void *address) { return map_cover(address, UNIT_BYTES) ? map_row(address) : NULL; }

/* The marks of an arena are a unit's each. */
UNIT_TEST(marks_reach_over_a_border) {
  char *base = (char *)((uintptr_t)300 << HAK_LEAF_SHIFT) + 5 * UNIT_BYTES;
  const size_t units = 2 * ROW_UNITS;
  assert_true(map_cover(base - UNIT_BYTES, (units + 2) * UNIT_BYTES));
  arena_mark_set(base, units * UNIT_BYTES, 1);
  arena_mark_set(base + 7 * UNIT_BYTES, 30 * UNIT_BYTES, 2);
  arena_mark_set(base + 40 * UNIT_BYTES, UNIT_BYTES, 0);
  assert_int_equal(arena_mark(base - 1), 0);
  for (size_t i = 0; i < units; i++)
    assert_int_equal(arena_mark(base + i * UNIT_BYTES + 9), i == 40 ? 0 : i >= 7 && i < 37 ? 2 : 1);
  assert_int_equal(arena_mark(base + units * UNIT_BYTES), 0);
}

/* A request that the system will refuse must not cost tables. */
UNIT_TEST(hopeless_requests_cost_no_leaves) {
  char *block = hak_malloc(1 << 20);
  size_t before = map_bytes();
  size_t room = ((size_t)1 << HAK_ADDRESS_BITS) - (uintptr_t)block - LEAF_BYTES;
  char *grown = hak_realloc(block, room); /* runs into the stack */
  assert_true(map_bytes() - before <= ROW_BYTES);
  hak_free(grown ? grown : block);
}

/* Threads that meet at a missing leaf, and row, make one of each. */
UNIT_TEST(a_row_is_made_once) {
  for (uintptr_t leaf = 100; leaf < 120; leaf++) {
    pthread_t threads[4];
    void *rows[4];
    test_threads_start(threads, 4, cover, (void *)(leaf << HAK_LEAF_SHIFT), 0);
    for (unsigned i = 0; i < 4; i++)
      pthread_join(threads[i], &rows[i]);
    assert_non_null(rows[0]);
    for (unsigned i = 1; i < 4; i++)
      assert_ptr_equal(rows[i], rows[0]);
  }
}

#define TARGETS 600u /* leaves from here on get a row each by a move */
#define MOVES 40u

static void *move_again_and_again(void *unused) {
  static _Atomic unsigned moves;
  static _Atomic bool is_moving;
  for (unsigned i = unit_rounds(20000, 10); i > 0; i--) {
    CHECK(map_move_begin());
    CHECK(!atomic_exchange(&is_moving, true));
    uintptr_t move = atomic_fetch_add(&moves, 1);
    void *target = move < MOVES ? (void *)((TARGETS + move) << HAK_LEAF_SHIFT) : NULL;
    if (i % 64 == 0) /* beside a busy program each takes that one's time slice */
      sched_yield();
    store_relaxed(&is_moving, false);
    map_move_end(target);
    CHECK(target == NULL || map_row(target)->records[0][0]++ == 0);
  }
  return unused;
}

/* One mapping moves at a time, and no two get the same row. */
UNIT_TEST(mappings_move_one_by_one) {
  size_t before = map_bytes();
  test_threads_run(4, move_again_and_again, NULL, 0);
  assert_true(map_bytes() - before <= (MOVES + 2) * (sizeof(struct map_leaf) + sizeof(struct map_row)) + MIB);
}

#define HOMES 400u /* two leaves from here on are made at the same time */

static void *cover_and_look(void *number) {
  uintptr_t index = HOMES + (uintptr_t)number % 2;
  void *unit = (void *)(index << HAK_LEAF_SHIFT);
  CHECK(map_cover(unit, UNIT_BYTES));
  CHECK(HAK_PLAIN_LOAD(hak_map_home.index) != index ||
        HAK_PLAIN_LOAD(hak_map_home.entries) == HAK_PLAIN_LOAD(hak_map_top[index]));
  CHECK(map_entry(unit) == ENTRY_NONE);
  return NULL;
}

static void settle_home(void) {
  test_threads_run(4, cover_and_look, NULL, 1);
  CHECK(hak_map_home.index - HOMES < 2);
  if (unit_lies("moved"))
    hak_map_home.index ^= 1;
  CHECK(hak_map_home.entries == hak_map_top[hak_map_home.index]);
  CHECK(hak_map_top[HOMES] != 0 && hak_map_top[HOMES + 1] != 0);
}

/* Threads that meet at the first leaves agree which one is the home leaf. */
UNIT_TEST_FIRST(the_first_leaf_is_the_home_leaf) {
  for (unsigned i = unit_rounds(200, 50); i > 0; i--)
    test_in_child(settle_home);
}

static void use_other_leaves(void) {
  enum { COUNT = 2000 };
  static unsigned char *blocks[COUNT];
  uint64_t seed = UNIT_SEED;
  CHECK(map_cover((void *)((uintptr_t)HOMES << HAK_LEAF_SHIFT), UNIT_BYTES));
  for (unsigned i = 0; i < 50 * COUNT; i++) {
    unsigned char **block = &blocks[test_random(&seed) % COUNT];
    CHECK(*block == NULL || **block == (unsigned char)(block - blocks));
    hak_free(*block);
    *block = hak_malloc(1 + test_random(&seed) % 5000);
    CHECK(*block != NULL);
    **block = (unsigned char)(block - blocks);
  }
  for (unsigned i = 0; i < COUNT; i++) {
    CHECK((uintptr_t)blocks[i] >> HAK_LEAF_SHIFT != hak_map_home.index);
    CHECK(hak_free_ready(blocks[i]) || hak_malloc_ready(hak_usable_size(blocks[i])) != NULL); /* or the bin was full */
  }
}

/* Bins take the blocks of other leaves as well. */
UNIT_TEST_FIRST(blocks_lie_outside_the_home_leaf) { test_in_child(use_other_leaves); }

UNIT_MAIN()
