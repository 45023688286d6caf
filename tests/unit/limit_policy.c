/* limit_policy: limits and margins at their edges; the keep never grows by more held or a lower limit, and
 * what goes brings held back to where it has to be. */
#include "unit.h"

#include "policy/limit_policy.h"

#define ROUNDS 20000
#define GIB ((size_t)1 << 30)

static uint64_t seed = UNIT_SEED;

/* Small, huge and everything between. */
static size_t draw(void) { return (size_t)(test_random(&seed) >> (test_random(&seed) % 64)); }

static size_t draw_to(size_t maximum) { return maximum == SIZE_MAX ? draw() : draw() % (maximum + 1); }

UNIT_TEST(the_margin_leaves_at_least_half) {
  assert_int_equal(limit_margin(0), 0);
  assert_int_equal(limit_margin(1), 0);
  assert_int_equal(limit_margin(8 * MIB), 4 * MIB);
  assert_int_equal(limit_margin(32 * MIB), 16 * MIB);
  assert_int_equal(limit_margin(256 * MIB), 16 * MIB);
  assert_int_equal(limit_margin(GIB), 64 * MIB);
  assert_int_equal(limit_margin(16 * GIB), GIB);
  assert_int_equal(limit_margin(1000 * GIB), GIB);
  for (unsigned i = 0; i < ROUNDS; i++) {
    size_t group = draw(), more = group + draw_to(SIZE_MAX - group);
    assert_true(limit_margin(group) <= group / 2 && limit_margin(group) <= GIB);
    assert_true(limit_margin(group) <= limit_margin(more));
    assert_true(group - limit_margin(group) <= more - limit_margin(more)); /* a wider limit allows no less */
  }
}

UNIT_TEST(the_hard_limit_is_the_smaller_of_what_there_is) {
  assert_true(limit_hard(0, SIZE_MAX, 0) == SIZE_MAX);
  assert_true(limit_hard(0, SIZE_MAX, SIZE_MAX) == SIZE_MAX);
  assert_true(limit_hard(100 * MIB, SIZE_MAX, 0) == 100 * MIB); /* as it is, no margin */
  assert_true(limit_hard(1, SIZE_MAX, GIB) == 1);
  assert_true(limit_hard(0, 256 * MIB, 0) == 240 * MIB);
  assert_true(limit_hard(0, 128 * MIB, 128 * MIB) == 240 * MIB);
  assert_true(limit_hard(100 * MIB, 256 * MIB, 0) == 100 * MIB);
  assert_true(limit_hard(250 * MIB, 256 * MIB, 0) == 240 * MIB);
  assert_true(limit_hard(0, 256 * MIB, SIZE_MAX) == SIZE_MAX); /* swaps without end */
  assert_true(limit_hard(0, SIZE_MAX - 5, 10) == SIZE_MAX);
  assert_true(limit_hard(0, SIZE_MAX - 5, 5) == SIZE_MAX);
  assert_true(limit_hard(0, SIZE_MAX - 5, 4) == SIZE_MAX - 1 - GIB);
  assert_true(limit_hard(0, 0, 0) == 0);
  for (unsigned i = 0; i < ROUNDS; i++) {
    size_t option = draw(), max = draw(), swap = draw(), limit = limit_hard(option, max, swap);
    assert_true(option == 0 || limit <= option);
    assert_true(limit <= limit_hard(option, SIZE_MAX, 0) && limit <= limit_hard(0, max, swap));
    assert_true(limit == limit_hard(option, SIZE_MAX, 0) || limit == limit_hard(0, max, swap));
  }
}

UNIT_TEST(a_limit_admits_exactly_what_fits) {
  assert_true(limit_admits(100, 60, 40));
  assert_false(limit_admits(100, 60, 41));
  assert_true(limit_admits(100, 100, 0));
  assert_true(limit_admits(100, 200, 0));
  assert_false(limit_admits(100, 200, 1));
  assert_false(limit_admits(0, 0, 1));
  assert_false(limit_admits(100, 60, SIZE_MAX));
  assert_false(limit_admits(SIZE_MAX - 1, SIZE_MAX, 2)); /* their sum is 1 */
  assert_false(limit_admits(SIZE_MAX - 1, 2, SIZE_MAX));
  assert_true(limit_admits(SIZE_MAX, SIZE_MAX, SIZE_MAX));
  for (unsigned i = 0; i < ROUNDS; i++) {
    size_t limit = draw(), held = draw(), bytes = draw();
    bool fits = (unsigned __int128)held + bytes <= limit;
    assert_true(limit_admits(limit, held, bytes) == (fits || bytes == 0 || limit == SIZE_MAX));
  }
}

/* Where what is held counts. */
static size_t keep_of_held(struct limit_view *view) {
  view->charged_bytes = view->held_bytes;
  return limit_keep(view);
}

UNIT_TEST(without_limits_the_keep_stays) {
  struct limit_view view = {.held_bytes = GIB, .live_bytes = MIB, .free_bytes = 900 * MIB, .high_bytes = SIZE_MAX};
  assert_true(keep_of_held(&view) == SIZE_MAX);
}

