/* run: runs against a shadow, complete search, and what slabs and large objects leave each other. */
#include "unit.h"

#define RUNS_MAX 400u

struct run {
  char *base;
  unsigned order;
  uint64_t tag;
};

static size_t committed(void) {
  struct extent_stats s;
  extents_stats(&s);
  return s.committed_bytes;
}

static size_t run_bytes(const struct run *run) { return UNIT_BYTES << run->order; }

static struct run take(unsigned order) {
  struct run run = {.base = run_take(order, false), .order = order};
  assert_non_null(run.base);
  usage_move_end(run_bytes(&run));
  return run;
}
static void give(const struct run *run, unsigned keep) {
  usage_move_begin(run_bytes(run));
  run_give(run->base, run->order, keep);
}

static char *last_word(const struct run *run) { return run->base + run_bytes(run) - sizeof(uint64_t); }

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

/* What all tests leave. */
static int all_free(void **state) {
  extents_purge(UNIT_EVERYTHING);
  assert_int_equal(usage_slabs(), 0);
  assert_int_equal(usage_free(), 0);
  UNIT_EXTENTS_VALID();
  return 0;
}
#define RUN_TEST(test) UNIT_TEST_BETWEEN(test, NULL, all_free)

RUN_TEST(random_runs_never_overlap) {
  static struct run runs[RUNS_MAX];
  uint64_t seed = UNIT_SEED;
  unsigned count = 0;
  size_t taken = 0;
  for (unsigned step = 0; step < unit_rounds(30000, 10); step++) {
    if (count < RUNS_MAX && (count == 0 || test_random(&seed) % 100 < (step / 3000 % 2 ? 40 : 60))) {
      struct run run = take((unsigned)(test_random(&seed) % (RUN_ORDER_MAX + 1)));
      assert_int_equal((uintptr_t)run.base & (run_bytes(&run) - 1), 0);
      assert_true(address_in_arena(run.base) && map_covers(run.base + run_bytes(&run) - 1));
      taken += run_bytes(&run);
      tag_write(&run, test_random(&seed));
      runs[count++] = run;
    } else {
      unsigned i = (unsigned)(test_random(&seed) % count);
      tag_check(&runs[i]);
      give(&runs[i], (unsigned)(test_random(&seed) % KEEP_LISTS));
      taken -= run_bytes(&runs[i]);
      runs[i] = runs[--count];
    }
    if (step % 5000 == 17)
      extents_purge(purge_by_preset(taken / 16, UNIT_ANY_TIME));
    if (step % 700 == 19)
      extents_purge(purge_by_engine(true, 0, UNIT_ANY_TIME));
    if (step % 7000 == 23) {
      extents_purge(purge_by_engine(false, 0, UNIT_ANY_TIME));
      assert_int_equal(decay_bytes(&extents_decay, BY_ENGINE), 0);
      assert_int_equal(decay_due_ms(&extents_decay), 0);
    }
    if (step % 500 == 0) {
      assert_int_equal(usage_slabs(), taken);
      UNIT_EXTENTS_VALID();
    }
  }
  while (count > 0) {
    tag_check(&runs[--count]);
    give(&runs[count], (unsigned)(test_random(&seed) % KEEP_LISTS));
  }
  extents_purge(purge_by_engine(false, 0, UNIT_ANY_TIME));
}

/* However many units are taken, and wherever the one free run lies, it is found, and serves nothing longer. */
RUN_TEST(search_is_complete) {
  enum { ROWS = 40, UNITS = ROWS * ROW_UNITS };
  static struct run units[UNITS];
  for (unsigned i = 0; i < UNITS; i++)
    units[i] = take(0);
  extents_release(UNIT_BYTES);
  const unsigned places[] = {1, 3, 17, ROWS - 1};
  for (unsigned p = 0; p < sizeof places / sizeof places[0]; p++)
    for (unsigned order = 0; order <= RUN_ORDER_MAX; order++) {
      char *row = (char *)round_down((uintptr_t)units[places[p] * ROW_UNITS].base, ROW_BYTES);
      struct run hole = {.base = row + ROW_BYTES - (UNIT_BYTES << order), .order = order};
      unsigned members = 0;
      for (unsigned i = 0; i < UNITS; i++)
        if (units[i].base >= hole.base && units[i].base < hole.base + run_bytes(&hole)) {
          give(&units[i], KEEP_BY_PRESET);
          members++;
        }
      assert_int_equal(members, 1u << order);
      for (unsigned longer = order + 1; longer <= RUN_ORDER_MAX && p == 0 && order == 2; longer++) {
        struct run other = take(longer);
        assert_true(other.base < hole.base || other.base >= hole.base + run_bytes(&hole));
        give(&other, KEEP_BY_PRESET);
        extents_purge(purge_by_preset(run_bytes(&hole), UNIT_ANY_TIME));
      }
      size_t before = committed();
      assert_ptr_equal(take(order).base, hole.base);
      give(&hole, KEEP_BY_PRESET);
      for (unsigned i = 0; i < members; i++) {
        char *unit = take(0).base;
        assert_true(unit >= hole.base && unit < hole.base + run_bytes(&hole));
      }
      assert_int_equal(committed(), before);
      UNIT_EXTENTS_VALID();
    }
  for (unsigned i = 0; i < UNITS; i++)
    give(&units[i], KEEP_BY_PRESET);
}

