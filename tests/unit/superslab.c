/* superslab: units against a shadow, complete search, and the books of resident memory. */
#include "unit.h"

#include "map/page_map.h"

#include <time.h>

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

/* Every carved superslab can be had whole, and no new one is carved for it. */
static void assert_all_free(void) {
  struct unit_stats before = stats();
  size_t count = before.committed_bytes / SUPERSLAB_BYTES;
  assert_int_equal(before.taken_bytes, 0);
  void **wholes = calloc(count, sizeof *wholes);
  for (size_t i = 0; i < count; i++)
    assert_non_null(wholes[i] = units_take(UNIT_ORDER_MAX));
  assert_int_equal(stats().committed_bytes, before.committed_bytes);
  assert_int_equal(stats().taken_bytes, before.committed_bytes);
  for (size_t i = 0; i < count; i++)
    units_give(wholes[i], UNIT_ORDER_MAX);
  free(wholes);
}

static void random_runs_never_overlap(void **state) {
  (void)state;
  static struct run runs[RUNS_MAX];
  uint64_t seed = UNIT_SEED;
  unsigned count = 0;
  size_t taken = 0;
  for (unsigned step = 0; step < 30000; step++) {
    if (count < RUNS_MAX && (count == 0 || unit_random(&seed) % 100 < (step / 3000 % 2 ? 40 : 60))) {
      struct run run = {.order = (unsigned)(unit_random(&seed) % (UNIT_ORDER_MAX + 1))};
      run.base = units_take(run.order);
      assert_non_null(run.base);
      assert_int_equal((uintptr_t)run.base & ((UNIT_BYTES << run.order) - 1), 0);
      assert_true(address_in_superslab(run.base) && map_covers(run.base + (UNIT_BYTES << run.order) - 1));
      taken += UNIT_BYTES << run.order;
      tag_write(&run, unit_random(&seed));
      runs[count++] = run;
    } else {
      unsigned i = (unsigned)(unit_random(&seed) % count);
      tag_check(&runs[i]);
      units_give(runs[i].base, runs[i].order);
      taken -= UNIT_BYTES << runs[i].order;
      runs[i] = runs[--count];
    }
    if (step % 5000 == 17)
      units_purge(taken / 16, 0);
    if (step % 500 == 0) {
      assert_int_equal(stats().taken_bytes, taken);
      UNIT_SUPERSLABS_VALID();
    }
  }
  while (count > 0) {
    tag_check(&runs[--count]);
    units_give(runs[count].base, runs[count].order);
  }
  UNIT_SUPERSLABS_VALID();
  assert_all_free();
}

/* However many full superslabs there are, and wherever the one free run lies, it is found. */
static void search_is_complete(void **state) {
  (void)state;
  enum { SUPERSLABS = 40, UNITS = SUPERSLABS * SUPERSLAB_UNITS };
  static char *units[UNITS];
  units_release_empty();
  for (unsigned i = 0; i < UNITS; i++)
    assert_non_null(units[i] = units_take(0));
  size_t committed = stats().committed_bytes;
  assert_int_equal(committed, SUPERSLABS * SUPERSLAB_BYTES);
  const unsigned places[] = {0, 3, 17, SUPERSLABS - 1};
  for (unsigned p = 0; p < sizeof places / sizeof places[0]; p++)
    for (unsigned order = 0; order <= UNIT_ORDER_MAX; order++) {
      char *base = (char *)round_down((uintptr_t)units[places[p] * SUPERSLAB_UNITS], SUPERSLAB_BYTES);
      char *hole = base + (SUPERSLAB_UNITS - (1u << order)) * UNIT_BYTES; /* aligned: the superslab's last */
      unsigned members = 0;
      for (unsigned i = 0; i < UNITS; i++)
        if (units[i] >= hole && units[i] < hole + (UNIT_BYTES << order)) {
          units_give(units[i], 0);
          members++;
        }
      assert_int_equal(members, 1u << order);
      for (unsigned bigger = order + 1; bigger <= UNIT_ORDER_MAX && p == 0 && order == 2; bigger++) {
        void *carved = units_take(bigger); /* the hole is too small for it */
        assert_true((char *)carved < hole || (char *)carved >= hole + (UNIT_BYTES << order));
        units_give(carved, bigger);
        units_release_empty();
      }
      assert_ptr_equal(units_take(order), hole);
      assert_int_equal(stats().committed_bytes, committed);
      units_give(hole, order);
      for (unsigned i = 0; i < members; i++)
        assert_non_null(units_take(0));
      assert_int_equal(stats().committed_bytes, committed);
      UNIT_SUPERSLABS_VALID();
    }
  for (unsigned i = 0; i < UNITS; i++)
    units_give(units[i], 0);
  assert_all_free();
}

