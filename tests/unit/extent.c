/* extent: random takes, gives and purges against a shadow: contents, alignment, coalescing, both banks, the
 * order of age, what is resident, zero and in the books, and release.
 *
 * Positive control: with an argument, the purge lies: `content` leaves the pages as they are but says that they
 * read as zero, `wide` takes a page too many. The test must fail then.
 */
#include "unit.h"

TEST_WRAP(bool, os_purge, void *address, size_t size) {
  if (unit_lies("wide") && address_in_arena(address)) /* the tables' pages are their own matter */
    size += os_page_bytes();
  return unit_lies("content") || __real_os_purge(address, size);
}

static const char *inside; /* what the kernel refuses to unmap, as a part of a mapping when there are too many */
TEST_WRAP(bool, os_unmap, void *address, size_t size) { return address != inside && __real_os_unmap(address, size); }

static struct extent_stats stats(void) {
  struct extent_stats s;
  extents_stats(&s);
  return s;
}

struct piece {
  struct extent extent;
  enum extent_bank bank;
  uint64_t tag;
};

/* Marks as a large object's: what is taken is never taken for a free extent. It is counted nowhere. */
static void own(const struct extent *extent) {
  map_entries_set(extent->base, extent->bytes / UNIT_BYTES, ENTRY_LARGE_BODY);
  usage_move(extent->resident ? USAGE_FREE : USAGE_PROMISED, USAGE_NOWHERE, extent->bytes);
}

static void tag_write(struct piece *piece, uint64_t tag) {
  piece->tag = tag;
  for (size_t i = 0; i < piece->extent.bytes; i += UNIT_BYTES) {
    memcpy(piece->extent.base + i, &tag, sizeof tag);
    memcpy(piece->extent.base + i + UNIT_BYTES - sizeof tag, &tag, sizeof tag);
  }
}

static void tag_check(const struct piece *piece) {
  for (size_t i = 0; i < piece->extent.bytes; i += UNIT_BYTES) {
    assert_memory_equal(piece->extent.base + i, &piece->tag, sizeof piece->tag);
    assert_memory_equal(piece->extent.base + i + UNIT_BYTES - sizeof piece->tag, &piece->tag, sizeof piece->tag);
  }
}

/* Of a long one only where tags are: to read each page is to have it mapped, under TSan with four times as much. */
static void assert_zero(const struct extent *extent) {
  size_t step = extent->bytes > 8 * MIB ? UNIT_BYTES : 4096;
  for (size_t i = extent->front; i < extent->bytes; i += step) {
    assert_int_equal(extent->base[i], 0);
    assert_int_equal(extent->base[min_size(i + step, extent->bytes) - 1], 0);
  }
}

static struct piece take(enum extent_bank bank, size_t bytes, size_t alignment) {
  struct piece piece = {.extent = extent_take(bank, bytes, alignment), .bank = bank};
  assert_non_null(piece.extent.base);
  assert_int_equal(piece.extent.bytes, bytes);
  assert_int_equal((uintptr_t)piece.extent.base & (alignment - 1), 0);
  assert_true(address_in_arena(piece.extent.base) && address_in_arena(piece.extent.base + bytes - 1));
  assert_int_equal(extent_bank_of(piece.extent.base), bank);
  if (piece.extent.zero)
    assert_zero(&piece.extent);
  own(&piece.extent);
  return piece;
}

static void give(const struct piece *piece, uint64_t freed_ms) {
  struct extent extent = piece->extent;
  extent.resident = true;
  extent.zero = false;
  extent_give(extent, KEEP_BY_PRESET, freed_ms, USAGE_NOWHERE);
}

static int all_purged(void **state) {
  extents_purge(UNIT_EVERYTHING);
  assert_int_equal(decay_total(&extents_decay), 0);
  assert_int_equal(decay_oldest_ms(&extents_decay), 0);
  assert_int_equal(usage_free(), 0);
  UNIT_EXTENTS_VALID();
  return 0;
}

#define PIECES_MAX 300u

static size_t random_bytes(uint64_t *seed) {
  size_t units = 1 + test_random(seed) % (test_random(seed) % 4 ? 20 : 400);
  return units * UNIT_BYTES;
}

