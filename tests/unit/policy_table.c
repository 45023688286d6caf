/* policy_table: each site has its own arm while there is room; beyond that the warm ones keep theirs and the rest is
 * decided about together; no event is lost from the totals; 100,000 sites take what the table takes. */
#include "unit.h"

#include "adapt/policy_table.h"

#define ARMS 64u
#define PAGES 100u

#define MAPPING_RANGE 20u

static struct policy_table_costs c;

struct fixture {
  struct policy_table table;
  void *places;
};

static void begin(struct fixture *f, uint32_t arms) {
  f->places = calloc(1, policy_table_bytes(arms));
  assert_non_null(f->places);
  policy_table_begin(&f->table, f->places, arms, &c, KEEP_1S);
}

static void valid(const struct fixture *f) { UNIT_VALID(policy_table_is_valid(&f->table)); }

static void end(struct fixture *f) {
  valid(f);
  free(f->places);
}

static enum keep reuse(struct fixture *f, uint64_t site, unsigned range, uint32_t *now_ms, uint32_t gap_ms) {
  enum keep acted = policy_table_freed(&f->table, site, range, PAGES, true, *now_ms);
  *now_ms += gap_ms;
  policy_table_taken(&f->table, site, range, PAGES, *now_ms);
  return acted;
}

UNIT_TEST(sites_of_different_temper_are_told_apart) {
  struct fixture f;
  uint32_t now_ms = 0;
  begin(&f, ARMS);
  for (unsigned i = 0; i < 60; i++) {
    reuse(&f, 1, 3, &now_ms, 2);
    reuse(&f, 2, 3, &now_ms, 30000);
    reuse(&f, 1, 9, &now_ms, 400);
  }
  assert_in_range(reuse(&f, 1, 3, &now_ms, 2), KEEP_10MS, KEEP_1S);
  assert_in_range(reuse(&f, 2, 3, &now_ms, 2), KEEP_AT_ONCE, KEEP_10MS);
  assert_in_range(reuse(&f, 1, 9, &now_ms, 2), KEEP_1S, KEEP_WARM);
  assert_int_equal(f.table.taken_count, 3);
  end(&f);
}

UNIT_TEST(ranges_are_doublings) {
  assert_int_equal(policy_range(0), 0);
  assert_int_equal(policy_range(16), 0);
  assert_int_equal(policy_range(31), 0);
  assert_int_equal(policy_range(32), 1);
  assert_int_equal(policy_range((size_t)1 << 20), 16);
  assert_int_equal(policy_range(((size_t)1 << 21) - 1), 16);
  assert_int_equal(policy_range(SIZE_MAX), POLICY_RANGES - 1);
}

/* Whatever happens to arms, the same events cost the same in sum. */
UNIT_TEST(no_event_is_lost) {
  struct fixture f;
  uint64_t random = UNIT_SEED;
  uint32_t now_ms = 0;
  uint64_t freed = 0;
  begin(&f, ARMS);
  uint64_t warm_ns = 0;
  for (unsigned i = 0; i < 20000; i++, freed++) {
    policy_table_freed(&f.table, (uint32_t)(test_random(&random) % 1000), 0, PAGES, true, now_ms);
    uint32_t step_ms = (uint32_t)(test_random(&random) % 3);
    now_ms += step_ms;
    warm_ns += (freed + 1) * PAGES * step_ms / 2;
  }
  struct policy_totals totals = policy_totals(&f.table, now_ms);
  assert_int_equal(totals.fixed[KEEP_AT_ONCE], freed * (800 + 60 * PAGES));
  assert_in_range(totals.fixed[KEEP_WARM], warm_ns - warm_ns / 100, warm_ns + warm_ns / 100);
  assert_true(f.table.displaced > 0);
  assert_true(totals.acted >= totals.best_of_arm);
  end(&f);
}

UNIT_TEST(a_mapping_costs_more_to_give_back) {
  struct fixture f;
  uint32_t now_ms = 0;
  begin(&f, ARMS);
  reuse(&f, 1, MAPPING_RANGE - 1, &now_ms, 0);
  assert_int_equal(policy_totals(&f.table, now_ms).fixed[KEEP_AT_ONCE], 800 + (60 + 500) * PAGES);
  reuse(&f, 1, MAPPING_RANGE, &now_ms, 0);
  assert_int_equal(policy_totals(&f.table, now_ms).fixed[KEEP_AT_ONCE], 800 + 3300 + 2 * (60 + 500) * PAGES);
  end(&f);
}

/* Sites that come once in ten seconds each, and one comes every hundred milliseconds: what one frees the next takes. */
UNIT_TEST(what_one_frees_serves_the_next) {
  struct fixture f;
  begin(&f, ARMS);
  for (uint32_t i = 0; i < 400; i++) {
    policy_table_taken(&f.table, 1 + i % 7, i % 3, PAGES, i * 100);
    policy_table_freed(&f.table, 1 + i % 7, i % 3, PAGES, true, i * 100 + 10);
  }
  assert_true(policy_table_leader(&f.table, 1, 0) >= KEEP_100MS);
  struct policy_totals totals = policy_totals(&f.table, 40000);
  assert_in_range(totals.fixed[KEEP_WARM], 1, totals.fixed[KEEP_10MS] / 5);
  /* A part of a mapping cannot be had. */
  const struct policy_arm *lender = NULL;
  for (unsigned i = 0; i < ARMS; i++)
    lender = f.table.places[i].taken && f.table.places[i].arm.idle_count > 0 ? &f.table.places[i].arm : lender;
  assert_non_null(lender);
  uint32_t pages = lender->idle[0].pages;
  policy_table_taken(&f.table, 99, MAPPING_RANGE, PAGES, 40000);
  assert_int_equal(lender->idle[0].pages, pages);
  assert_int_equal(lender->idle_count, 1);
  policy_table_taken(&f.table, 99, 5, PAGES, 40000);
  assert_int_equal(lender->idle_count, 0);
  end(&f);
}

