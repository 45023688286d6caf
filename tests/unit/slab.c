/* slab: order of blocks, choice of slabs, when slabs open and close, and the bugs a give notices. */
#include "unit.h"

#define BLOCKS_MAX 4096u

static struct slab_set set = {.key = 77u << HAK_ENTRY_ID_SHIFT};

static void assert_none_left(void) {
  slab_set_close_empty(&set);
  assert_int_equal(set.slab_bytes, 0);
  assert_int_equal(set.taken_bytes, 0);
}
static void *slots[BLOCKS_MAX];

static bool no_map; /* the system gives nothing */
TEST_WRAP(void *, os_map, size_t bytes, size_t alignment) { return no_map ? NULL : __real_os_map(bytes, alignment); }

/* Takes exactly `count` blocks; block i in address order is in out[i] if they are of one slab. */
static void take_all(unsigned cls, void **out, size_t count) {
  size_t taken = 0;
  while (taken < count) {
    size_t got = slab_set_take(&set, cls, slots + BLOCKS_MAX, count - taken);
    assert_true(got > 0 && got <= count - taken);
    for (size_t i = 0; i < got; i++)
      out[taken + i] = slots[BLOCKS_MAX - 1 - i];
    taken += got;
  }
}

static void shuffle(void **blocks, size_t count, uint64_t seed) {
  for (size_t i = count; i > 1; i--) {
    size_t j = test_random(&seed) % i;
    void *swap = blocks[i - 1];
    blocks[i - 1] = blocks[j];
    blocks[j] = swap;
  }
}

UNIT_TEST(blocks_ascend_from_the_top_of_the_array) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    size_t count = size_classes[cls].block_count, bytes = class_bytes(cls), half = count / 2;
    assert_int_equal(slab_set_take(&set, cls, slots + BLOCKS_MAX, half), half);
    char *base = slots[BLOCKS_MAX - 1];
    assert_int_equal((uintptr_t)base & (class_slab_bytes(cls) - 1), 0);
    for (size_t i = 0; i < half; i++)
      assert_ptr_equal(slots[BLOCKS_MAX - 1 - i], base + i * bytes);
    /* More than the slab has left: what is left, and no new slab. */
    assert_int_equal(slab_set_take(&set, cls, slots + BLOCKS_MAX, count), count - half);
    for (size_t i = half; i < count; i++)
      assert_ptr_equal(slots[BLOCKS_MAX - 1 - (i - half)], base + i * bytes);
    assert_int_equal(set.slab_bytes, class_slab_bytes(cls));
    assert_int_equal(set.taken_bytes, count * bytes);
    for (size_t unit = 0; unit < (size_t)1 << size_classes[cls].order; unit++)
      assert_int_equal(map_entry(base + unit * UNIT_BYTES), entry_of(set.key, cls));
    UNIT_SLABS_VALID(&set);

    void *blocks[BLOCKS_MAX];
    for (size_t i = 0; i < count; i++)
      blocks[i] = base + i * bytes;
    shuffle(blocks, count, cls);
    slab_set_give(&set, cls, blocks, count / 3);
    UNIT_SLABS_VALID(&set);
    slab_set_give(&set, cls, blocks + count / 3, count - count / 3);
    UNIT_SLABS_VALID(&set);
    assert_none_left();
    assert_true(map_entry(base) == ENTRY_NONE || map_entry(base) == ENTRY_EXTENT);
  }
}

static _Atomic uint16_t *states_at(const char *base) { return *map_row_states(map_row(base), base); }

/* An open slab has a state for each block, and for the end; all are zero at first. Under the control, others than its
 * own go back. */
UNIT_TEST(states_live_as_long_as_their_slab) {
  struct slab_set checked = {.key = 79u << HAK_ENTRY_ID_SHIFT, .has_states = true};
  size_t used_before = 0;
  for (unsigned turn = 0; turn < 2; turn++) {
    for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
      size_t count = size_classes[cls].block_count;
      assert_int_equal(slab_set_take(&checked, cls, slots + BLOCKS_MAX, count), count);
      const char *base = slots[BLOCKS_MAX - 1];
      for (size_t i = 0; i * class_bytes(cls) < class_slab_bytes(cls); i++) {
        assert_int_equal(states_at(base)[i], 0);
        states_at(base)[i] = 1;
      }
      if (unit_lies("states"))
        *map_row_states(map_row(base), base) = metadata_take(METADATA_ORDER_MAX);
      slab_set_give(&checked, cls, slots + BLOCKS_MAX - count, count);
      slab_set_close_empty(&checked);
      assert_null(states_at(base));
    }
    size_t used = metadata_bytes() - metadata_free_bytes();
    assert_true(turn == 0 || used <= used_before);
    used_before = used;
  }
}

