/* collapse: dense memory moves to huge pages: which rows, when, how often, and what the kernel may answer.
 *
 * Positive control: with `forgetful` nobody is told which pages were given back. The test must fail then.
 */
#include "unit.h"

#include "pages/collapse.h"
#include "pages/fresh.h"

#include <limits.h>

#define BLOCK_BYTES 1008u
#define BLOCKS (32 * MIB / BLOCK_BYTES)
#define ROWS_MIN 12u /* of the blocks' 16; the first and the last are used in part */

static uint64_t now_ms = 1000000, worked_ns, elapsed_ns, look_ns;
static bool is_forbidden, is_real, is_sparse, has_children;
static unsigned looks, moves;
static enum os_collapse answer;

TEST_WRAP(uint64_t, os_milliseconds, void) { return now_ms; }
TEST_WRAP(uint64_t, os_nanoseconds, void) { return elapsed_ns += look_ns; }
TEST_WRAP(uint64_t, os_nanoseconds_of, int clock) {
  return clock == CLOCK_PROCESS_CPUTIME_ID ? worked_ns : __real_os_nanoseconds_of(clock);
}
TEST_WRAP(bool, os_huge_is_forbidden, void) { return is_forbidden; }
TEST_WRAP(bool, os_has_children, void) { return has_children; }
TEST_WRAP(size_t, os_resident_bytes, const void *address, size_t size) {
  looks++;
  return is_real ? __real_os_resident_bytes(address, size) : is_sparse ? size - 4096 : size;
}
TEST_WRAP(enum os_collapse, os_huge_collapse, void *address, size_t size) {
  moves++;
  return is_real ? __real_os_huge_collapse(address, size) : answer;
}
TEST_WRAP(void, collapse_forget, const void *base, size_t bytes) {
  if (!unit_lies("forgetful"))
    __real_collapse_forget(base, bytes);
}

static char *blocks[BLOCKS];

static void fill(size_t first, size_t end) {
  for (size_t i = first; i < end; i++)
    blocks[i] = memset(UNIT_GOT(hak_malloc(BLOCK_BYTES)), (int)(i % 251), BLOCK_BYTES);
}
static void empty(size_t first, size_t end) {
  for (size_t i = first; i < end; i++)
    hak_free(blocks[i]);
  hak_trim(0);
}
static void check(size_t first, size_t end) {
  for (size_t i = first; i < end; i++)
    for (size_t at = 0; at < BLOCK_BYTES; at += BLOCK_BYTES / 4)
      assert_int_equal(blocks[i][at], (char)(i % 251));
}

/* Lets the process work for a second, and returns how many rows moved in the next call. */
static unsigned moves_after(uint64_t ms) {
  unsigned before = moves;
  now_ms += ms;
  worked_ns += 1000 * 1000 * 1000;
  collapse_some(NULL);
  return moves - before;
}
#define SOON_MS 200u
#define LONG_MS 16000u

static int all_filled(void **state) {
  (void)state;
  fill(0, BLOCKS);
  moves_after(LONG_MS); /* ends a pass that is under way */
  return 0;
}
static int all_empty(void **state) {
  (void)state;
  check(0, BLOCKS);
  empty(0, BLOCKS);
  answer = OS_COLLAPSED;
  is_forbidden = is_sparse = is_real = has_children = false;
  moves_after(LONG_MS);
  return 0;
}
#define COLLAPSE_TEST(test) UNIT_TEST_BETWEEN(test, all_filled, all_empty)

COLLAPSE_TEST(rows_move_that_were_dense_twice) {
  unsigned rows = moves_after(LONG_MS);
  assert_in_range(rows, ROWS_MIN, 32 * MIB / ROW_BYTES);
  assert_int_equal(process_counters.huge_collapses, rows);
  assert_int_equal(moves_after(SOON_MS) + moves_after(LONG_MS), 0);
}

COLLAPSE_TEST(sparse_rows_stay) {
  is_sparse = true;
  assert_int_equal(moves_after(LONG_MS) + moves_after(LONG_MS), 0);
  is_sparse = false; /* dense once, then twice */
  assert_int_equal(moves_after(LONG_MS), 0);
  assert_in_range(moves_after(SOON_MS), ROWS_MIN, UINT_MAX);
}

COLLAPSE_TEST(what_was_given_back_moves_again) {
  assert_in_range(moves_after(LONG_MS), ROWS_MIN, UINT_MAX);
  empty(BLOCKS / 4, BLOCKS / 4 * 3);
  is_sparse = true; /* the rows at both ends */
  assert_int_equal(moves_after(LONG_MS), 0);
  is_sparse = false;
  fill(BLOCKS / 4, BLOCKS / 4 * 3);
  assert_int_equal(moves_after(LONG_MS), 0);
  assert_in_range(moves_after(SOON_MS), ROWS_MIN / 2, UINT_MAX);
}

COLLAPSE_TEST(passes_that_find_nothing_get_rare) {
  answer = OS_COLLAPSE_BUSY;
  unsigned tries = 0;
  for (unsigned tenths = 0; tenths < 600; tenths++)
    tries += moves_after(100) > 0;
  assert_in_range(tries, 6, 12);
}

COLLAPSE_TEST(a_kernel_without_huge_pages_is_asked_once_in_a_pass) {
  answer = OS_COLLAPSE_SCARCE;
  assert_int_equal(moves_after(LONG_MS), 1);
  assert_int_equal(moves_after(LONG_MS), 1);
  answer = OS_COLLAPSED;
  assert_in_range(moves_after(LONG_MS), ROWS_MIN, UINT_MAX);
}

