/* superslab: units against a shadow, complete search, and the books of resident memory. */
#include "unit.h"

#include "budget/usage.h"
#include "os/os.h"
#include "pages/page_map.h"

#define RUNS_MAX 400u

struct run {
  char *base;
  unsigned order;
  uint64_t tag;
};

static struct unit_stats stats(void) {
  struct unit_stats s;
  units_stats(&s);
  return s;
}

static size_t committed(void) {
  struct extent_stats s;
  extents_stats(&s);
  return s.committed_bytes;
}

static char *last_word(const struct run *run) { return run->base + (UNIT_BYTES << run->order) - sizeof(uint64_t); }

/* Runs that overlap would write over each other's tags. */
static void tag_write(struct run *run, uint64_t tag) {
  run->tag = tag;
  for (size_t unit = 0; unit < (size_t)1 << run->order; unit++)
    memcpy(run->base + unit * UNIT_BYTES, &tag, sizeof tag);
  memcpy(last_word(run), &tag, sizeof tag);
}

static void tag_check(const struct run *run) {
  for (size_t unit = 0; unit < (size_t)1 << run->order; unit++)
    assert_memory_equal(run->base + unit * UNIT_BYTES, &run->tag, sizeof run->tag);
  assert_memory_equal(last_word(run), &run->tag, sizeof run->tag);
}

/* All superslabs are extents again, and all accessible memory can be had whole: nothing more is made
 * accessible for it. */
static void assert_all_free(void) {
  size_t before = committed(), count = before / SUPERSLAB_BYTES;
  assert_int_equal(usage_slabs(), 0);
  assert_int_equal(stats().superslab_bytes, 0);
  assert_int_equal(stats().resident_free_bytes, 0);
  void **wholes = calloc(count, sizeof *wholes);
  for (size_t i = 0; i < count; i++)
    assert_non_null(wholes[i] = units_take(UNIT_ORDER_MAX, false));
  assert_int_equal(committed(), before);
  assert_int_equal(usage_slabs(), before);
  for (size_t i = 0; i < count; i++)
    units_give(wholes[i], UNIT_ORDER_MAX, KEEP_BY_PRESET);
  free(wholes);
}

/* Holds one unit of every superslab with free units, so that none becomes an extent. */
static void *pin(void) { return units_take(0, false); }
static void unpin(void *unit) { units_give(unit, 0, KEEP_BY_PRESET); }

UNIT_TEST(random_runs_never_overlap) {
  static struct run runs[RUNS_MAX];
  uint64_t seed = UNIT_SEED;
  unsigned count = 0;
  size_t taken = 0;
  for (unsigned step = 0; step < 30000; step++) {
    if (count < RUNS_MAX && (count == 0 || test_random(&seed) % 100 < (step / 3000 % 2 ? 40 : 60))) {
      struct run run = {.order = (unsigned)(test_random(&seed) % (UNIT_ORDER_MAX + 1))};
      run.base = units_take(run.order, false);
      assert_non_null(run.base);
      assert_int_equal((uintptr_t)run.base & ((UNIT_BYTES << run.order) - 1), 0);
      assert_true(address_in_arena(run.base) && map_covers(run.base + (UNIT_BYTES << run.order) - 1));
      taken += UNIT_BYTES << run.order;
      tag_write(&run, test_random(&seed));
      runs[count++] = run;
    } else {
      unsigned i = (unsigned)(test_random(&seed) % count);
      tag_check(&runs[i]);
      units_give(runs[i].base, runs[i].order, (unsigned)(test_random(&seed) % KEEP_LISTS));
      taken -= UNIT_BYTES << runs[i].order;
      runs[i] = runs[--count];
    }
    if (step % 5000 == 17)
      units_purge(purge_by_preset(taken / 16, UNIT_ANY_TIME));
    if (step % 700 == 19)
      units_purge(purge_by_engine(true, 0, UNIT_ANY_TIME));
    if (step % 7000 == 23) {
      units_purge(purge_by_engine(false, 0, UNIT_ANY_TIME));
      assert_int_equal(decay_bytes(&units_decay, BY_ENGINE), 0);
      assert_int_equal(decay_due_ms(&units_decay), 0);
    }
    if (step % 500 == 0) {
      assert_int_equal(usage_slabs(), taken);
      UNIT_SUPERSLABS_VALID();
    }
  }
  while (count > 0) {
    tag_check(&runs[--count]);
    units_give(runs[count].base, runs[count].order, (unsigned)(test_random(&seed) % KEEP_LISTS));
  }
  UNIT_SUPERSLABS_VALID();
  units_purge(purge_by_engine(false, 0, UNIT_ANY_TIME));
  assert_all_free();
}