UNIT_TEST_BETWEEN(random_extents_never_overlap, all_purged, all_purged) {
  static struct piece pieces[PIECES_MAX];
  uint64_t seed = UNIT_SEED;
  unsigned count = 0;
  for (unsigned step = 0; step < unit_rounds(3000, 33); step++) {
    unsigned dice = (unsigned)(test_random(&seed) % 100);
    size_t free_before = decay_total(&extents_decay);
    if (count < PIECES_MAX && (count == 0 || dice < (step / 1000 % 2 ? 40 : 55))) {
      enum extent_bank bank = test_random(&seed) % 4 == 0 ? EXTENT_HUGE : EXTENT_PLAIN;
      size_t alignment = UNIT_BYTES << test_random(&seed) % 6;
      struct piece piece = take(bank, random_bytes(&seed), alignment);
      assert_int_equal(decay_total(&extents_decay),
                       free_before - (piece.extent.resident ? piece.extent.bytes : piece.extent.front));
      tag_write(&piece, test_random(&seed));
      pieces[count++] = piece;
    } else if (dice < 60) { /* a longer one, if what lies behind is free */
      struct piece *piece = &pieces[test_random(&seed) % count];
      char *end = piece->extent.base + piece->extent.bytes;
      struct extent more = extent_take_behind(end, random_bytes(&seed));
      if (more.base != NULL) {
        assert_ptr_equal(more.base, end);
        assert_int_equal(extent_bank_of(more.base), piece->bank);
        if (more.zero)
          assert_zero(&more);
        own(&more);
        tag_check(piece);
        piece->extent.bytes += more.bytes;
        tag_write(piece, piece->tag);
      }
    } else if (dice < 68) { /* a part of one goes: front, end or middle */
      struct piece *piece = &pieces[test_random(&seed) % count];
      size_t units = piece->extent.bytes / UNIT_BYTES;
      size_t first = test_random(&seed) % units, length = 1 + test_random(&seed) % (units - first);
      tag_check(piece);
      struct piece part = *piece, rest = *piece;
      part.extent.base += first * UNIT_BYTES;
      part.extent.bytes = length * UNIT_BYTES;
      rest.extent.base += (first + length) * UNIT_BYTES;
      rest.extent.bytes -= (first + length) * UNIT_BYTES;
      piece->extent.bytes = first * UNIT_BYTES;
      give(&part, os_milliseconds());
      if (rest.extent.bytes > 0 && piece->extent.bytes > 0 && count == PIECES_MAX)
        give(&rest, os_milliseconds());
      else if (rest.extent.bytes > 0 && piece->extent.bytes > 0)
        pieces[count++] = rest;
      else if (rest.extent.bytes > 0)
        *piece = rest;
      else if (piece->extent.bytes == 0)
        *piece = pieces[--count];
    } else {
      unsigned i = (unsigned)(test_random(&seed) % count);
      tag_check(&pieces[i]);
      give(&pieces[i], os_milliseconds());
      assert_int_equal(decay_total(&extents_decay), free_before + pieces[i].extent.bytes);
      pieces[i] = pieces[--count];
    }
    assert_int_equal(usage_free(), decay_total(&extents_decay));
    if (step % 700 == 17) {
      size_t keep = test_random(&seed) % 2 ? decay_total(&extents_decay) / 2 : 0;
      size_t before = decay_total(&extents_decay);
      size_t purged = extents_purge(purge_by_preset(keep, UNIT_ANY_TIME));
      assert_int_equal(decay_total(&extents_decay), before - purged);
      assert_true(decay_total(&extents_decay) <= keep);
    }
    if (step % 500 == 0)
      UNIT_EXTENTS_VALID();
    if (step % 2500 == 1200)
      extents_release(ROW_BYTES);
  }
  while (count > 0) {
    tag_check(&pieces[--count]);
    give(&pieces[count], os_milliseconds());
  }
  UNIT_EXTENTS_VALID();
}