/* What slabs left serves a large object, and what that leaves serves slabs, before anything fresh is touched. */
RUN_TEST(runs_and_large_objects_share_memory) {
  enum { COUNT = 12 };
  struct run runs[COUNT];
  for (unsigned i = 0; i < COUNT; i++) {
    runs[i] = take(0);
    tag_write(&runs[i], i);
  }
  for (unsigned i = 1; i < COUNT - 1; i++) {
    assert_ptr_equal(runs[i].base, runs[0].base + i * UNIT_BYTES);
    give(&runs[i], KEEP_BY_PRESET);
  }
  size_t held = usage_held(), dirty;
  char *object = large_alloc((COUNT - 2) * UNIT_BYTES, BLOCK_ALIGNMENT, 0, &dirty);
  assert_ptr_equal(object, runs[1].base);
  assert_int_equal(usage_held(), held);
  large_free(object);
  for (unsigned i = 1; i < COUNT - 1; i++)
    runs[i] = take(0);
  assert_int_equal(usage_held(), held);
  for (unsigned i = 0; i < COUNT; i++) {
    assert_true(runs[i].base >= runs[0].base && runs[i].base < runs[0].base + COUNT * UNIT_BYTES);
    give(&runs[i], KEEP_BY_PRESET);
  }
}

RUN_TEST(purge_keeps_books) {
  struct run pin = take(0), run = take(3);
  tag_write(&run, 42);
  size_t bytes = run_bytes(&run), free_before = usage_free();
  uint64_t before_ms = os_milliseconds();
  give(&run, KEEP_BY_PRESET);
  assert_int_equal(usage_free(), free_before + bytes);
  assert_int_equal(extents_purge(purge_by_preset(free_before + bytes, UNIT_ANY_TIME)), 0); /* so much may stay */
  assert_int_equal(extents_purge(purge_by_preset(0, before_ms)), 0);                       /* too young */
  assert_int_equal(extents_purge(UNIT_EVERYTHING), free_before + bytes);
  assert_int_equal(extents_purge(UNIT_EVERYTHING), 0);
  assert_int_equal(usage_free(), 0);
  for (size_t i = 0; i < bytes; i += UNIT_BYTES)
    assert_int_equal(run.base[i], 0); /* purged memory stays accessible and reads as zero */
  give(&pin, KEEP_BY_PRESET);
}

/* Purged units beside resident ones: the resident are handed out first. */
RUN_TEST(resident_units_are_taken_first) {
  struct run units[ROW_UNITS];
  for (unsigned i = 0; i < ROW_UNITS; i++)
    units[i] = take(0);
  give(&units[3], KEEP_BY_PRESET);
  extents_purge(UNIT_EVERYTHING);
  give(&units[20], KEEP_BY_PRESET);
  assert_ptr_equal(take(0).base, units[20].base);
  assert_int_equal(usage_free(), 0);
  assert_ptr_equal(take(0).base, units[3].base);
  for (unsigned i = 0; i < ROW_UNITS; i++)
    give(&units[i], KEEP_BY_PRESET);
}