/* Without memory for the states the slab is not opened; its units stay free. */
UNIT_TEST(no_slab_opens_without_states) {
  struct slab_set checked = {.key = 79u << HAK_ENTRY_ID_SHIFT, .has_states = true};
  unsigned cls = hak_class_of(16);
  assert_int_equal(slab_set_take(&checked, cls, slots + BLOCKS_MAX, 1), 1);
  void *block = slots[BLOCKS_MAX - 1], *none = NULL, **pieces = &none;
  slab_set_give(&checked, cls, &block, 1);
  slab_set_close_empty(&checked);
  size_t taken_bytes = usage_taken();
  no_map = true;
  for (unsigned order = METADATA_ORDER_MIN; order <= METADATA_ORDER_MAX; order++) {
    for (void **piece; (piece = metadata_take(order)) != NULL; pieces = piece) {
      piece[0] = pieces;
      piece[1] = (void *)(uintptr_t)order;
    }
  }
  assert_int_equal(slab_set_take(&checked, cls, slots + BLOCKS_MAX, 1), 0);
  assert_int_equal(checked.slab_bytes, 0);
  assert_int_equal(usage_taken(), taken_bytes);
  while (pieces != &none) {
    void **piece = pieces;
    pieces = piece[0];
    metadata_give(piece, (unsigned)(uintptr_t)piece[1]);
  }
  no_map = false;
  assert_int_equal(slab_set_take(&checked, cls, slots + BLOCKS_MAX, 1), 1);
  slab_set_give(&checked, cls, slots + BLOCKS_MAX - 1, 1);
  slab_set_close_empty(&checked);
  UNIT_EXTENTS_VALID();
}

/* Takes the blocks of 20 slabs and touches none. Returns what is resident of the last slab. */
static size_t resident_of_untouched(unsigned cls, void **blocks) {
  size_t count = size_classes[cls].block_count;
  for (unsigned i = 0; i < 20; i++)
    take_all(cls, blocks + i * count, count);
  void *last = (void *)round_down((uintptr_t)blocks[19 * count], class_slab_bytes(cls));
  return os_resident_bytes(last, class_slab_bytes(cls));
}

/* A program may leave most of a large block untouched. Of blocks up to a page, each page is needed by one. */
UNIT_TEST_FIRST(only_slabs_of_small_blocks_are_populated) {
  static void *small[20 * BLOCKS_MAX], *large[20 * BLOCKS_MAX];
  unsigned cls = hak_class_of(128), large_cls = hak_class_of(16384);
  size_t resident = resident_of_untouched(cls, small);
  assert_int_equal(resident_of_untouched(large_cls, large), 0);
  slab_set_give(&set, cls, small, size_classes[cls].block_count * (size_t)20);
  slab_set_give(&set, large_cls, large, size_classes[large_cls].block_count * (size_t)20);
  slab_set_close_empty(&set);
  unit_skip_if(resident == 0, "the kernel does not populate ranges, or the emulator");
  assert_int_equal(resident, class_slab_bytes(cls));
}

static int by_address(const void *a, const void *b) {
  const char *x = *(char *const *)a, *y = *(char *const *)b;
  return (x > y) - (x < y);
}

/* Near blocks in memory may belong to two slabs. Some blocks of each are put back before, and some after, so that it is
 * not the slab's list that ends a run: upwards, downwards, and in no order. */