/* Whatever the order of giving, neighbours of one kind are one extent: the whole can be had again. */
UNIT_TEST_BETWEEN(neighbours_are_joined, all_purged, all_purged) {
  enum { COUNT = 64 };
  static struct piece pieces[COUNT];
  uint64_t seed = UNIT_SEED;
  extents_release(ROW_BYTES);
  struct piece whole = take(EXTENT_PLAIN, COUNT * 3 * UNIT_BYTES, ROW_BYTES);
  struct piece wall = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
  tag_write(&whole, 1);
  tag_write(&wall, 2);
  for (unsigned round = 0; round < 12; round++) {
    for (unsigned i = 0; i < COUNT; i++) {
      pieces[i] = whole;
      pieces[i].extent.base += i * 3 * UNIT_BYTES;
      pieces[i].extent.bytes = 3 * UNIT_BYTES;
    }
    for (unsigned i = COUNT; i > 1; i--) {
      unsigned j = (unsigned)(test_random(&seed) % i);
      struct piece swap = pieces[i - 1];
      pieces[i - 1] = pieces[j];
      pieces[j] = swap;
    }
    size_t free_before = decay_total(&extents_decay);
    for (unsigned i = 0; i < COUNT; i++) {
      if (round % 3 == 2 && i == COUNT / 2)
        extents_purge(UNIT_EVERYTHING); /* half of them are of the other kind, and stay apart */
      give(&pieces[i], os_milliseconds());
    }
    UNIT_EXTENTS_VALID();
    if (round % 3 == 1) {
      extents_purge(UNIT_EVERYTHING);
      assert_int_equal(decay_total(&extents_decay), 0);
    } else if (round % 3 == 0) {
      assert_int_equal(decay_total(&extents_decay), free_before + whole.extent.bytes);
    }
    if (round % 3 == 2) { /* not joined until the rest is purged, too */
      extents_purge(UNIT_EVERYTHING);
      UNIT_EXTENTS_VALID();
    }
    size_t committed = stats().committed_bytes;
    struct piece again = take(EXTENT_PLAIN, whole.extent.bytes, ROW_BYTES);
    assert_ptr_equal(again.extent.base, whole.extent.base);
    assert_int_equal(stats().committed_bytes, committed);
    tag_write(&again, round);
  }
  tag_check(&wall);
  give(&wall, 1);
  give(&whole, 1);
}

/* Resident memory is used before memory that must be faulted in, however well that fits. */
UNIT_TEST_BETWEEN(resident_extents_are_taken_first, all_purged, all_purged) {
  struct piece big = take(EXTENT_PLAIN, 4 * MIB, UNIT_BYTES), wall1 = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
  struct piece small = take(EXTENT_PLAIN, MIB, UNIT_BYTES), wall2 = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
  tag_write(&big, 1);
  tag_write(&small, 2);
  give(&small, 1);
  extents_purge(UNIT_EVERYTHING);
  give(&big, 1);
  struct piece taken = take(EXTENT_PLAIN, MIB, UNIT_BYTES);
  assert_true(taken.extent.resident);
  assert_true(taken.extent.base >= big.extent.base && taken.extent.base < big.extent.base + big.extent.bytes);
  assert_int_equal(decay_total(&extents_decay), 3 * MIB);
  assert_null(extent_take_resident(EXTENT_PLAIN, 4 * MIB, UNIT_BYTES).base);
  assert_null(extent_take_resident(EXTENT_HUGE, 4 * MIB, UNIT_BYTES).base);
  struct extent rest = extent_take_resident(EXTENT_HUGE, 3 * MIB, UNIT_BYTES); /* which has none */
  assert_non_null(rest.base);
  assert_int_equal(extent_bank_of(rest.base), EXTENT_PLAIN);
  assert_true(rest.resident);
  own(&rest);
  assert_int_equal(decay_total(&extents_decay), 0);
  extent_give(rest, KEEP_BY_PRESET, 1, USAGE_NOWHERE);
  give(&taken, 1);
  give(&wall1, 1);
  give(&wall2, 1);
}

/* What begins with resident memory, and goes on with purged memory or the unused end of the arena, is taken before
 * memory that is not resident at all. */