/* One block, freed and never asked for again, is all that happens in many short runs. */
/* However often two others free in turn meanwhile. */
UNIT_TEST(a_lender_is_not_forgotten) {
  struct fixture f;
  begin(&f, ARMS);
  policy_table_freed(&f.table, 3, 0, 1000, true, 0);
  for (unsigned i = 0; i < 50; i++) {
    policy_table_freed(&f.table, 1 + i % 2, 0, 1, true, 0);
    policy_table_taken(&f.table, 1 + i % 2, 0, 1, 0);
  }
  uint64_t before = policy_totals(&f.table, 0).fixed[KEEP_AT_ONCE];
  policy_table_taken(&f.table, 4, 0, 1000, 0);
  assert_int_equal(policy_totals(&f.table, 0).fixed[KEEP_AT_ONCE], before + 1000 * 500);
  end(&f);
}

/* What cannot be kept was not, whatever leads; frozen, a site without a place is the rest's. */
UNIT_TEST(who_acts) {
  struct fixture f;
  int32_t ratings[KEEP_STRATEGIES] = {0};
  begin(&f, POLICY_WAYS);
  assert_true(policy_table_learned(&f.table, 5, 0, ratings, KEEP_10S, 9));
  assert_int_equal(policy_table_freed(&f.table, 5, 0, PAGES, false, 0), KEEP_1S);
  assert_int_equal(policy_table_freed(&f.table, 5, 0, PAGES, true, 0), KEEP_10S);
  assert_true(policy_table_learned(&f.table, 6, 0, ratings, KEEP_AT_ONCE, 9));
  assert_int_equal(policy_table_freed(&f.table, 6, 0, PAGES, false, 0), KEEP_AT_ONCE);
  for (uint32_t site = 100; site < 100 + POLICY_WAYS - 2; site++)
    assert_true(policy_table_learned(&f.table, site, 0, ratings, KEEP_WARM, 9));
  policy_arm_begin_rated(&f.table.rests[0], ratings, KEEP_100MS, 9);
  assert_int_equal(policy_table_leader(&f.table, 99, 0), KEEP_100MS);
  end(&f);
}

UNIT_TEST(short_lives_teach_as_well) {
  struct fixture f;
  for (unsigned is_concluded = 0; is_concluded < 2; is_concluded++) {
    begin(&f, ARMS);
    assert_int_equal(policy_table_freed(&f.table, 1, 0, PAGES, true, 0), KEEP_1S);
    if (is_concluded)
      policy_table_conclude(&f.table, 30000);
    assert_int_equal(f.table.places != NULL && policy_totals(&f.table, 30000).epochs == 1, is_concluded);
    if (is_concluded)
      assert_in_range(policy_table_leader(&f.table, 1, 0), KEEP_AT_ONCE, KEEP_10MS);
    else
      assert_int_equal(policy_table_leader(&f.table, 1, 0), KEEP_1S);
    end(&f);
  }
}

UNIT_TEST(warm_sites_keep_their_place) {
  struct fixture f;
  uint32_t now_ms = 0;
  begin(&f, POLICY_WAYS); /* one set */
  for (unsigned i = 0; i < 100; i++)
    reuse(&f, 7, 0, &now_ms, 30000);
  for (uint64_t site = 1000; site < 6000; site++) {
    reuse(&f, site, 0, &now_ms, 1);
    reuse(&f, 7, 0, &now_ms, 30000);
  }
  bool found = false;
  for (unsigned i = 0; i < POLICY_WAYS; i++)
    found |= f.table.places[i].site == 7 && f.table.places[i].arm.epochs > 1000;
  assert_true(found);
  assert_int_equal(f.table.taken_count, POLICY_WAYS);
  end(&f);
}

UNIT_TEST(a_hundred_thousand_sites) {
  struct fixture f;
  uint32_t now_ms = 0;
  begin(&f, 2048);
  assert_true(policy_table_bytes(2048) + sizeof f.table <= (size_t)1 << 20);
  for (uint64_t site = 0; site < 100000; site++)
    reuse(&f, site * 16, site % 7, &now_ms, site % 5);
  assert_true(f.table.taken_count <= 2048);
  end(&f);
}

UNIT_TEST(what_a_file_says_is_followed_at_once) {
  struct fixture f;
  uint32_t now_ms = 0;
  int32_t ratings[KEEP_STRATEGIES] = {[KEEP_AT_ONCE] = 3 * POLICY_RATING_MAX, [KEEP_WARM] = INT32_MIN};
  begin(&f, POLICY_WAYS);
  assert_true(policy_table_learned(&f.table, 5, 0, ratings, KEEP_AT_ONCE, 4));
  assert_int_equal(reuse(&f, 5, 0, &now_ms, 1), KEEP_AT_ONCE);
  for (uint64_t site = 100; site < 100 + POLICY_WAYS - 1; site++)
    assert_true(policy_table_learned(&f.table, site, 0, ratings, KEEP_10S, 4));
  assert_false(policy_table_learned(&f.table, 99, 0, ratings, KEEP_10S, 4));
  assert_true(policy_table_learned(&f.table, 5, 0, ratings, KEEP_10S, 4)); /* again: the later one holds */
  assert_int_equal(reuse(&f, 5, 0, &now_ms, 1), KEEP_10S);
  end(&f);
}

UNIT_MAIN((c = (struct policy_table_costs){MAPPING_RANGE, policy_costs_of(500, 60, 800, 1000),
                                           policy_costs_of(500, 60, 3300, 1000)}))