#define SHUFFLED ((size_t)24) /* blocks in a row */
UNIT_TEST(runs_of_near_blocks_end_with_their_slab) {
  static void *blocks[4 * BLOCKS_MAX], *parts[3][4 * BLOCKS_MAX];
  static const unsigned part_of[] = {1, 0, 2, 1};
  unsigned crossed = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    size_t count = size_classes[cls].block_count * (size_t)4;
    for (unsigned way = 0; way < 3; way++) {
      size_t counts[3] = {0};
      take_all(cls, blocks, count);
      qsort(blocks, count, sizeof blocks[0], by_address);
      for (size_t i = 0; i < count; i++) {
        unsigned part = part_of[i % 4];
        parts[part][counts[part]++] = blocks[way == 1 ? count - 1 - i : i];
        crossed += i > 0 && i % 4 == 0 && i % size_classes[cls].block_count == 0 &&
                   (size_t)((char *)blocks[i] - (char *)blocks[i - 1]) == class_bytes(cls);
      }
      for (unsigned part = 0; part < 3; part++) {
        for (size_t i = 0; way == 2 && i < counts[part]; i += SHUFFLED)
          shuffle(parts[part] + i, min_size(SHUFFLED, counts[part] - i), UNIT_SEED + i);
        slab_set_give(&set, cls, parts[part], counts[part]);
        UNIT_SLABS_VALID(&set);
      }
    }
    assert_int_equal(set.taken_bytes, 0);
    slab_set_close_empty(&set);
  }
  assert_true(crossed > 0);
}

/* After holes appear, the lowest come first again. */
UNIT_TEST(holes_are_filled_in_address_order) {
  unsigned cls = hak_class_of(48);
  size_t count = size_classes[cls].block_count;
  static void *blocks[BLOCKS_MAX], *holes[BLOCKS_MAX];
  take_all(cls, blocks, count);
  uint64_t seed = UNIT_SEED;
  size_t hole_count = 0;
  for (size_t i = 0; i < count; i++)
    if (test_random(&seed) % 3 == 0)
      holes[hole_count++] = blocks[i];
  shuffle(holes, hole_count, seed);
  slab_set_give(&set, cls, holes, hole_count);
  UNIT_SLABS_VALID(&set);
  assert_int_equal(slab_set_take(&set, cls, slots + BLOCKS_MAX, BLOCKS_MAX), hole_count);
  for (size_t i = 1; i < hole_count; i++)
    assert_true((char *)slots[BLOCKS_MAX - 1 - i] > (char *)slots[BLOCKS_MAX - i]);
  assert_int_equal(set.taken_bytes, count * class_bytes(cls));
  slab_set_give(&set, cls, blocks, count);
  slab_set_close_empty(&set);
}

static bool in_slab_of(const void *block, const void *other, unsigned cls) {
  return round_down((uintptr_t)block, class_slab_bytes(cls)) == round_down((uintptr_t)other, class_slab_bytes(cls));
}

UNIT_TEST(fullest_slabs_give_first) {
  const unsigned classes[] = {hak_class_of(16), hak_class_of(1024), hak_class_of(5000), hak_class_of(60000)};
  for (unsigned c = 0; c < 4; c++) {
    unsigned cls = classes[c];
    size_t count = size_classes[cls].block_count;
    static void *slabs[4][BLOCKS_MAX];
    for (unsigned i = 0; i < 4; i++)
      take_all(cls, slabs[i], count);
    /* Free shares in the four quarters; the order of giving is not the order of fullness. */
    const size_t free_counts[4] = {(count * 6 + 7) / 8, 1, count - 1, (count * 3 + 7) / 8};
    const unsigned by_fullness[4] = {1, 3, 0, 2};
    for (unsigned i = 0; i < 4; i++)
      slab_set_give(&set, cls, slabs[i], free_counts[i]);
    UNIT_SLABS_VALID(&set);
    for (unsigned i = 0; i < 4; i++) {
      unsigned slab = by_fullness[i];
      void *blocks[BLOCKS_MAX];
      take_all(cls, blocks, free_counts[slab]);
      for (size_t b = 0; b < free_counts[slab]; b++)
        assert_true(in_slab_of(blocks[b], slabs[slab][0], cls));
    }
    for (unsigned i = 0; i < 4; i++)
      slab_set_give(&set, cls, slabs[i], count);
    assert_none_left();
  }
}

/* Of several emptied slabs at most one stays, and of the long ones none. */
UNIT_TEST(emptied_slabs_are_closed) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls += 9) {
    size_t count = size_classes[cls].block_count;
    static void *blocks[6][BLOCKS_MAX];
    for (unsigned i = 0; i < 6; i++)
      take_all(cls, blocks[i], count);
    assert_int_equal(set.slab_bytes, 6 * class_slab_bytes(cls));
    for (unsigned i = 0; i < 6; i++)
      slab_set_give(&set, cls, blocks[i], count);
    assert_true(set.slab_bytes <= class_slab_bytes(cls));
    if (class_slab_bytes(cls) == ROW_BYTES)
      assert_int_equal(set.slab_bytes, 0);
    /* A program at a slab's edge does not open and close one all the time. */
    if (class_slab_bytes(cls) <= 4 * UNIT_BYTES) {
      size_t before = usage_slabs();
      for (unsigned i = 0; i < 10; i++) {
        void *block;
        take_all(cls, &block, 1);
        slab_set_give(&set, cls, &block, 1);
      }
      assert_int_equal(usage_slabs(), before);
    }
    assert_none_left();
    UNIT_SLABS_VALID(&set);
  }
}