UNIT_TEST_BETWEEN(long_extents_begin_with_resident_memory, all_purged, all_purged) {
  extents_release(UNIT_BYTES); /* so that all are carved in a row */
  struct piece first = take(EXTENT_PLAIN, 2 * MIB, UNIT_BYTES), second = take(EXTENT_PLAIN, 3 * MIB, UNIT_BYTES);
  struct piece wall = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES), last = take(EXTENT_PLAIN, 2 * MIB, UNIT_BYTES);
  assert_ptr_equal(second.extent.base, first.extent.base + 2 * MIB);
  tag_write(&first, 1);
  tag_write(&second, 2);
  tag_write(&wall, 3);
  tag_write(&last, 4);
  give(&second, 1);
  extents_purge(UNIT_EVERYTHING);
  give(&first, 1);

  struct piece taken = take(EXTENT_PLAIN, 4 * MIB, UNIT_BYTES); /* of the five that are free there */
  assert_ptr_equal(taken.extent.base, first.extent.base);
  assert_true(!taken.extent.resident && taken.extent.zero);
  assert_int_equal(taken.extent.front, 2 * MIB);
  assert_int_equal(usage_free(), 0);
  assert_int_equal(decay_total(&extents_decay), 0);
  UNIT_EXTENTS_VALID();
  tag_write(&taken, 5);
  give(&last, 1);
  struct piece longest = take(EXTENT_PLAIN, 7 * MIB, UNIT_BYTES); /* nothing was carved behind it */
  assert_ptr_equal(longest.extent.base, last.extent.base);
  assert_int_equal(longest.extent.front, 2 * MIB);
  tag_write(&longest, 6);
  tag_check(&taken);
  tag_check(&wall);
  UNIT_EXTENTS_VALID();

  give(&longest, 1);
  struct piece aligned = take(EXTENT_PLAIN, 16 * MIB, ROW_BYTES); /* only at multiples of a unit */
  assert_int_equal(aligned.extent.front, 0);
  give(&aligned, 1);
  give(&taken, 1);
  give(&wall, 1);
}

/* Three extents that do not touch, given with times of their own. */
UNIT_TEST_BETWEEN(oldest_memory_is_purged_first, all_purged, all_purged) {
  struct piece pieces[3], walls[2][3];
  for (unsigned i = 0; i < 3; i++) {
    struct piece whole = take(EXTENT_PLAIN, (i + 1) * MIB + 2 * UNIT_BYTES, UNIT_BYTES);
    pieces[i] = walls[0][i] = walls[1][i] = whole;
    pieces[i].extent.base += UNIT_BYTES;
    pieces[i].extent.bytes -= 2 * UNIT_BYTES;
    walls[1][i].extent.base += UNIT_BYTES + pieces[i].extent.bytes;
    walls[0][i].extent.bytes = walls[1][i].extent.bytes = UNIT_BYTES;
    tag_write(&pieces[i], 100 + i);
  }
  give(&pieces[2], 3000);
  give(&pieces[0], 1000); /* comes late, is older */
  give(&pieces[1], 2000);
  assert_int_equal(decay_oldest_ms(&extents_decay), 1000);
  assert_int_equal(extents_purge(purge_by_preset(6 * MIB, UNIT_ANY_TIME)), 0);
  assert_int_equal(extents_purge(purge_by_preset(0, 1000)), 0); /* in use at that time */
  assert_int_equal(extents_purge(purge_by_preset(5 * MIB, UNIT_ANY_TIME)), MIB);
  assert_zero(&pieces[0].extent);
  tag_check(&pieces[1]);
  tag_check(&pieces[2]);
  assert_int_equal(decay_oldest_ms(&extents_decay), 2000);
  assert_int_equal(extents_purge(purge_by_preset(0, 2001)), 2 * MIB);
  assert_zero(&pieces[1].extent);
  tag_check(&pieces[2]);
  assert_int_equal(decay_oldest_ms(&extents_decay), 3000);
  assert_int_equal(extents_purge(UNIT_EVERYTHING), 3 * MIB);
  for (unsigned i = 0; i < 6; i++)
    give(&walls[i % 2][i / 2], 1);
}

UNIT_TEST_BETWEEN(joined_memory_is_as_old_as_its_youngest_part, all_purged, all_purged) {
  struct piece whole = take(EXTENT_PLAIN, 2 * MIB, UNIT_BYTES), wall = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
  struct piece left = whole, right = whole;
  left.extent.bytes = right.extent.bytes = MIB;
  right.extent.base += MIB;
  give(&left, 1000);
  give(&right, 5000);
  assert_int_equal(decay_oldest_ms(&extents_decay), 5000);
  assert_int_equal(extents_purge(purge_by_preset(0, 5000)), 0);
  assert_int_equal(extents_purge(purge_by_preset(0, 5001)), 2 * MIB);
  give(&wall, 1);
}