/* However many full superslabs there are, and wherever the one free run lies, it is found. */
UNIT_TEST(search_is_complete) {
  enum { SUPERSLABS = 40, UNITS = SUPERSLABS * SUPERSLAB_UNITS };
  static char *units[UNITS];
  extents_release(SUPERSLAB_BYTES);
  for (unsigned i = 0; i < UNITS; i++)
    assert_non_null(units[i] = units_take(0, false));
  size_t superslabs = stats().superslab_bytes;
  assert_int_equal(superslabs, SUPERSLABS * SUPERSLAB_BYTES);
  const unsigned places[] = {0, 3, 17, SUPERSLABS - 1};
  for (unsigned p = 0; p < sizeof places / sizeof places[0]; p++)
    for (unsigned order = 0; order <= UNIT_ORDER_MAX; order++) {
      char *base = (char *)round_down((uintptr_t)units[places[p] * SUPERSLAB_UNITS], SUPERSLAB_BYTES);
      char *hole = base + (SUPERSLAB_UNITS - (1u << order)) * UNIT_BYTES; /* aligned: the superslab's last */
      unsigned members = 0;
      for (unsigned i = 0; i < UNITS; i++)
        if (units[i] >= hole && units[i] < hole + (UNIT_BYTES << order)) {
          units_give(units[i], 0, KEEP_BY_PRESET);
          members++;
        }
      assert_int_equal(members, 1u << order);
      for (unsigned bigger = order + 1; bigger <= UNIT_ORDER_MAX && p == 0 && order == 2; bigger++) {
        void *carved = units_take(bigger, false); /* the hole is too small for it */
        assert_true((char *)carved < hole || (char *)carved >= hole + (UNIT_BYTES << order));
        units_give(carved, bigger, KEEP_BY_PRESET);
        extents_release(SUPERSLAB_BYTES);
      }
      assert_ptr_equal(units_take(order, false), hole);
      assert_int_equal(stats().superslab_bytes, superslabs);
      units_give(hole, order, KEEP_BY_PRESET);
      for (unsigned i = 0; i < members; i++)
        assert_non_null(units_take(0, false));
      assert_int_equal(stats().superslab_bytes, superslabs);
      UNIT_SUPERSLABS_VALID();
    }
  for (unsigned i = 0; i < UNITS; i++)
    units_give(units[i], 0, KEEP_BY_PRESET);
  assert_all_free();
}

UNIT_TEST(used_superslabs_are_preferred_to_empty_ones) {
  char *first = units_take(0, false);
  char *whole = units_take(UNIT_ORDER_MAX, false);
  units_give(whole, UNIT_ORDER_MAX, KEEP_BY_PRESET);
  for (unsigned i = 0; i < 8; i++) {
    char *unit = units_take(0, false);
    assert_int_equal(round_down((uintptr_t)unit, SUPERSLAB_BYTES), round_down((uintptr_t)first, SUPERSLAB_BYTES));
  }
  for (unsigned i = 0; i < 9; i++)
    units_give((char *)round_down((uintptr_t)first, SUPERSLAB_BYTES) + i * UNIT_BYTES, 0, KEEP_BY_PRESET);
  assert_all_free();
}

UNIT_TEST(purge_keeps_books) {
  extents_purge(UNIT_EVERYTHING);
  units_purge(UNIT_EVERYTHING);
  assert_int_equal(stats().resident_free_bytes, 0);
  assert_int_equal(usage_free(), 0);
  void *pinned = pin();
  struct run run = {.base = units_take(3, false), .order = 3};
  tag_write(&run, 42);
  size_t bytes = UNIT_BYTES << 3;
  size_t free_before = stats().resident_free_bytes;
  uint64_t before_ms = os_milliseconds();
  units_give(run.base, 3, KEEP_BY_PRESET);
  assert_int_equal(stats().resident_free_bytes, free_before + bytes);
  assert_int_equal(usage_free(), free_before + bytes);
  assert_int_equal(units_purge(purge_by_preset(free_before + bytes, UNIT_ANY_TIME)), 0); /* so much may stay */
  assert_int_equal(units_purge(purge_by_preset(0, before_ms)), 0);                       /* too young */
  assert_int_equal(units_purge(UNIT_EVERYTHING), free_before + bytes);
  assert_int_equal(units_purge(UNIT_EVERYTHING), 0);
  assert_int_equal(stats().resident_free_bytes, 0);
  assert_int_equal(usage_free(), 0);
  UNIT_SUPERSLABS_VALID();
  for (size_t i = 0; i < bytes; i += UNIT_BYTES)
    assert_int_equal(run.base[i], 0); /* purged memory stays accessible and reads as zero */
  unpin(pinned);
}