/* Random takes and gives of random classes; each block carries its own address, twice. */
UNIT_TEST(random_use_keeps_blocks_apart) {
  enum { LIVE = 4000 };
  static struct {
    char *block;
    unsigned cls;
  } live[LIVE];
  uint64_t seed = UNIT_SEED;
  size_t count = 0, bytes = 0;
  for (unsigned step = 0; step < 40000; step++) {
    if (count < LIVE && (count == 0 || test_random(&seed) % 100 < 55)) {
      unsigned cls = 1 + (unsigned)(test_random(&seed) % (test_random(&seed) % 8 ? 64 : HAK_CLASS_COUNT - 1));
      size_t got = slab_set_take(&set, cls, slots + BLOCKS_MAX, 1);
      assert_int_equal(got, 1);
      char *block = slots[BLOCKS_MAX - 1];
      memcpy(block, &block, sizeof(void *));
      memcpy(block + class_bytes(cls) - sizeof(void *), &block, sizeof(void *));
      live[count].block = block;
      live[count++].cls = cls;
      bytes += class_bytes(cls);
    } else {
      size_t i = test_random(&seed) % count;
      char *block = live[i].block;
      size_t block_bytes = class_bytes(live[i].cls);
      assert_memory_equal(block, &live[i].block, sizeof block);
      assert_memory_equal(block + block_bytes - sizeof block, &live[i].block, sizeof block);
      slab_set_give(&set, live[i].cls, (void **)&block, 1);
      bytes -= block_bytes;
      live[i] = live[--count];
    }
    assert_int_equal(set.taken_bytes, bytes);
    if (step % 4000 == 0)
      UNIT_SLABS_VALID(&set);
  }
  while (count-- > 0)
    slab_set_give(&set, live[count].cls, (void *const *)&live[count].block, 1);
  assert_none_left();
}

/* Neighbours up and down, jumps within a slab and to others, in calls of any length. */
UNIT_TEST(runs_of_blocks_come_back) {
  static void *blocks[BLOCKS_MAX];
  static const size_t sizes[] = {16, 48, 1000, 9000};
  uint64_t seed = UNIT_SEED;
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    unsigned cls = hak_class_of(sizes[i]);
    size_t count = min_size(3 * (size_t)size_classes[cls].block_count, BLOCKS_MAX);
    take_all(cls, blocks, count);
    for (size_t at = 0; at < count; at++) /* half of the blocks change places */
      if (test_random(&seed) % 4 == 0) {
        size_t other = test_random(&seed) % count;
        void *block = blocks[at];
        blocks[at] = blocks[other];
        blocks[other] = block;
      }
    for (size_t given = 0, part; given < count; given += part) {
      part = min_size(1 + test_random(&seed) % 300, count - given);
      slab_set_give(&set, cls, blocks + given, part);
      UNIT_SLABS_VALID(&set);
      assert_int_equal(set.classes[cls].taken_blocks, count - given - part);
    }
    assert_none_left();
  }
}

#define DELAY_MS 100u

/* Purges the set's holes as reclaim/hole_walk.c does. Returns the bytes. */
static size_t purge_holes(enum hole_search search, uint32_t now_ms) {
  static struct hole_batch batch;
  batch.search = search;
  batch.now_ms = now_ms;
  batch.delay_ms = DELAY_MS;
  size_t purged = 0;
  slab_set_holes_begin(&set);
  for (bool more = true; more;) {
    more = slab_set_holes_take(&set, &batch);
    for (unsigned i = 0; i < batch.hole_count; i++) {
      os_purge(batch.holes[i].start, batch.holes[i].bytes);
      purged += batch.holes[i].bytes;
    }
    slab_set_holes_give(&set, &batch);
    UNIT_SLABS_VALID(&set);
  }
  return purged;
}