/* With HAKMEM_PURGE=free, memory that was given back may show its old content, so it is not known to be zero. */
UNIT_TEST_BETWEEN(lazily_purged_memory_is_not_zero, all_purged, all_purged) {
  unit_option("HAKMEM_PURGE", "free");
  struct piece front = take(EXTENT_PLAIN, 4 * MIB, UNIT_BYTES), wall = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
  struct piece piece = front;
  front.extent.bytes = MIB;
  piece.extent.base += MIB;
  piece.extent.bytes -= MIB;
  tag_write(&front, 76);
  tag_write(&piece, 77);
  give(&piece, 1);
  assert_int_equal(extents_purge(UNIT_EVERYTHING), 3 * MIB);
  assert_int_equal(decay_total(&extents_decay), 0);
  unit_option("HAKMEM_PURGE", "dontneed");
  struct extent again = extent_take_behind(piece.extent.base, 3 * MIB);
  assert_ptr_equal(again.base, piece.extent.base);
  bool reads_as_zero = true;
  for (size_t i = 0; i < again.bytes; i += UNIT_BYTES)
    reads_as_zero &= *(uint64_t *)(void *)(again.base + i) == 0;
  assert_true(!again.zero || reads_as_zero); /* where the kernel knows no MADV_FREE it is */
  own(&again);
  tag_check(&front);
  front.extent.bytes = 4 * MIB;
  give(&front, 1);
  give(&wall, 1);
}

/* Free memory can be unmapped: its addresses are nobody's then, and what is in use stays. */
UNIT_TEST_BETWEEN(free_extents_can_be_released, all_purged, all_purged) {
  struct piece kept = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
  struct piece gone = take(EXTENT_PLAIN, 20 * MIB, ROW_BYTES);
  struct piece huge = take(EXTENT_HUGE, 20 * MIB, ROW_BYTES);
  tag_write(&kept, 5);
  tag_write(&gone, 6);
  tag_write(&huge, 7);
  give(&gone, 1);
  give(&huge, 1);
  struct extent_stats before = stats();
  assert_true(extents_release(ROW_BYTES));
  assert_false(extents_release(ROW_BYTES));
  struct extent_stats after = stats();
  assert_true(before.reserved_bytes - after.reserved_bytes >= 40 * MIB);
  assert_true(before.reserved_bytes - after.reserved_bytes >= before.committed_bytes - after.committed_bytes);
  assert_true(decay_total(&extents_decay) < ROW_BYTES);
  assert_int_equal(usage_free(), decay_total(&extents_decay));
  assert_false(address_in_arena(gone.extent.base));
  assert_false(address_in_arena(huge.extent.base + 20 * MIB - 1));
  for (size_t i = 0; i < 20 * MIB; i += UNIT_BYTES)
    assert_int_equal(map_entry(gone.extent.base + i), ENTRY_NONE);
  assert_true(address_in_arena(kept.extent.base));
  tag_check(&kept);
  UNIT_EXTENTS_VALID();
  struct piece next = take(EXTENT_PLAIN, 20 * MIB, UNIT_BYTES);
  tag_write(&next, 8);
  tag_check(&kept);
  give(&next, 1);
  give(&kept, 1);
}

/* What the kernel refuses to unmap stays a free extent, and does not keep others from going. */
UNIT_TEST_BETWEEN(refused_extents_are_passed, all_purged, all_purged) {
  while (extents_release(UNIT_BYTES))
    ;
  struct piece pieces[3], walls[3];
  for (unsigned i = 0; i < 3; i++) {
    pieces[i] = take(EXTENT_PLAIN, (i + 2) * ROW_BYTES, ROW_BYTES);
    walls[i] = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
  }
  for (unsigned i = 0; i < 3; i++)
    give(&pieces[i], 1);
  inside = pieces[0].extent.base; /* the shortest is tried first */
  extents_release(ROW_BYTES);
  assert_true(address_in_arena(pieces[0].extent.base));
  assert_false(address_in_arena(pieces[1].extent.base));
  assert_false(address_in_arena(pieces[2].extent.base));
  UNIT_EXTENTS_VALID();
  inside = NULL;
  assert_true(extents_release(ROW_BYTES));
  assert_false(address_in_arena(pieces[0].extent.base));
  for (unsigned i = 0; i < 3; i++)
    give(&walls[i], 1);
}