/* An empty superslab is an extent: resident if one of its units was. */
UNIT_TEST(empty_superslabs_become_extents) {
  extents_purge(UNIT_EVERYTHING);
  void *pinned = pin();
  struct run run = {.base = units_take(2, false), .order = 2};
  tag_write(&run, 7);
  units_give(run.base, run.order, KEEP_BY_PRESET);
  units_purge(UNIT_EVERYTHING);
  size_t superslabs = stats().superslab_bytes;
  assert_int_equal(superslabs, SUPERSLAB_BYTES);
  assert_int_equal(usage_free(), 0);
  unpin(pinned);
  assert_int_equal(stats().superslab_bytes, 0);
  assert_int_equal(stats().resident_free_bytes, 0);
  assert_int_equal(decay_total(&extents_decay), SUPERSLAB_BYTES);
  assert_int_equal(usage_free(), SUPERSLAB_BYTES);
  assert_int_equal(extents_purge(UNIT_EVERYTHING), SUPERSLAB_BYTES);
  assert_int_equal(usage_free(), 0);
  UNIT_SUPERSLABS_VALID();
}

static bool in_one_superslab(const char *a, const char *b) {
  return round_down((uintptr_t)a, SUPERSLAB_BYTES) == round_down((uintptr_t)b, SUPERSLAB_BYTES);
}

/* Purged free units beside resident ones: the resident are handed out first. */
UNIT_TEST(resident_units_are_taken_first) {
  extents_purge(UNIT_EVERYTHING);
  char *units[SUPERSLAB_UNITS];
  for (unsigned i = 0; i < SUPERSLAB_UNITS; i++)
    units[i] = units_take(0, false);
  units_give(units[3], 0, KEEP_BY_PRESET);
  units_purge(UNIT_EVERYTHING);
  units_give(units[20], 0, KEEP_BY_PRESET); /* of one superslab or not, the only resident ones */
  assert_ptr_equal(units_take(0, false), units[20]);
  assert_int_equal(stats().resident_free_bytes, 0);
  assert_ptr_equal(units_take(0, false), units[3]);
  for (unsigned i = 0; i < SUPERSLAB_UNITS; i++)
    units_give(units[i], 0, KEEP_BY_PRESET);
  UNIT_SUPERSLABS_VALID();
}

/* Resident units come before the shorter run of another superslab, and resident extents before units that are not. */
UNIT_TEST(resident_memory_is_taken_first) {
  extents_purge(UNIT_EVERYTHING);
  struct run runs[4];
  for (unsigned i = 0; i < 4; i++)
    runs[i] = (struct run){.base = units_take(UNIT_ORDER_MAX - 1, false), .order = UNIT_ORDER_MAX - 1};
  assert_true(in_one_superslab(runs[0].base, runs[1].base) && in_one_superslab(runs[2].base, runs[3].base));
  char *whole = units_take(UNIT_ORDER_MAX, false);
  char *quarter = units_take(UNIT_ORDER_MAX - 2, false);
  units_give(runs[0].base, runs[0].order, KEEP_BY_PRESET);
  units_purge(UNIT_EVERYTHING);
  units_give(runs[2].base, runs[2].order, KEEP_BY_PRESET);
  char *from_units = units_take(0, false);
  assert_true(in_one_superslab(from_units, runs[3].base));
  char *rest = units_take(UNIT_ORDER_MAX - 2, false);
  units_give(whole, UNIT_ORDER_MAX, KEEP_BY_PRESET);
  char *from_extent = units_take(UNIT_ORDER_MAX - 1, false);
  assert_true(in_one_superslab(from_extent, whole));
  units_give(from_extent, UNIT_ORDER_MAX - 1, KEEP_BY_PRESET);
  units_give(rest, UNIT_ORDER_MAX - 2, KEEP_BY_PRESET);
  units_give(from_units, 0, KEEP_BY_PRESET);
  units_give(quarter, UNIT_ORDER_MAX - 2, KEEP_BY_PRESET);
  units_give(runs[1].base, runs[1].order, KEEP_BY_PRESET);
  units_give(runs[3].base, runs[3].order, KEEP_BY_PRESET);
  assert_all_free();
}