/* Three runs, whose neighbours are in use, given back at different times. */
RUN_TEST(oldest_memory_is_purged_first) {
  struct run runs[3], pins[3];
  for (unsigned i = 0; i < 3; i++) {
    runs[i] = take(RUN_ORDER_MAX - 1);
    pins[i] = take(RUN_ORDER_MAX - 1);
    tag_write(&runs[i], 100 + i);
    tag_write(&pins[i], 200 + i);
  }
  const size_t bytes = ROW_BYTES / 2;
  const unsigned given[] = {1, 0, 2};
  uint64_t when_ms[3];
  for (unsigned i = 0; i < 3; i++) {
    give(&runs[given[i]], KEEP_BY_PRESET);
    test_pause_ms(60);
    when_ms[i] = os_milliseconds();
    assert_true(decay_oldest_ms(&extents_decay) <= when_ms[0] && decay_oldest_ms(&extents_decay) > 0);
  }
  assert_int_equal(extents_purge(purge_by_preset(2 * bytes, UNIT_ANY_TIME)), bytes);
  tag_check(&runs[0]);
  tag_check(&runs[2]);
  assert_int_equal(runs[1].base[0], 0);
  assert_int_equal(extents_purge(purge_by_preset(0, when_ms[0])), 0);     /* the rest was given after that */
  assert_int_equal(extents_purge(purge_by_preset(0, when_ms[1])), bytes); /* runs[0] is older, runs[2] is not */
  tag_check(&runs[2]);
  assert_int_equal(runs[0].base[0], 0);
  assert_true(decay_oldest_ms(&extents_decay) >= when_ms[1]);
  extents_purge(UNIT_EVERYTHING);
  assert_int_equal(decay_oldest_ms(&extents_decay), 0);
  for (unsigned i = 0; i < 3; i++) {
    tag_check(&pins[i]);
    give(&pins[i], KEEP_BY_PRESET);
  }
}

/* What was learned decides about a free run. Where two join, the strategy of the longer one does. */
RUN_TEST(learned_delays) {
  struct run runs[3] = {take(1), take(1), take(1)}, unit = take(0);
  tag_write(&unit, 9);
  size_t bytes = run_bytes(&runs[0]);
  assert_true(runs[1].base == runs[0].base + bytes && runs[2].base == runs[1].base + bytes);
  give(&runs[0], KEEP_WARM);
  assert_int_equal(decay_bytes(&extents_decay, BY_ENGINE), bytes);
  assert_int_equal(decay_due_ms(&extents_decay), 0);
  assert_int_equal(decay_oldest_ms(&extents_decay), 0);
  assert_int_equal(extents_purge(UNIT_EVERYTHING), 0); /* not the preset's */
  assert_int_equal(extents_purge(purge_by_engine(true, 0, UNIT_ANY_TIME)), 0);
  give(&runs[2], KEEP_10S);
  assert_in_range(decay_due_ms(&extents_decay), os_milliseconds() + 9000, os_milliseconds() + 10000);
  give(&runs[1], KEEP_BY_PRESET); /* between two that are as long: its own strategy, then that of three */
  assert_int_equal(decay_bytes(&extents_decay, BY_ENGINE), 0);
  runs[0] = take(1);
  give(&runs[0], KEEP_AT_ONCE); /* the longer one goes by the preset */
  assert_int_equal(decay_bytes(&extents_decay, BY_ENGINE), 0);
  assert_int_equal(extents_purge(purge_by_engine(true, 0, UNIT_ANY_TIME)), 0);
  assert_int_equal(extents_purge(UNIT_EVERYTHING), 3 * bytes);
  runs[0] = take(1);
  give(&runs[0], KEEP_AT_ONCE);
  assert_true(decay_due_ms(&extents_decay) != 0 && decay_due_ms(&extents_decay) <= os_milliseconds());
  assert_int_equal(extents_purge(purge_by_engine(true, 0, UNIT_ANY_TIME)), bytes);
  tag_check(&unit);
  give(&unit, KEEP_BY_PRESET);
}

RUN_TEST(free_runs_can_be_released) {
  extents_release(UNIT_BYTES);
  struct run unit = take(0), row = take(RUN_ORDER_MAX);
  give(&row, KEEP_BY_PRESET);
  assert_true(extents_release(ROW_BYTES));
  assert_false(extents_release(ROW_BYTES));
  assert_false(address_in_arena(row.base));
  assert_true(address_in_arena(unit.base));
  unit.base[0] = 1;
  give(&unit, KEEP_BY_PRESET);
  size_t before = committed();
  assert_true(extents_release(UNIT_BYTES));
  assert_in_range(committed(), 0, before - UNIT_BYTES);
  assert_int_equal(usage_free(), 0);
  for (unsigned i = 0; i < 20; i++) {
    struct run run = take(i % (RUN_ORDER_MAX + 1));
    tag_write(&run, i);
    give(&run, KEEP_BY_PRESET);
  }
}