/* Address space is reserved in arenas, so that the mappings of a big heap are few, and one that is larger than
 * any arena so far gets one of its own. */
UNIT_TEST_BETWEEN(arenas_are_few, all_purged, all_purged) {
  enum { COUNT = 200 };
  static struct piece pieces[COUNT];
  uint64_t reserves = counter_read(arenas_reserved);
  for (unsigned i = 0; i < COUNT; i++)
    pieces[i] = take(EXTENT_PLAIN, 10 * MIB, UNIT_BYTES);
  assert_true(counter_read(arenas_reserved) - reserves < 30);
  struct piece giant = take(EXTENT_PLAIN, (size_t)3 << 30, ROW_BYTES);
  giant.extent.base[0] = giant.extent.base[giant.extent.bytes - 1] = 1;
  give(&giant, 1);
  for (unsigned i = 0; i < COUNT; i++)
    give(&pieces[i], 1);
  extents_purge(UNIT_EVERYTHING);
  while (extents_release(ROW_BYTES))
    ;
}

struct worker {
  uint64_t seed;
  pthread_t thread;
};
static _Atomic bool ending;

static void *work(void *argument) {
  struct worker *worker = argument;
  enum { LIVE = 24 };
  struct piece live[LIVE] = {0};
  for (unsigned step = 0; step < unit_rounds(1000, 20); step++) {
    struct piece *piece = &live[test_random(&worker->seed) % LIVE];
    if (piece->extent.base) {
      tag_check(piece);
      give(piece, os_milliseconds());
      piece->extent.base = NULL;
    } else {
      enum extent_bank bank = test_random(&worker->seed) % 4 == 0 ? EXTENT_HUGE : EXTENT_PLAIN;
      *piece = take(bank, random_bytes(&worker->seed), UNIT_BYTES << test_random(&worker->seed) % 6);
      tag_write(piece, test_random(&worker->seed));
    }
  }
  for (unsigned i = 0; i < LIVE; i++)
    if (live[i].extent.base) {
      tag_check(&live[i]);
      give(&live[i], os_milliseconds());
    }
  return NULL;
}

static void *purge_on(void *unused) {
  while (!atomic_load(&ending)) {
    extents_purge(purge_by_preset(decay_total(&extents_decay) / 2, UNIT_ANY_TIME));
    UNIT_EXTENTS_VALID();
    extents_release(ROW_BYTES);
  }
  return NULL;
}

/* One thread purges and releases while others take and give. */
UNIT_TEST_BETWEEN(threads_share_the_extents, all_purged, all_purged) {
  struct worker workers[3];
  pthread_t purger;
  atomic_store(&ending, false);
  assert_int_equal(pthread_create(&purger, NULL, purge_on, NULL), 0);
  for (unsigned i = 0; i < 3; i++) {
    workers[i].seed = UNIT_SEED + i;
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (unsigned i = 0; i < 3; i++)
    pthread_join(workers[i].thread, NULL);
  atomic_store(&ending, true);
  pthread_join(purger, NULL);
}

static size_t rows_resident(const struct map_row *const *rows, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) {
    uintptr_t pages = round_down((uintptr_t)rows[i], os_page_bytes());
    bytes += os_resident_bytes((void *)pages, round_up((uintptr_t)(rows[i] + 1), os_page_bytes()) - pages);
  }
  return bytes;
}

/* So do the tables that describe it, where many slabs have lain. What is used again there is described anew. */
UNIT_TEST_BETWEEN(rows_go_with_what_they_describe, all_purged, all_purged) {
  enum { COUNT = 64 };
  const struct map_row *rows[COUNT];
  struct piece gone = take(EXTENT_PLAIN, COUNT * ROW_BYTES, ROW_BYTES);
  for (size_t i = 0; i < COUNT; i++) {
    char *at = gone.extent.base + i * ROW_BYTES;
    rows[i] = map_row(at);
    for (size_t unit = 0; unit < ROW_UNITS; unit++)
      for (size_t word = 0; word < BITMAP_WORDS; word++)
        *bitmap_word(map_bitmap(at + unit * UNIT_BYTES), word) = 1;
  }
  assert_true(rows_resident(rows, COUNT) >= COUNT * sizeof(struct map_row));
  give(&gone, 1);
  assert_true(extents_release(ROW_BYTES));
  assert_true(rows_resident(rows, COUNT) < COUNT * sizeof(struct map_row) / 4);
  gone = take(EXTENT_PLAIN, COUNT * ROW_BYTES, ROW_BYTES);
  tag_write(&gone, 8);
  tag_check(&gone);
  give(&gone, 1);
  UNIT_EXTENTS_VALID();
}

