/* huge_policy: small heaps and ranges get none; stalls end in back-offs that double to five minutes and
 * are halved by quick touches; dense ranges earn huge pages for large objects. */
#include "unit.h"

#include "policy/huge_policy.h"

#define HEAP (100 * MIB)
#define PAGE (2 * MIB)
#define US ((uint64_t)1000)
#define MS ((uint64_t)1000 * 1000)
#define STALL (HUGE_STALL_NS + 1) /* the shortest */
#define START ((uint64_t)5000)    /* the clock's, ms */

static struct huge_state state;

static int begin(void **unused) {
  state = (struct huge_state){0};
  return 0;
}
#define HUGE_TEST(test) UNIT_TEST_BETWEEN(test, begin, NULL)

static bool wanted(uint64_t now_ms) { return huge_wanted(&state, HUGE_ALL, false, HEAP, PAGE, now_ms); }

/* The first moment huge pages are wanted again, at most an hour on. */
static uint64_t wanted_again(uint64_t now_ms) {
  uint64_t then = now_ms;
  while (!wanted(then) && then < now_ms + 3600 * 1000)
    then++;
  return then;
}

HUGE_TEST(small_heaps_and_ranges_get_none) {
  assert_true(huge_wanted(&state, HUGE_ALL, false, HUGE_HEAP_BYTES_MIN, PAGE, START));
  assert_true(huge_wanted(&state, HUGE_ALL, true, SIZE_MAX, SIZE_MAX, UINT64_MAX));
  assert_true(huge_wanted(&state, HUGE_ALL, true, HEAP, PAGE, 0)); /* the clock may start at 0 */
  assert_false(huge_wanted(&state, HUGE_ALL, true, HUGE_HEAP_BYTES_MIN - 1, PAGE, START));
  assert_false(huge_wanted(&state, HUGE_ALL, true, HEAP, PAGE - 1, START));
  assert_false(huge_wanted(&state, HUGE_ALL, true, 0, 0, START));
}

HUGE_TEST(the_mode_says_for_what) {
  assert_true(huge_wanted(&state, HUGE_LARGE, true, HEAP, PAGE, START));
  assert_false(huge_wanted(&state, HUGE_LARGE, false, HEAP, PAGE, START));
  assert_false(huge_wanted(&state, HUGE_OFF, true, HEAP, PAGE, START));
  assert_false(huge_wanted(&state, HUGE_OFF, false, HEAP, PAGE, START));
}

HUGE_TEST(dense_slabs_get_a_huge_page_each) {
  const size_t heap = 32 * MIB, dense = PAGE / 8 * 7;
  assert_true(huge_wanted_for_slabs(&state, HUGE_LARGE, heap, dense, START));
  assert_true(huge_wanted_for_slabs(&state, HUGE_ALL, SIZE_MAX, SIZE_MAX, 0));
  assert_false(huge_wanted_for_slabs(&state, HUGE_OFF, heap, dense, START));
  assert_false(huge_wanted_for_slabs(&state, HUGE_LARGE, heap - 1, dense, START)); /* more than a 16th may be unused */
  assert_false(huge_wanted_for_slabs(&state, HUGE_LARGE, heap, dense - 1, START));
  huge_note_stall(&state, STALL, START);
  assert_false(huge_wanted_for_slabs(&state, HUGE_LARGE, heap, dense, START));
  assert_true(huge_wanted_for_slabs(&state, HUGE_LARGE, heap, dense, START + HUGE_STALL_SPAN_MS));
}

HUGE_TEST(clearing_is_no_stall) {
  for (unsigned i = 0; i < 900; i++) {
    huge_note_stall(&state, 100 * US + i * US, START + i);
    assert_true(wanted(START + i));
  }
}

HUGE_TEST(one_long_touch_is_a_stall) {
  huge_note_stall(&state, HUGE_STALL_NS, START);
  assert_true(wanted(START));
  huge_note_stall(&state, HUGE_STALL_NS + 1, START);
  assert_false(wanted(START));
  assert_int_equal(wanted_again(START), START + HUGE_STALL_SPAN_MS);
}

HUGE_TEST(slow_touches_in_a_row_are_a_stall) {
  for (unsigned i = 0; i < 100; i++) /* a quick one between */
    huge_note_stall(&state, i % HUGE_SLOW_MAX == HUGE_SLOW_MAX - 1 ? MS : HUGE_SLOW_NS + 1, START);
  for (unsigned i = 0; i < 100; i++) /* the last that are not slow */
    huge_note_stall(&state, HUGE_SLOW_NS, START);
  for (unsigned i = 0; i < HUGE_SLOW_MAX; i++) {
    assert_true(wanted(START));
    huge_note_stall(&state, HUGE_SLOW_NS + 1, START);
  }
  assert_int_equal(wanted_again(START), START + HUGE_STALL_SPAN_MS);
}

HUGE_TEST(back_offs_double_to_five_minutes) {
  uint64_t now = START, span = HUGE_STALL_SPAN_MS;
  for (unsigned i = 0; i < 20; i++) {
    huge_note_stall(&state, STALL, now);
    huge_note_stall(&state, STALL, now);            /* another thread, the same stall */
    huge_note_stall(&state, STALL, now + span - 1); /* one that asked before */
    huge_note_stall(&state, MS, now + span - 1);
    assert_int_equal(wanted_again(now), now + span);
    now += span + 10;
    span = span * 2 < 300000 ? span * 2 : 300000;
  }
  assert_int_equal(span, 300000);
}

