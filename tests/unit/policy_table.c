/* policy_table: each site has its own arm while there is room; beyond that the warm ones keep theirs and the rest is
 * decided about together; no event is lost from the totals; 100,000 sites take what the table takes. */
#include "unit.h"

#include "adapt/policy_table.h"

#define ARMS 64u
#define PAGES 100u

#define MAPPING_RANGE 20u

static struct policy_table_costs c;

/* Of each test. */
static struct policy_table table;
static void *places;
static uint32_t now_ms;

static void begin(uint32_t arms) {
  free(places);
  now_ms = 0;
  places = UNIT_GOT(calloc(1, policy_table_bytes(arms)));
  policy_table_begin(&table, places, arms, &c, KEEP_1S);
}

static int begin_usual(void **unused) {
  begin(ARMS);
  return 0;
}
static int end(void **unused) {
  UNIT_VALID(policy_table_is_valid(&table));
  return 0;
}
#define TABLE_TEST(test) UNIT_TEST_BETWEEN(test, begin_usual, end)

static enum keep reuse(uint64_t site, unsigned range, uint32_t gap_ms) {
  enum keep acted = policy_table_freed(&table, site, range, PAGES, true, now_ms);
  now_ms += gap_ms;
  policy_table_taken(&table, site, range, PAGES, now_ms);
  return acted;
}

TABLE_TEST(sites_of_different_temper_are_told_apart) {
  for (unsigned i = 0; i < 60; i++) {
    reuse(1, 3, 2);
    reuse(2, 3, 30000);
    reuse(1, 9, 400);
  }
  assert_in_range(reuse(1, 3, 2), KEEP_10MS, KEEP_1S);
  assert_in_range(reuse(2, 3, 2), KEEP_AT_ONCE, KEEP_10MS);
  assert_in_range(reuse(1, 9, 2), KEEP_1S, KEEP_WARM);
  assert_int_equal(table.taken_count, 3);
}

TABLE_TEST(ranges_are_doublings) {
  assert_int_equal(policy_range(0), 0);
  assert_int_equal(policy_range(16), 0);
  assert_int_equal(policy_range(31), 0);
  assert_int_equal(policy_range(32), 1);
  assert_int_equal(policy_range((size_t)1 << 20), 16);
  assert_int_equal(policy_range(((size_t)1 << 21) - 1), 16);
  assert_int_equal(policy_range(SIZE_MAX), POLICY_RANGES - 1);
}

/* Whatever happens to arms, the same events cost the same in sum. */
TABLE_TEST(no_event_is_lost) {
  uint64_t random = UNIT_SEED;
  uint64_t freed = 0;
  uint64_t warm_ns = 0;
  for (unsigned i = 0; i < 20000; i++, freed++) {
    policy_table_freed(&table, (uint32_t)(test_random(&random) % 1000), 0, PAGES, true, now_ms);
    uint32_t step_ms = (uint32_t)(test_random(&random) % 3);
    now_ms += step_ms;
    warm_ns += (freed + 1) * PAGES * step_ms / 2;
  }
  struct policy_totals totals = policy_totals(&table, now_ms);
  assert_int_equal(totals.fixed[KEEP_AT_ONCE], freed * (800 + 60 * PAGES));
  assert_in_range(totals.fixed[KEEP_WARM], warm_ns - warm_ns / 100, warm_ns + warm_ns / 100);
  assert_true(table.displaced > 0);
  assert_true(totals.acted >= totals.best_of_arm);
}

TABLE_TEST(a_mapping_costs_more_to_give_back) {
  reuse(1, MAPPING_RANGE - 1, 0);
  assert_int_equal(policy_totals(&table, now_ms).fixed[KEEP_AT_ONCE], 800 + (60 + 500) * PAGES);
  reuse(1, MAPPING_RANGE, 0);
  assert_int_equal(policy_totals(&table, now_ms).fixed[KEEP_AT_ONCE], 800 + 3300 + 2 * (60 + 500) * PAGES);
}

/* Sites that come once in ten seconds each, and one comes every hundred milliseconds: what one frees the next takes. */
TABLE_TEST(what_one_frees_serves_the_next) {
  for (uint32_t i = 0; i < 400; i++) {
    policy_table_taken(&table, 1 + i % 7, i % 3, PAGES, i * 100);
    policy_table_freed(&table, 1 + i % 7, i % 3, PAGES, true, i * 100 + 10);
  }
  assert_true(policy_table_leader(&table, 1, 0) >= KEEP_100MS);
  struct policy_totals totals = policy_totals(&table, 40000);
  assert_in_range(totals.fixed[KEEP_WARM], 1, totals.fixed[KEEP_10MS] / 5);
  /* A part of a mapping cannot be had. */
  const struct policy_arm *lender = NULL;
  for (unsigned i = 0; i < ARMS; i++)
    lender = table.places[i].taken && table.places[i].arm.idle_count > 0 ? &table.places[i].arm : lender;
  assert_non_null(lender);
  uint32_t pages = lender->idle[0].pages;
  policy_table_taken(&table, 99, MAPPING_RANGE, PAGES, 40000);
  assert_int_equal(lender->idle[0].pages, pages);
  assert_int_equal(lender->idle_count, 1);
  policy_table_taken(&table, 99, 5, PAGES, 40000);
  assert_int_equal(lender->idle_count, 0);
}