/* Holes are given back and read as zero; live neighbours keep their content. */
UNIT_TEST(holes_can_be_purged) {
  unsigned cls = hak_class_of(1024);
  size_t count = size_classes[cls].block_count, bytes = class_bytes(cls);
  static void *blocks[BLOCKS_MAX];
  take_all(cls, blocks, count);
  for (size_t i = 0; i < count; i++)
    memset(blocks[i], 0x5a, bytes);
  size_t hole = count / 2, first = count / 4;
  slab_set_give(&set, cls, blocks + first, hole);
  size_t purged = purge_holes(HOLES_ALL, 1);
  assert_true(purged > 0 && purged <= hole * bytes);
  for (size_t i = 0; i < count; i++)
    if (i < first || i >= first + hole)
      for (size_t b = 0; b < bytes; b++)
        assert_int_equal(((char *)blocks[i])[b], 0x5a);
  slab_set_give(&set, cls, blocks, first);
  slab_set_give(&set, cls, blocks + first + hole, count - first - hole);
  slab_set_close_empty(&set);
}

/* Takes the holes of all slabs, calls `meanwhile` before they are in their lists again. Returns the holes' bytes. */
static size_t take_and_give_holes(void (*meanwhile)(void *), void *argument) {
  static struct hole_batch batch;
  batch = (struct hole_batch){.search = HOLES_ALL};
  slab_set_holes_begin(&set);
  size_t bytes = 0;
  while (slab_set_holes_take(&set, &batch)) {
    for (unsigned i = 0; i < batch.hole_count; i++)
      bytes += batch.holes[i].bytes;
    meanwhile(argument);
    slab_set_holes_give(&set, &batch);
  }
  UNIT_SLABS_VALID(&set);
  return bytes;
}

/* Only what nothing was taken from or put into for the delay, and only once. The time's low bits may wrap. */
UNIT_TEST(settled_slabs_are_purged_once) {
  unsigned cls = hak_class_of(1024);
  size_t count = size_classes[cls].block_count, kept = count / 8;
  static void *blocks[BLOCKS_MAX];
  uint32_t now_ms = UINT32_MAX - DELAY_MS / 2;
  take_all(cls, blocks, count);
  slab_set_give(&set, cls, blocks + kept, count - kept);
  size_t holes = round_down((count - kept) * class_bytes(cls), os_page_bytes());
  assert_int_equal(purge_holes(HOLES_SETTLED, now_ms), 0);
  assert_int_equal(purge_holes(HOLES_SETTLED, now_ms += DELAY_MS - 1), 0);
  assert_int_equal(purge_holes(HOLES_SETTLED, now_ms += 1), holes);
  assert_int_equal(purge_holes(HOLES_SETTLED, now_ms += DELAY_MS), 0);
  assert_int_equal(purge_holes(HOLES_ALL, now_ms), 0);
  /* A block that is put back stirs the slab; one that is taken and put back, too. */
  kept--;
  slab_set_give(&set, cls, blocks + kept, 1);
  assert_int_equal(purge_holes(HOLES_SETTLED, now_ms += DELAY_MS), 0);
  assert_true(purge_holes(HOLES_SETTLED, now_ms += DELAY_MS) >= holes);
  void *block;
  for (unsigned i = 0; i < 3; i++) {
    take_all(cls, &block, 1);
    slab_set_give(&set, cls, &block, 1);
    assert_int_equal(purge_holes(HOLES_SETTLED, now_ms += DELAY_MS), 0);
  }
  assert_true(purge_holes(HOLES_SETTLED, now_ms += DELAY_MS) >= holes);
  slab_set_give(&set, cls, blocks, kept);
  assert_none_left();
}

/* More slabs, and more holes, than a batch can take. */
UNIT_TEST(all_holes_of_many_slabs_are_found) {
  enum { SLABS = 3 * HOLES_MAX };
  unsigned cls = hak_class_of(8192);
  size_t count = size_classes[cls].block_count;
  static void *blocks[SLABS][64];
  assert_true(count <= 64);
  for (unsigned s = 0; s < SLABS; s++)
    take_all(cls, blocks[s], count);
  size_t expected = 0;
  for (unsigned s = 0; s < SLABS; s++)
    for (size_t i = 0; i < count; i += 2) {
      memset(blocks[s][i], 1, class_bytes(cls));
      slab_set_give(&set, cls, &blocks[s][i], 1);
      expected += class_bytes(cls);
    }
  assert_int_equal(purge_holes(HOLES_ALL, 1), expected);
  assert_int_equal(purge_holes(HOLES_ALL, 2), 0);
  for (unsigned s = 0; s < SLABS; s++)
    for (size_t i = 1; i < count; i += 2)
      slab_set_give(&set, cls, &blocks[s][i], 1);
  assert_none_left();
}