static void used_superslabs_are_preferred_to_empty_ones(void **state) {
  (void)state;
  char *first = units_take(0);
  char *whole = units_take(UNIT_ORDER_MAX);
  units_give(whole, UNIT_ORDER_MAX);
  for (unsigned i = 0; i < 8; i++) {
    char *unit = units_take(0);
    assert_int_equal(round_down((uintptr_t)unit, SUPERSLAB_BYTES), round_down((uintptr_t)first, SUPERSLAB_BYTES));
  }
  for (unsigned i = 0; i < 9; i++)
    units_give((char *)round_down((uintptr_t)first, SUPERSLAB_BYTES) + i * UNIT_BYTES, 0);
  assert_all_free();
}

static void purge_keeps_books(void **state) {
  (void)state;
  units_purge(0, 0);
  assert_int_equal(stats().resident_free_bytes, 0);
  struct run run = {.base = units_take(3), .order = 3};
  tag_write(&run, 42);
  size_t bytes = UNIT_BYTES << 3;
  assert_int_equal(stats().resident_free_bytes, 0);
  units_give(run.base, 3);
  assert_int_equal(stats().resident_free_bytes, bytes);
  assert_int_equal(units_purge(bytes, 0), 0);   /* so much may stay */
  assert_int_equal(units_purge(0, 3600000), 0); /* too young */
  assert_int_equal(units_purge(0, 0), bytes);
  assert_int_equal(units_purge(0, 0), 0);
  assert_int_equal(stats().resident_free_bytes, 0);
  UNIT_SUPERSLABS_VALID();
  for (size_t i = 0; i < bytes; i += UNIT_BYTES)
    assert_int_equal(run.base[i], 0); /* purged memory stays accessible and reads as zero */
}

/* Purged free units beside resident ones: the resident are handed out first. */
static void resident_units_are_taken_first(void **state) {
  (void)state;
  char *whole = units_take(UNIT_ORDER_MAX);
  units_give(whole, UNIT_ORDER_MAX);
  units_purge(0, 0);
  char *units[SUPERSLAB_UNITS];
  for (unsigned i = 0; i < SUPERSLAB_UNITS; i++)
    units[i] = units_take(0);
  units_give(units[3], 0);
  units_purge(0, 0);
  units_give(units[20], 0); /* of one superslab or not, the only resident ones */
  assert_ptr_equal(units_take(0), units[20]);
  assert_int_equal(stats().resident_free_bytes, 0);
  assert_ptr_equal(units_take(0), units[3]);
  for (unsigned i = 0; i < SUPERSLAB_UNITS; i++)
    units_give(units[i], 0);
  UNIT_SUPERSLABS_VALID();
}

static void oldest_memory_is_purged_first(void **state) {
  (void)state;
  units_purge(0, 0);
  struct run runs[3];
  for (unsigned i = 0; i < 3; i++) {
    runs[i] = (struct run){.base = units_take(UNIT_ORDER_MAX), .order = UNIT_ORDER_MAX};
    tag_write(&runs[i], 100 + i);
  }
  struct timespec pause = {.tv_nsec = 60000000};
  const unsigned given[] = {1, 0, 2};
  for (unsigned i = 0; i < 3; i++) {
    units_give(runs[given[i]].base, UNIT_ORDER_MAX);
    nanosleep(&pause, NULL);
  }
  assert_int_equal(units_purge(2 * SUPERSLAB_BYTES, 0), SUPERSLAB_BYTES);
  tag_check(&runs[0]);
  tag_check(&runs[2]);
  assert_int_equal(runs[1].base[0], 0);
  assert_int_equal(units_purge(0, 100), SUPERSLAB_BYTES); /* runs[0] is over 100 ms old, runs[2] is not */
  tag_check(&runs[2]);
  assert_int_equal(runs[0].base[0], 0);
  units_purge(0, 0);
  UNIT_SUPERSLABS_VALID();
}

static void empty_superslabs_can_be_released(void **state) {
  (void)state;
  char *unit = units_take(0);
  char *whole = units_take(UNIT_ORDER_MAX);
  units_give(whole, UNIT_ORDER_MAX);
  assert_true(units_release_empty());
  assert_false(units_release_empty());
  assert_int_equal(stats().committed_bytes, SUPERSLAB_BYTES); /* the one with a unit in use */
  assert_int_equal(stats().resident_free_bytes % UNIT_BYTES, 0);
  assert_false(address_in_superslab(whole));
  assert_true(address_in_superslab(unit));
  units_give(unit, 0);
  assert_true(units_release_empty());
  assert_int_equal(stats().committed_bytes, 0);
  assert_int_equal(stats().resident_free_bytes, 0);
  UNIT_SUPERSLABS_VALID();
  for (unsigned i = 0; i < 20; i++) {
    struct run run = {.base = units_take(i % 6), .order = i % 6};
    assert_non_null(run.base);
    tag_write(&run, i);
    units_give(run.base, run.order);
  }
  UNIT_SUPERSLABS_VALID();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_runs_never_overlap),
      cmocka_unit_test(search_is_complete),
      cmocka_unit_test(used_superslabs_are_preferred_to_empty_ones),
      cmocka_unit_test(purge_keeps_books),
      cmocka_unit_test(resident_units_are_taken_first),
      cmocka_unit_test(oldest_memory_is_purged_first),
      cmocka_unit_test(empty_superslabs_can_be_released),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