/* A stall costs a sixteenth of the time until the next one, if it does not look as if the process was stopped. */
HUGE_TEST(longer_stalls_stop_huge_pages_for_longer) {
  uint64_t now = START;
  huge_note_stall(&state, 20 * MS, now);
  now += 16 * 20;
  assert_int_equal(wanted_again(START), now);
  huge_note_stall(&state, STALL, now);
  assert_int_equal(wanted_again(now), now + 2 * 16 * 20);
  begin(NULL);
  huge_note_stall(&state, 3600 * 1000 * MS, START);
  assert_int_equal(wanted_again(START), START + HUGE_STALL_SPAN_MS_MAX);
}

HUGE_TEST(good_touches_halve_the_back_off) {
  uint64_t now = START;
  for (unsigned i = 0; i < 4; i++) {
    huge_note_stall(&state, STALL, now);
    now = wanted_again(now);
  }
  assert_int_equal(state.span_ms, 8 * HUGE_STALL_SPAN_MS);
  huge_note_stall(&state, MS, now); /* half, so the next is as long again */
  huge_note_stall(&state, STALL, now);
  assert_int_equal(wanted_again(now), now + 8 * HUGE_STALL_SPAN_MS);
  now += 8 * HUGE_STALL_SPAN_MS;
  for (unsigned i = 0; i < 4; i++)
    huge_note_stall(&state, MS, now);
  huge_note_stall(&state, STALL, now); /* all forgotten */
  assert_int_equal(wanted_again(now), now + HUGE_STALL_SPAN_MS);
}

HUGE_TEST(dense_ranges_earn_huge_pages) {
  assert_false(huge_spend(&state, 0));
  assert_false(huge_spend(&state, MIB));
  assert_false(huge_note_written(&state, 0, 0, HEAP)); /* says nothing */
  assert_false(huge_note_written(&state, 7 * MIB - 1, 8 * MIB, HEAP));
  assert_false(huge_spend(&state, MIB));
  assert_true(huge_note_written(&state, 7 * MIB / 8, MIB, HEAP));
  assert_true(huge_spend(&state, 31 * MIB));
  assert_true(huge_spend(&state, 30 * MIB)); /* the last may be longer than what is left */
  assert_false(huge_spend(&state, MIB));
  assert_false(huge_spend(&state, PAGE));
  assert_true(huge_spend(&state, PAGE + 1)); /* lent */
  assert_true(huge_spend(&state, HEAP));
  assert_false(huge_spend(&state, HEAP));
  assert_true(huge_note_written(&state, MIB, MIB, 5 * MIB)); /* no more than the heap is good for */
  assert_int_equal(state.earned_bytes, 20 * MIB);
  assert_int_equal(state.lent_bytes, 5 * MIB);
  assert_true(huge_note_written(&state, MIB, MIB, 3 * MIB)); /* what was earned stays */
  assert_false(huge_note_written(&state, 0, MIB, 10 * MIB));
  assert_int_equal(state.earned_bytes, 20 * MIB);
  assert_true(huge_note_written(&state, SIZE_MAX, SIZE_MAX, HEAP));
  assert_int_equal(state.earned_bytes, 4 * HEAP);
}

/* Whatever comes: a back-off is at least its first length, at most five minutes, and ends. */
HUGE_TEST(back_offs_stay_in_their_bounds) {
  uint64_t seed = UNIT_SEED, now = START;
  for (unsigned i = 0; i < 20000; i++) {
    bool before = wanted(now);
    huge_note_stall(&state, test_random(&seed) >> (test_random(&seed) % 64), now);
    if (before && !wanted(now)) {
      assert_false(wanted(now + HUGE_STALL_SPAN_MS - 1));
      assert_true(wanted(now + 300000));
    }
    assert_true(state.span_ms <= 300000);
    now += test_random(&seed) % 5000;
  }
}

/* Moves take a 64th of the time at most, and never save up for more than 32 ms. */
UNIT_TEST(moves_have_their_share_of_the_time) {
  uint64_t credit_ns = 0, worked_ns = 0, seed = UNIT_SEED;
  for (unsigned i = 0; i < 20000; i++) {
    uint64_t elapsed_ns = test_random(&seed) >> (test_random(&seed) % 64), before_ns = credit_ns;
    credit_ns = collapse_credit_ns(credit_ns, elapsed_ns);
    assert_true(credit_ns >= before_ns && credit_ns <= COLLAPSE_NS_MAX);
    assert_true(credit_ns - before_ns <= elapsed_ns / 64);
    credit_ns -= test_random(&seed) % (credit_ns + 1);
  }
  for (credit_ns = 0; worked_ns < 64 * COLLAPSE_NS_MAX; worked_ns += 6400)
    credit_ns = collapse_credit_ns(credit_ns, 6400);
  assert_int_equal(credit_ns, COLLAPSE_NS_MAX);
}

UNIT_TEST(passes_that_find_nothing_wait_longer) {
  uint64_t rest_ms = 0, waits = 0;
  for (; rest_ms < COLLAPSE_REST_MS_MAX && waits < 100; waits++) {
    uint64_t before_ms = rest_ms;
    rest_ms = collapse_rest_ms(rest_ms, false);
    assert_true(rest_ms > before_ms && rest_ms >= COLLAPSE_REST_MS_MIN);
  }
  assert_int_equal(collapse_rest_ms(rest_ms, false), COLLAPSE_REST_MS_MAX);
  assert_int_equal(collapse_rest_ms(rest_ms, true), COLLAPSE_REST_MS_MIN);
}

UNIT_MAIN()