/* Three superslabs, all but one unit of each given back at different times. */
UNIT_TEST(oldest_memory_is_purged_first) {
  extents_purge(UNIT_EVERYTHING);
  struct run runs[3], pins[3];
  for (unsigned i = 0; i < 3; i++) {
    runs[i] = (struct run){.base = units_take(UNIT_ORDER_MAX - 1, false), .order = UNIT_ORDER_MAX - 1};
    pins[i] = (struct run){.base = units_take(UNIT_ORDER_MAX - 1, false), .order = UNIT_ORDER_MAX - 1};
    tag_write(&runs[i], 100 + i);
    tag_write(&pins[i], 200 + i);
  }
  const size_t bytes = SUPERSLAB_BYTES / 2;
  const unsigned given[] = {1, 0, 2};
  uint64_t when_ms[3];
  for (unsigned i = 0; i < 3; i++) {
    units_give(runs[given[i]].base, runs[given[i]].order, KEEP_BY_PRESET);
    test_pause_ms(60);
    when_ms[i] = os_milliseconds();
    assert_true(decay_oldest_ms(&units_decay) <= when_ms[0] && decay_oldest_ms(&units_decay) > 0);
  }
  assert_int_equal(units_purge(purge_by_preset(2 * bytes, UNIT_ANY_TIME)), bytes);
  tag_check(&runs[0]);
  tag_check(&runs[2]);
  assert_int_equal(runs[1].base[0], 0);
  assert_int_equal(units_purge(purge_by_preset(0, when_ms[0])), 0);     /* the rest was given after that */
  assert_int_equal(units_purge(purge_by_preset(0, when_ms[1])), bytes); /* runs[0] is older, runs[2] is not */
  tag_check(&runs[2]);
  assert_int_equal(runs[0].base[0], 0);
  assert_true(decay_oldest_ms(&units_decay) >= when_ms[1]);
  units_purge(UNIT_EVERYTHING);
  assert_int_equal(decay_oldest_ms(&units_decay), 0);
  UNIT_SUPERSLABS_VALID();
  for (unsigned i = 0; i < 3; i++) {
    tag_check(&pins[i]);
    units_give(pins[i].base, pins[i].order, KEEP_BY_PRESET);
  }
  assert_all_free();
}

static void unpin_learned(void *unit, enum keep strategy) { units_give(unit, 0, strategy); }

/* What was learned decides about a superslab's free units; of one that is wholly free only if that is sooner than an
 * extent's time. */
UNIT_TEST(learned_delays) {
  extents_purge(UNIT_EVERYTHING);
  char *unit = pin(), *other = pin();
  unpin_learned(unit, KEEP_WARM);
  assert_int_equal(decay_bytes(&units_decay, BY_ENGINE), stats().resident_free_bytes);
  assert_true(decay_bytes(&units_decay, BY_ENGINE) >= UNIT_BYTES);
  assert_int_equal(decay_due_ms(&units_decay), 0);
  assert_int_equal(decay_oldest_ms(&units_decay), 0);
  assert_int_equal(units_purge(UNIT_EVERYTHING), 0); /* not the profile's */
  assert_int_equal(units_purge(purge_by_engine(true, 0, UNIT_ANY_TIME)), 0);
  unit = pin();
  unpin_learned(unit, KEEP_10S);
  assert_in_range(decay_due_ms(&units_decay), os_milliseconds() + 9000, os_milliseconds() + 10000);
  unpin_learned(other, KEEP_10S);
  assert_int_equal(stats().superslab_bytes, 0); /* an extent again: ten seconds are more than the profile's one */
  assert_int_equal(decay_bytes(&units_decay, BY_ENGINE), 0);
  unpin_learned(pin(), KEEP_AT_ONCE);
  assert_int_equal(stats().superslab_bytes, SUPERSLAB_BYTES);
  assert_true(decay_due_ms(&units_decay) != 0 && decay_due_ms(&units_decay) <= os_milliseconds());
  assert_int_equal(units_purge(purge_by_engine(true, 0, UNIT_ANY_TIME)), SUPERSLAB_BYTES);
  assert_int_equal(stats().superslab_bytes, 0);
  assert_int_equal(usage_free(), 0);
  unit_option("HAKMEM_PURGE", "off"); /* nothing would ever end its waiting */
  unpin_learned(pin(), KEEP_AT_ONCE);
  assert_int_equal(stats().superslab_bytes, 0);
  unit_option("HAKMEM_PURGE", "dontneed");
  UNIT_SUPERSLABS_VALID();
  assert_all_free();
}