/* A huge page that reaches beyond a long extent would be resident for nothing there. So nothing behind one that was
 * carved last is accessible, until it is carved. */
UNIT_TEST_BETWEEN(long_extents_on_huge_pages_take_nothing_behind_them, all_purged, all_purged) {
  enum { LONG_ONES = 64 };
  struct piece pieces[LONG_ONES], behind;
  size_t count = 0;
  char *end;
  do { /* until no free extent serves */
    pieces[count] = take(EXTENT_HUGE, 8 * MIB + UNIT_BYTES, ROW_BYTES);
    end = pieces[count].extent.base + pieces[count].extent.bytes;
  } while (address_in_arena(end) && ++count < LONG_ONES);
  assert_true(count < LONG_ONES);
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(write(ends[1], end - 1, 1), 1);
  assert_int_equal(write(ends[1], end, 1), -1);
  close(ends[0]);
  close(ends[1]);
  behind = take(EXTENT_HUGE, MIB, UNIT_BYTES);
  tag_write(&behind, 9);
  give(&behind, 1);
  for (size_t i = 0; i <= count; i++)
    give(&pieces[i], 1);
  UNIT_EXTENTS_VALID();
}

/* A free extent of so many bytes that was used, between others. */
static struct piece used_apart(size_t bytes, unsigned keep, uint64_t freed_ms) {
  struct piece piece = take(EXTENT_PLAIN, bytes, ROW_BYTES);
  take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES); /* stays */
  piece.extent.resident = true;
  piece.extent.zero = false;
  usage_move_begin(bytes);
  extent_give(piece.extent, keep, freed_ms, USAGE_NOWHERE);
  return piece;
}

/* Where the system refuses a part of an extent that goes at once, the preset decides about that part from then on,
 * though the rest is longer. Otherwise each slow call would ask again. */
UNIT_TEST_BETWEEN(refused_pages_are_not_tried_again_at_once, all_purged, all_purged) {
  struct piece locked = used_apart(4 * ROW_BYTES, KEEP_AT_ONCE, os_milliseconds());
  unit_skip_if(syscall(SYS_mlock, locked.extent.base, 4 * ROW_BYTES) != 0,
               "pages cannot be locked"); /* the sanitizers' mlock does nothing */
  const struct purge purge = purge_at_most(ROW_BYTES, purge_by_engine(true, 0, UNIT_ANY_TIME));
  for (unsigned tries = 0; tries < 4 && decay_due_ms(&extents_decay) != 0; tries++)
    assert_int_equal(extents_purge(purge), 0);
  assert_int_equal(decay_due_ms(&extents_decay), 0);
  assert_int_equal(syscall(SYS_munlock, locked.extent.base, 4 * ROW_BYTES), 0);
  UNIT_EXTENTS_VALID();
}

static bool lock_pages(const struct piece *piece) {
  return syscall(SYS_mlock, piece->extent.base, os_page_bytes()) == 0; /* the sanitizers' mlock does nothing */
}

/* Locked pages in the oldest extents do not keep the others from going, nor the rest of their own. What is refused is
 * tried once. */