/* However often two others free in turn meanwhile. */
TABLE_TEST(a_lender_is_not_forgotten) {
  policy_table_freed(&table, 3, 0, 1000, true, 0);
  for (unsigned i = 0; i < 50; i++) {
    policy_table_freed(&table, 1 + i % 2, 0, 1, true, 0);
    policy_table_taken(&table, 1 + i % 2, 0, 1, 0);
  }
  uint64_t before = policy_totals(&table, 0).fixed[KEEP_AT_ONCE];
  policy_table_taken(&table, 4, 0, 1000, 0);
  assert_int_equal(policy_totals(&table, 0).fixed[KEEP_AT_ONCE], before + 1000 * 500);
}

/* What cannot be kept was not, whatever leads; frozen, a site without a place is the rest's. */
TABLE_TEST(who_acts) {
  int32_t ratings[KEEP_STRATEGIES] = {0};
  begin(POLICY_WAYS);
  assert_true(policy_table_learned(&table, 5, 0, ratings, KEEP_10S, 9));
  assert_int_equal(policy_table_freed(&table, 5, 0, PAGES, false, 0), KEEP_1S);
  assert_int_equal(policy_table_freed(&table, 5, 0, PAGES, true, 0), KEEP_10S);
  assert_true(policy_table_learned(&table, 6, 0, ratings, KEEP_AT_ONCE, 9));
  assert_int_equal(policy_table_freed(&table, 6, 0, PAGES, false, 0), KEEP_AT_ONCE);
  for (uint32_t site = 100; site < 100 + POLICY_WAYS - 2; site++)
    assert_true(policy_table_learned(&table, site, 0, ratings, KEEP_WARM, 9));
  policy_arm_begin_rated(&table.rests[0], ratings, KEEP_100MS, 9);
  assert_int_equal(policy_table_leader(&table, 99, 0), KEEP_100MS);
}

/* One block, freed and never asked for again, is all that happens in many short runs. */
TABLE_TEST(short_lives_teach_as_well) {
  for (unsigned is_concluded = 0; is_concluded < 2; is_concluded++) {
    begin(ARMS);
    assert_int_equal(policy_table_freed(&table, 1, 0, PAGES, true, 0), KEEP_1S);
    if (is_concluded)
      policy_table_conclude(&table, 30000);
    assert_int_equal(table.places != NULL && policy_totals(&table, 30000).epochs == 1, is_concluded);
    if (is_concluded)
      assert_in_range(policy_table_leader(&table, 1, 0), KEEP_AT_ONCE, KEEP_10MS);
    else
      assert_int_equal(policy_table_leader(&table, 1, 0), KEEP_1S);
    end(NULL);
  }
}

TABLE_TEST(warm_sites_keep_their_place) {
  begin(POLICY_WAYS); /* one set */
  for (unsigned i = 0; i < 100; i++)
    reuse(7, 0, 30000);
  for (uint64_t site = 1000; site < 6000; site++) {
    reuse(site, 0, 1);
    reuse(7, 0, 30000);
  }
  bool found = false;
  for (unsigned i = 0; i < POLICY_WAYS; i++)
    found |= table.places[i].site == 7 && table.places[i].arm.epochs > 1000;
  assert_true(found);
  assert_int_equal(table.taken_count, POLICY_WAYS);
}

TABLE_TEST(a_hundred_thousand_sites) {
  begin(2048);
  assert_true(policy_table_bytes(2048) + sizeof table <= (size_t)1 << 20);
  for (uint64_t site = 0; site < 100000; site++)
    reuse(site * 16, site % 7, site % 5);
  assert_true(table.taken_count <= 2048);
}

TABLE_TEST(what_a_file_says_is_followed_at_once) {
  int32_t ratings[KEEP_STRATEGIES] = {[KEEP_AT_ONCE] = 3 * POLICY_RATING_MAX, [KEEP_WARM] = INT32_MIN};
  begin(POLICY_WAYS);
  assert_true(policy_table_learned(&table, 5, 0, ratings, KEEP_AT_ONCE, 4));
  assert_int_equal(reuse(5, 0, 1), KEEP_AT_ONCE);
  for (uint64_t site = 100; site < 100 + POLICY_WAYS - 1; site++)
    assert_true(policy_table_learned(&table, site, 0, ratings, KEEP_10S, 4));
  assert_false(policy_table_learned(&table, 99, 0, ratings, KEEP_10S, 4));
  assert_true(policy_table_learned(&table, 5, 0, ratings, KEEP_10S, 4)); /* again: the later one holds */
  assert_int_equal(reuse(5, 0, 1), KEEP_10S);
}

UNIT_MAIN((c = (struct policy_table_costs){MAPPING_RANGE, policy_costs_of(500, 60, 800, 1000),
                                           policy_costs_of(500, 60, 3300, 1000)}))