UNIT_TEST(empty_superslabs_can_be_released) {
  char *unit = units_take(0, false);
  char *whole = units_take(UNIT_ORDER_MAX, false);
  units_give(whole, UNIT_ORDER_MAX, KEEP_BY_PRESET);
  assert_true(extents_release(SUPERSLAB_BYTES));
  assert_false(extents_release(SUPERSLAB_BYTES));
  assert_int_equal(stats().superslab_bytes, SUPERSLAB_BYTES); /* the one with a unit in use */
  assert_int_equal(decay_total(&extents_decay), 0);
  assert_false(address_in_arena(whole));
  assert_true(address_in_arena(unit));
  unit[0] = 1;
  units_give(unit, 0, KEEP_BY_PRESET);
  size_t before = committed();
  assert_true(extents_release(SUPERSLAB_BYTES));
  assert_int_equal(committed(), before - SUPERSLAB_BYTES);
  assert_int_equal(stats().superslab_bytes, 0);
  assert_int_equal(usage_free(), 0);
  UNIT_SUPERSLABS_VALID();
  for (unsigned i = 0; i < 20; i++) {
    struct run run = {.base = units_take(i % 6, false), .order = i % 6};
    assert_non_null(run.base);
    tag_write(&run, i);
    units_give(run.base, run.order, KEEP_BY_PRESET);
  }
  UNIT_SUPERSLABS_VALID();
}

/* A fresh run, and no other, is populated if the caller asks for it. The control is the run that nobody asks for. */
UNIT_TEST_FIRST(fresh_runs_are_populated) {
  const size_t bytes = UNIT_BYTES << 1;
  char *mapping = os_map(bytes, UNIT_BYTES);
  os_populate(mapping, bytes);
  bool can_populate = os_resident_bytes(mapping, bytes) == bytes;
  os_unmap(mapping, bytes);
  if (!can_populate) {
    print_message("skipped: the kernel does not populate ranges, or the emulator\n");
    skip();
  }
  void *pinned = pin(), *plain = units_take(1, false), *populated = units_take(1, true);
  assert_int_equal(os_resident_bytes(plain, bytes), 0);
  assert_int_equal(os_resident_bytes(populated, bytes), bytes);
  units_give(plain, 1, KEEP_BY_PRESET);
  units_give(populated, 1, KEEP_BY_PRESET);
  unpin(pinned);
  UNIT_SUPERSLABS_VALID();
}

static bool is_zero(const char *run, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (run[i] != 0)
      return false;
  return true;
}

/* A run that is to be wiped reads as zero: resident or purged, also if the program wrote to it after the purge. */
UNIT_TEST(wiped_runs_are_zero) {
  const size_t bytes = UNIT_BYTES << 1;
  void *pinned = pin();
  char *first = units_take(1, false);
  memset(first, 1, bytes);
  units_give(first, 1, KEEP_BY_PRESET);
  units_are_wiped = true;
  char *resident = units_take(1, false);
  assert_ptr_equal(resident, first);
  assert_true(is_zero(resident, bytes));
  memset(resident, 2, bytes);
  units_give(resident, 1, KEEP_BY_PRESET);
  units_purge(UNIT_EVERYTHING);
  memset(resident, 3, bytes); /* through a stale pointer */
  char *purged = units_take(1, true);
  assert_ptr_equal(purged, first);
  assert_true(is_zero(purged, bytes));
  units_are_wiped = false;
  units_give(purged, 1, KEEP_BY_PRESET);
  unpin(pinned);
  UNIT_SUPERSLABS_VALID();
}

UNIT_MAIN(unit_alone())