/* Under the lock a walk looks at a part of the slabs, and then goes on where it stopped, also if the slab there was
 * closed or moved to another list meanwhile. */
UNIT_TEST(walks_over_holes_go_on_where_they_stopped) {
  enum { SLABS = 6 * HOLE_LOOKS_MAX };
  static struct hole_batch batch;
  unsigned cls = hak_class_of(8192), steps = 0, closed = 0;
  size_t count = size_classes[cls].block_count, moved_bytes = 0;
  static void *blocks[SLABS][64];
  for (unsigned s = 0; s < SLABS; s++)
    take_all(cls, blocks[s], count);
  for (unsigned s = 0; s < SLABS; s++)
    slab_set_give(&set, cls, &blocks[s][0], 1);
  batch = (struct hole_batch){.search = HOLES_SETTLED, .now_ms = 1, .delay_ms = DELAY_MS};
  slab_set_holes_begin(&set);
  for (; slab_set_holes_take(&set, &batch); steps++) {
    assert_int_equal(batch.slab_count, 0);
    for (unsigned s = 0; s < SLABS; s++)
      if (blocks[s][0] != NULL && map_record(blocks[s][0]) == (void *)set.walk.next) {
        bool closes = steps % 2 == 0;
        size_t given = closes ? count - 1 : count / 2;
        slab_set_give(&set, cls, blocks[s] + count - given, given);
        moved_bytes += closes ? 0 : (given + 1) * class_bytes(cls);
        closed += closes;
        blocks[s][0] = NULL; /* once */
        memset(blocks[s] + count - given, 0, given * sizeof(void *));
        break;
      }
    UNIT_SLABS_VALID(&set);
  }
  assert_true(steps >= SLABS / HOLE_LOOKS_MAX - 1 && closed > 1 && moved_bytes > 0);
  /* The walk has seen all others. */
  size_t others = (SLABS - closed) * class_bytes(cls);
  assert_true(purge_holes(HOLES_SETTLED, 1 + DELAY_MS) >= others - moved_bytes);
  for (unsigned s = 0; s < SLABS; s++)
    for (size_t i = 1; i < count; i++)
      if (blocks[s][i] != NULL)
        slab_set_give(&set, cls, &blocks[s][i], 1);
  assert_none_left();
}

struct stirring {
  unsigned cls;
  void **blocks;
  size_t give;  /* back, from blocks[0] on */
  size_t taken; /* then as many as these, which must come from elsewhere */
};

static void stir(void *argument) {
  struct stirring *stirring = argument;
  slab_set_give(&set, stirring->cls, stirring->blocks, stirring->give);
  stirring->give = 0;
  UNIT_SLABS_VALID(&set);
  for (size_t i = 0; i < stirring->taken; i++) {
    void *block;
    take_all(stirring->cls, &block, 1);
    assert_false(in_slab_of(block, stirring->blocks[0], stirring->cls));
    slab_set_give(&set, stirring->cls, &block, 1);
  }
  stirring->taken = 0;
}

/* While its holes are purged, blocks may be put into a slab, and none are taken; what was put is found later. */
UNIT_TEST(slabs_may_be_stirred_while_they_are_purged) {
  unsigned cls = hak_class_of(4096);
  size_t count = size_classes[cls].block_count, bytes = class_bytes(cls);
  static void *blocks[BLOCKS_MAX];
  take_all(cls, blocks, count);
  slab_set_give(&set, cls, blocks + count - 2, 2);
  struct stirring some = {cls, blocks, 2, 3};
  /* And all of the slab that was opened for stir. The next walk comes by again, for those put back meanwhile. */
  assert_int_equal(take_and_give_holes(stir, &some), (2 + count) * bytes);
  assert_int_equal(purge_holes(HOLES_ALL, 1), (2 + 2) * bytes);
  assert_int_equal(purge_holes(HOLES_ALL, 2), 0);
  slab_set_give(&set, cls, blocks + count - 3, 1);
  struct stirring all = {cls, blocks + 2, count - 5, 0};
  take_and_give_holes(stir, &all); /* it is empty when it comes back */
  assert_none_left();
}