UNIT_TEST_BETWEEN(refused_pages_do_not_keep_others, all_purged, all_purged) {
  enum { LOCKED = 3, OTHERS = 10 };
  struct piece pieces[LOCKED + OTHERS];
  for (unsigned i = 0; i < LOCKED + OTHERS; i++) {
    pieces[i] = take(EXTENT_PLAIN, ROW_BYTES, ROW_BYTES);
    take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES); /* stays */
  }
  bool are_locked = true;
  for (unsigned i = 0; i < LOCKED; i++)
    are_locked &= lock_pages(&pieces[i]);
  for (unsigned i = 0; i < LOCKED + OTHERS; i++)
    give(&pieces[i], 1 + i);
  unit_skip_if(!are_locked, "pages cannot be locked");
  uint64_t refused = counter_read(purges_refused);
  assert_int_equal(extents_purge(UNIT_EVERYTHING), (LOCKED + OTHERS) * ROW_BYTES - LOCKED * UNIT_BYTES);
  assert_in_range(counter_read(purges_refused) - refused, LOCKED, LOCKED * 7); /* two of them, 32 units, 16, ... 1 */
  refused = counter_read(purges_refused);
  assert_int_equal(decay_total(&extents_decay), LOCKED * UNIT_BYTES);
  UNIT_EXTENTS_VALID();
  assert_int_equal(extents_purge(UNIT_EVERYTHING), 0);
  assert_int_equal(counter_read(purges_refused) - refused, LOCKED);
  for (unsigned i = 0; i < LOCKED; i++)
    assert_int_equal(syscall(SYS_munlock, pieces[i].extent.base, os_page_bytes()), 0);
  UNIT_EXTENTS_VALID();
}

/* Nor does what is refused use up the bound of a purge in parts. */
UNIT_TEST_BETWEEN(refused_pages_do_not_end_a_part, all_purged, all_purged) {
  struct piece locked = take(EXTENT_PLAIN, 4 * ROW_BYTES, ROW_BYTES);
  take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES); /* stays */
  struct piece other = take(EXTENT_PLAIN, ROW_BYTES, ROW_BYTES);
  bool is_locked = syscall(SYS_mlock, locked.extent.base, 4 * ROW_BYTES) == 0; /* the sanitizers' mlock does nothing */
  give(&locked, 1);
  give(&other, 2);
  unit_skip_if(!is_locked, "pages cannot be locked");
  assert_int_equal(extents_purge(purge_at_most(ROW_BYTES, UNIT_EVERYTHING)), ROW_BYTES);
  assert_int_equal(decay_total(&extents_decay), 4 * ROW_BYTES);
  assert_int_equal(syscall(SYS_munlock, locked.extent.base, 4 * ROW_BYTES), 0);
  UNIT_EXTENTS_VALID();
}

/* A purge in parts goes at most 2 MiB beyond its bound. */
UNIT_TEST_BETWEEN(purges_stop_at_their_bound, all_purged, all_purged) {
  used_apart(7 * ROW_BYTES / 2, KEEP_BY_PRESET, 1);
  used_apart(8 * ROW_BYTES, KEEP_BY_PRESET, 2);
  assert_in_range(extents_purge(purge_at_most(4 * ROW_BYTES, UNIT_EVERYTHING)), 4 * ROW_BYTES, 5 * ROW_BYTES);
  UNIT_EXTENTS_VALID();
}

/* What a purge in parts leaves of the oldest extent is the oldest still, however many younger ones there are: the next
 * part goes as soon. The same holds for what a take leaves. */
UNIT_TEST_BETWEEN(the_rest_of_the_oldest_extent_goes_next, all_purged, all_purged) {
  enum { PURGES = 6, OTHERS = 20 };
  struct piece others[OTHERS], walls[OTHERS];
  for (unsigned i = 0; i < OTHERS; i++) {
    others[i] = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
    walls[i] = take(EXTENT_PLAIN, UNIT_BYTES, UNIT_BYTES);
  }
  used_apart((PURGES + 1) * ROW_BYTES, KEEP_BY_PRESET, 1);
  for (unsigned i = 0; i < OTHERS; i++)
    give(&others[i], 1000 + i);
  struct piece taken = take(EXTENT_PLAIN, ROW_BYTES, ROW_BYTES);
  assert_true(taken.extent.resident);
  for (unsigned i = 0; i < PURGES; i++) {
    assert_int_equal(decay_oldest_ms(&extents_decay), 1);
    assert_int_equal(extents_purge(purge_at_most(ROW_BYTES, purge_by_preset(0, 1000))), ROW_BYTES);
  }
  assert_int_equal(extents_purge(purge_by_preset(0, 1000)), 0);
  UNIT_EXTENTS_VALID();
  give(&taken, 1);
  for (unsigned i = 0; i < OTHERS; i++)
    give(&walls[i], 1);
}

UNIT_MAIN(unit_alone())