UNIT_TEST(what_is_over_the_target_goes) {
  /* 100 MiB beyond live, 80 of them free: 60 must go. */
  struct limit_view view = {.held_bytes = 300 * MIB,
                            .live_bytes = 200 * MIB,
                            .free_bytes = 80 * MIB,
                            .target_bytes = 40 * MIB,
                            .high_bytes = SIZE_MAX};
  assert_int_equal(keep_of_held(&view), 20 * MIB);
  view.target_bytes = 100 * MIB;
  assert_true(keep_of_held(&view) == SIZE_MAX);
  view.target_bytes = 10 * MIB; /* cannot be met by what is free */
  assert_int_equal(keep_of_held(&view), 0);
  view.live_bytes = 400 * MIB; /* counted at different moments */
  assert_true(keep_of_held(&view) == SIZE_MAX);
}

UNIT_TEST(near_the_high_limit_less_is_kept) {
  struct limit_view view = {
      .held_bytes = 700 * MIB, .live_bytes = 300 * MIB, .free_bytes = 400 * MIB, .high_bytes = 800 * MIB};
  assert_true(keep_of_held(&view) == SIZE_MAX); /* 7/8 exactly */
  view.held_bytes = 750 * MIB;
  assert_int_equal(keep_of_held(&view), 350 * MIB);
  view.held_bytes = 800 * MIB;
  assert_int_equal(keep_of_held(&view), 0);
  view.held_bytes = 2000 * MIB;
  assert_int_equal(keep_of_held(&view), 0);
  /* The stricter one of target and limit. */
  view.held_bytes = 750 * MIB;
  view.target_bytes = 150 * MIB;
  assert_int_equal(keep_of_held(&view), 100 * MIB);
  view.target_bytes = 440 * MIB;
  assert_int_equal(keep_of_held(&view), 350 * MIB);
}

/* A program whose live memory is beyond 7/8 of the limit uses its free memory again, too. */
UNIT_TEST(half_of_what_the_limit_leaves_may_stay) {
  struct limit_view view = {
      .held_bytes = 760 * MIB, .live_bytes = 740 * MIB, .free_bytes = 20 * MIB, .high_bytes = 800 * MIB};
  assert_int_equal(keep_of_held(&view), 30 * MIB);
  view.held_bytes = 790 * MIB; /* 50 MiB of it free */
  view.free_bytes = 50 * MIB;
  assert_int_equal(keep_of_held(&view), 30 * MIB);
  view.target_bytes = 40 * MIB;
  assert_int_equal(keep_of_held(&view), 30 * MIB);
  view.target_bytes = 10 * MIB;
  assert_int_equal(keep_of_held(&view), 10 * MIB);
}

/* Of a program with much untouched memory the system counts what is resident. */
UNIT_TEST(an_eighth_of_what_is_not_resident_may_stay) {
  struct limit_view view = {.held_bytes = 2000 * MIB,
                            .charged_bytes = 200 * MIB,
                            .live_bytes = 1900 * MIB,
                            .free_bytes = 40 * MIB,
                            .high_bytes = 800 * MIB};
  assert_int_equal(limit_keep(&view), 80 * MIB);
  view.charged_bytes = 790 * MIB;
  assert_int_equal(limit_keep(&view), 50 * MIB / 8);
  view.charged_bytes = 800 * MIB;
  assert_int_equal(limit_keep(&view), 0);
  view.held_bytes = 700 * MIB; /* all of it may become resident */
  view.charged_bytes = 100 * MIB;
  assert_true(limit_keep(&view) == SIZE_MAX);
  for (unsigned i = 0; i < ROUNDS; i++) {
    view = (struct limit_view){.held_bytes = draw(), .high_bytes = draw()};
    view.free_bytes = draw_to(view.held_bytes);
    size_t least = keep_of_held(&view);
    view.charged_bytes = draw_to(view.held_bytes);
    size_t kept = limit_keep(&view);
    assert_true(kept >= least);
    view.charged_bytes += draw_to(view.held_bytes - view.charged_bytes);
    assert_true(limit_keep(&view) <= kept);
  }
}

UNIT_TEST(the_keep_is_monotone_and_enough) {
  for (unsigned i = 0; i < ROUNDS; i++) {
    struct limit_view view = {.held_bytes = draw(), .target_bytes = draw(), .high_bytes = draw()};
    view.live_bytes = draw_to(view.held_bytes);
    view.free_bytes = draw_to(view.held_bytes - view.live_bytes);
    size_t kept = keep_of_held(&view);
    /* After the purge the limits are met, or nothing free is left. */
    size_t gone = view.free_bytes > kept ? view.free_bytes - kept : 0, held = view.held_bytes - gone;
    if (view.free_bytes > 0 && kept > 0 && kept != SIZE_MAX) {
      size_t others = view.held_bytes - view.free_bytes, most = view.high_bytes - view.high_bytes / 8;
      assert_true(held <= max_size(most, others + sub_sat(view.high_bytes, others) / 2));
      assert_true(view.target_bytes == 0 || held - view.live_bytes <= view.target_bytes);
    }
    /* More held, a lower limit, a lower target: never more kept. */
    struct limit_view tighter = view;
    tighter.held_bytes += draw_to(SIZE_MAX - tighter.held_bytes);
    assert_true(keep_of_held(&tighter) <= kept);
    tighter = view;
    tighter.high_bytes = draw_to(tighter.high_bytes);
    assert_true(keep_of_held(&tighter) <= kept);
    tighter = view;
    tighter.target_bytes = 1 + draw_to(max_size(tighter.target_bytes, 1) - 1);
    assert_true(keep_of_held(&tighter) <= kept);
  }
}

UNIT_MAIN()