/* As an envelope brings them: of several classes, in any order. A batch ends in the middle of what is given. */
UNIT_TEST(blocks_of_several_classes_come_back) {
  enum { CLASSES = 6, EACH = 700, ALL = CLASSES * EACH };
  static const size_t sizes[CLASSES] = {16, 96, 592, 2048, 10000, 40000};
  static void *blocks[ALL];
  uint64_t seed = 26;
  for (unsigned i = 0; i < CLASSES; i++)
    take_all(hak_class_of(sizes[i]), blocks + (size_t)i * EACH, EACH);
  shuffle(blocks, ALL, 27);
  for (size_t given = 0, count; given < ALL; given += count) {
    count = test_random(&seed) % 40;
    count = count < ALL - given ? count : ALL - given;
    size_t bytes = 0, before = set.taken_bytes;
    for (size_t i = 0; i < count; i++)
      bytes += class_bytes(entry_class(map_entry(blocks[given + i])));
    slab_set_give_mixed(&set, blocks + given, count);
    assert_int_equal(set.taken_bytes, before - bytes);
    if (given % 16 == 0)
      UNIT_SLABS_VALID(&set);
  }
  assert_int_equal(set.taken_bytes, 0);
  for (unsigned i = 0; i < CLASSES; i++)
    assert_int_equal(set.classes[hak_class_of(sizes[i])].taken_blocks, 0);
  assert_none_left();
}

/* Neighbours are put back together: up or down, up to a row's end, with holes, and two rows in turns. Slabs are emptied
 * and closed while later rows of the batch wait. */
UNIT_TEST(rows_of_blocks_come_back) {
  enum { CLASSES = 4, EACH = 600, ALL = CLASSES * EACH, ORDERS = 4 };
  static const size_t sizes[CLASSES] = {16, 208, 1024, 20000};
  static void *taken[ALL], *blocks[ALL];
  uint64_t seed = 84;
  for (unsigned order = 0; order < ORDERS; order++) {
    for (unsigned i = 0; i < CLASSES; i++)
      take_all(hak_class_of(sizes[i]), taken + (size_t)i * EACH, EACH);
    for (size_t i = 0; i < ALL; i++) {
      size_t in_turns = i % CLASSES * EACH + i / CLASSES, with_holes = i * 7 % ALL;
      blocks[i] = taken[order == 0 ? i : order == 1 ? ALL - 1 - i : order == 2 ? in_turns : with_holes];
    }
    for (size_t given = 0, count; given < ALL; given += count) {
      count = test_random(&seed) % 200;
      count = count < ALL - given ? count : ALL - given;
      slab_set_give_mixed(&set, blocks + given, count);
      UNIT_SLABS_VALID(&set);
    }
    assert_int_equal(set.taken_bytes, 0);
    for (unsigned i = 0; i < CLASSES; i++)
      assert_int_equal(set.classes[hak_class_of(sizes[i])].taken_blocks, 0);
    assert_none_left();
  }
}

/* Its full slabs are found. */
UNIT_TEST(a_set_that_lists_full_slabs_closes_all) {
  struct slab_set private = {.key = 79u << HAK_ENTRY_ID_SHIFT, .lists_full = true};
  unsigned cls = hak_class_of(4096);
  size_t count = size_classes[cls].block_count;
  void *blocks[BLOCKS_MAX];
  assert_true(3 * count < BLOCKS_MAX);
  for (size_t taken = 0; taken < 3 * count - 1;)
    taken += slab_set_take(&private, cls, blocks + BLOCKS_MAX - taken, 3 * count - 1 - taken);
  assert_int_equal(private.classes[cls].slab_count, 3);
  slab_set_close_all(&private);
  assert_int_equal(private.classes[cls].slab_count, 0);
  assert_int_equal(private.slab_bytes, 0);
}

struct giving {
  unsigned cls; /* 0: of any */
  void *blocks[4];
  size_t count;
};

static void give(void *argument) {
  struct giving *giving = argument;
  if (giving->cls != 0)
    slab_set_give(&set, giving->cls, giving->blocks, giving->count);
  else
    slab_set_give_mixed(&set, giving->blocks, giving->count);
}