COLLAPSE_TEST(who_forbids_is_obeyed) {
  is_forbidden = true;
  collapse_prepare();
  assert_int_equal(moves_after(LONG_MS) + moves_after(LONG_MS), 0);
  is_forbidden = false;
  collapse_prepare();
  unit_option("HAKMEM_HUGE", "off");
  assert_int_equal(moves_after(LONG_MS) + moves_after(LONG_MS), 0);
  unit_option("HAKMEM_HUGE", "large");
  assert_in_range(moves_after(LONG_MS), ROWS_MIN, UINT_MAX);
}

static bool never(void) { return false; }

COLLAPSE_TEST(it_takes_a_share_of_the_time_that_the_process_works) {
  look_ns = 8 * 1000 * 1000; /* a 64th of a second is worth two looks */
  moves_after(LONG_MS);      /* uses up what was left */
  unsigned before = looks;
  moves_after(LONG_MS);
  assert_in_range(looks - before, 1, 3);
  before = looks;
  for (unsigned i = 0; i < 10; i++) {
    now_ms += LONG_MS;
    assert_false(collapse_some(NULL)); /* it slept */
  }
  worked_ns += 1000 * 1000 * 1000;
  assert_false(collapse_some(never));
  assert_int_equal(looks, before);
  look_ns = 0;
  while (moves_after(LONG_MS) > 0)
    ;
}

/* Of the kernel itself. */
COLLAPSE_TEST(the_contents_stay) {
  test_skip_if(TEST_EMULATED, "an emulator's pages are not the process's");
  is_real = true;
  moves_after(LONG_MS);
  moves_after(SOON_MS);
  check(0, BLOCKS);
}

COLLAPSE_TEST(what_a_child_may_share_stays) {
  has_children = true;
  fresh_before_fork();
  assert_int_equal(moves_after(LONG_MS) + moves_after(LONG_MS), 0);
  empty(BLOCKS / 4, BLOCKS / 4 * 3);
  fill(BLOCKS / 4, BLOCKS / 4 * 3);
  moves_after(LONG_MS);
  assert_in_range(moves_after(LONG_MS), ROWS_MIN / 2, ROWS_MIN);
}

/* Also what had moved before the fork: a write may have split it. */
COLLAPSE_TEST(all_moves_once_the_children_have_ended) {
  assert_in_range(moves_after(LONG_MS), ROWS_MIN, UINT_MAX);
  has_children = true;
  fresh_before_fork();
  assert_int_equal(moves_after(LONG_MS) + moves_after(SOON_MS), 0);
  assert_true(collapse_some(NULL)); /* the thread waits for them, for a minute */
  now_ms += 60 * 1000;
  assert_false(collapse_some(NULL));
  has_children = false;
  assert_in_range(moves_after(0), ROWS_MIN, UINT_MAX);
  assert_int_equal(moves_after(LONG_MS) + moves_after(LONG_MS), 0);
}

COLLAPSE_TEST(what_was_taken_after_a_fork_moves) {
  has_children = true;
  empty(0, BLOCKS);
  fresh_before_fork();
  fill(0, BLOCKS);
  moves_after(LONG_MS);
  assert_in_range(moves_after(SOON_MS), ROWS_MIN, UINT_MAX);
}

/* Pages of calloc that were only read are one page of zeros, which mincore takes for resident. */
COLLAPSE_TEST(large_objects_stay) {
  void *large[20];
  assert_in_range(moves_after(LONG_MS), ROWS_MIN, UINT_MAX);
  for (size_t i = 0; i < sizeof large / sizeof *large; i++)
    large[i] = UNIT_GOT(hak_malloc(3 * MIB));
  assert_int_equal(moves_after(LONG_MS) + moves_after(LONG_MS), 0);
  for (size_t i = 0; i < sizeof large / sizeof *large; i++)
    hak_free(large[i]);
}

/* As where the program has protected a page. */
COLLAPSE_TEST(rows_that_are_refused_do_not_stop_others) {
  answer = OS_COLLAPSE_REFUSED;
  assert_in_range(moves_after(LONG_MS), ROWS_MIN, UINT_MAX);
  answer = OS_COLLAPSED;
  assert_in_range(moves_after(LONG_MS), ROWS_MIN, UINT_MAX);
}

/* The parent lives. */
static void share_all(void *unused) {
  CHECK(moves_after(LONG_MS) + moves_after(SOON_MS) == 0);
  uint64_t batches = process_counters.hole_batches;
  empty(BLOCKS / 2, BLOCKS / 2 + 64); /* holes do not matter: the rest of the 2 MiB is shared still */
  CHECK(process_counters.hole_batches > batches);
  fill(BLOCKS / 2, BLOCKS / 2 + 64);
  CHECK(moves_after(LONG_MS) + moves_after(SOON_MS) == 0);
}
COLLAPSE_TEST(what_a_child_shares_with_its_parent_stays) { unit_passes_in_child(share_all, NULL); }

static void refuse_all(void *unused) {
  fill(0, BLOCKS);
  moves_after(LONG_MS);
  answer = OS_COLLAPSE_REFUSED;
  CHECK(moves_after(LONG_MS) == 8);
  answer = OS_COLLAPSED;
  CHECK(moves_after(LONG_MS) + moves_after(LONG_MS) == 0);
}
UNIT_TEST_FIRST(a_kernel_that_refuses_is_not_asked_for_ever) {
  unit_passes_in_child(refuse_all, NULL);
  fill(0, BLOCKS);
  empty(0, BLOCKS);
}

UNIT_MAIN({
  unit_alone();
  unit_option("HAKMEM_HUGE", "large");
})