/* A fresh run, and no other, is populated if the caller asks for it. The control is the run that nobody asks for. */
UNIT_TEST_AT(0, fresh_runs_are_populated, NULL, all_free) {
  const size_t bytes = UNIT_BYTES << 1;
  char *mapping = os_map(bytes, UNIT_BYTES);
  os_populate(mapping, bytes);
  bool can_populate = os_resident_bytes(mapping, bytes) == bytes;
  os_unmap(mapping, bytes);
  unit_skip_if(!can_populate, "the kernel does not populate ranges, or the emulator");
  struct run plain = take(1), populated = {.base = run_take(1, true), .order = 1};
  usage_move_end(bytes);
  assert_int_equal(os_resident_bytes(plain.base, bytes), 0);
  assert_int_equal(os_resident_bytes(populated.base, bytes), bytes);
  give(&plain, KEEP_BY_PRESET);
  give(&populated, KEEP_BY_PRESET);
}

static bool is_zero(const char *run, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (run[i] != 0)
      return false;
  return true;
}

/* A run that is to be wiped reads as zero: resident or purged, also if the program wrote to it after the purge. */
RUN_TEST(wiped_runs_are_zero) {
  struct run pin = take(0), first = take(1);
  size_t bytes = run_bytes(&first);
  memset(first.base, 1, bytes);
  give(&first, KEEP_BY_PRESET);
  runs_are_wiped = true;
  struct run resident = take(1);
  assert_ptr_equal(resident.base, first.base);
  assert_true(is_zero(resident.base, bytes));
  memset(resident.base, 2, bytes);
  give(&resident, KEEP_BY_PRESET);
  extents_purge(UNIT_EVERYTHING);
  memset(resident.base, 3, bytes); /* through a stale pointer */
  struct run purged = take(1);
  assert_ptr_equal(purged.base, first.base);
  assert_true(is_zero(purged.base, bytes));
  runs_are_wiped = false;
  give(&purged, KEEP_BY_PRESET);
  give(&pin, KEEP_BY_PRESET);
}

/* The rest of a huge page that was filled at once joins with the run that was taken with it, so it serves a large object
 * that is as long. */
RUN_TEST(the_rest_of_a_dense_page_joins) {
  enum { COUNT = 2000 };
  static struct run runs[COUNT];
  unsigned count = 0;
  unit_option("HAKMEM_HUGE", "large");
  do {
    runs[count] = (struct run){.base = run_take(0, true)};
    usage_move_end(UNIT_BYTES);
  } while (decay_total(&extents_decay) == 0 && ++count < COUNT);
  unit_option("HAKMEM_HUGE", "off");
  if (count == COUNT)
    print_message("skipped: huge pages are slow here, or have another length\n");
  else
    assert_int_equal(decay_total(&extents_decay), ROW_BYTES - UNIT_BYTES);
  if (count < COUNT) {
    give(&runs[count], KEEP_BY_PRESET);
    struct run row = {.base = extent_take_resident(EXTENT_PLAIN, ROW_BYTES, UNIT_BYTES).base, .order = RUN_ORDER_MAX};
    assert_ptr_equal(row.base, runs[count].base);
    usage_move(USAGE_FREE, USAGE_SLABS, ROW_BYTES);
    usage_move_end(ROW_BYTES);
    give(&row, KEEP_BY_PRESET);
  }
  while (count-- > 0)
    give(&runs[count], KEEP_BY_PRESET);
}

static void take_without_address_space(void *unused) {
  unsigned of_other = 0;
  setrlimit(RLIMIT_AS, &(struct rlimit){0});
  for (char *run; (run = run_take(0, false)) != NULL; usage_move_end(UNIT_BYTES))
    of_other += extent_bank_of(run) == EXTENT_HUGE;
  CHECK(of_other >= ROW_UNITS);
}

/* Where address space is out, free memory of the bank for huge pages serves too, though no slab asks for such pages. */
RUN_TEST(address_space_of_the_other_bank_serves) {
  struct extent spare = extent_take(EXTENT_HUGE, ROW_BYTES, ROW_BYTES);
  assert_non_null(spare.base);
  assert_int_equal(extent_bank_of(spare.base), EXTENT_HUGE);
  extent_give(spare, KEEP_BY_PRESET, 0, USAGE_PROMISED);
  unit_passes_in_child(take_without_address_space, NULL);
}

UNIT_MAIN(unit_alone())