UNIT_TEST(bugs_end_the_program_with_their_sentence) {
  unsigned cls = hak_class_of(96), other_cls = hak_class_of(112);
  void *blocks[8], *other[1];
  take_all(cls, blocks, 8);
  take_all(other_cls, other, 1);
  char *first = blocks[0];
  static const char double_free[] = "double free of block ";
  static const char not_a_block[] = ", which is not the start of a block";

  /* Twice in one array; free for some time; never handed out. */
  unit_must_die(give, &(struct giving){cls, {first, first}, 2}, double_free, first, "");
  unit_must_die(give, &(struct giving){0, {first, first}, 2}, double_free, first, "");
  slab_set_give(&set, cls, blocks + 3, 1);
  unit_must_die(give, &(struct giving){cls, {blocks[3]}, 1}, double_free, blocks[3], "");
  for (unsigned i = 0; i < 4; i++) { /* among neighbours, in each place of a run, in both directions */
    struct giving up = {.cls = cls, .count = 4}, down = up;
    for (unsigned k = 0; k < 4; k++)
      up.blocks[k] = down.blocks[3 - k] = blocks[3 - i + k];
    unit_must_die(give, &up, double_free, blocks[3], "");
    unit_must_die(give, &down, double_free, blocks[3], "");
    up.cls = down.cls = 0;
    unit_must_die(give, &up, double_free, blocks[3], "");
    unit_must_die(give, &down, double_free, blocks[3], "");
  }
  struct giving apart = {cls, {blocks[5], blocks[1], blocks[3]}, 3},
                twice = {cls, {blocks[5], blocks[1], blocks[5]}, 3};
  unit_must_die(give, &apart, double_free, blocks[3], "");
  unit_must_die(give, &twice, double_free, blocks[5], "");
  twice.cls = 0;
  unit_must_die(give, &twice, double_free, blocks[5], "");
  unit_must_die(give, &(struct giving){0, {first, other[0], first}, 3}, double_free, first, "");
  char *unborn = first + 20 * class_bytes(cls);
  unit_must_die(give, &(struct giving){cls, {unborn}, 1}, double_free, unborn, "");

  /* Inside a block, and in the tail behind the last. */
  unit_must_die(give, &(struct giving){cls, {first + 16}, 1}, "free of ", first + 16, not_a_block);
  unit_must_die(give, &(struct giving){cls, {first + 1}, 1}, "free of ", first + 1, not_a_block);
  unit_must_die(give, &(struct giving){cls, {first, first + 97}, 2}, "free of ", first + 97, not_a_block);
  unit_must_die(give, &(struct giving){0, {other[0], first + 1}, 2}, "free of ", first + 1, not_a_block);
  unit_must_die(give, &(struct giving){0, {first, first + 97}, 2}, "free of ", first + 97, not_a_block);
  char *tail = first + size_classes[cls].block_count * class_bytes(cls);
  unit_must_die(give, &(struct giving){cls, {tail}, 1}, "free of ", tail, not_a_block);
  unit_must_die(give, &(struct giving){cls, {first, tail}, 2}, "free of ", tail, not_a_block);
  unit_must_die(give, &(struct giving){0, {first, tail}, 2}, "free of ", tail, not_a_block);

  /* The pointer's unit is no slab of this class and set: it was, when the pointer got into a bin. */
  unit_must_die(give, &(struct giving){cls, {other[0]}, 1}, double_free, other[0], "");
  unit_must_die(give, &(struct giving){cls, {first, other[0]}, 2}, double_free, other[0], "");
  struct slab_set stranger = {.key = 78u << HAK_ENTRY_ID_SHIFT};
  void *foreign[2];
  assert_int_equal(slab_set_take(&stranger, cls, foreign + 2, 2), 2);
  unit_must_die(give, &(struct giving){cls, {foreign[0]}, 1}, double_free, foreign[0], "");
  unit_must_die(give, &(struct giving){0, {foreign[0]}, 1}, double_free, foreign[0], "");
  unit_must_die(give, &(struct giving){0, {foreign[0], foreign[1]}, 2}, double_free, foreign[0], "");
  slab_set_give(&stranger, cls, foreign, 2);
  slab_set_close_empty(&stranger);
  unit_must_die(give, &(struct giving){cls, {foreign[0]}, 1}, double_free, foreign[0], "");

  slab_set_give(&set, cls, blocks, 3);
  slab_set_give(&set, cls, blocks + 4, 4);
  slab_set_give(&set, other_cls, other, 1);
  assert_none_left();
}

UNIT_MAIN(unit_alone())
