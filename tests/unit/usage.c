/* usage: where the limit of a control group counts what is resident, what was given out a moment ago counts besides, as
 * long as it may be untouched, and no longer. The group and the resident bytes are made up.
 */
#include "tree.h"

#define MIB ((size_t)1 << 20)
#define LIMIT (960 * MIB) /* of the group's GiB, without the margin */

static uint64_t now_ms = 1000;
TEST_WRAP(uint64_t, os_milliseconds, void) { return now_ms; }

/* Before unit_prepare asks. */
__attribute__((constructor(1000))) static void group_make(void) {
  tree_made();
  put("/proc/self/cgroup", "0::/group\n");
  put("/proc/self/mountinfo", "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  put("/sys/fs/cgroup/group/memory.max", "1073741824\n");
}

static void become_resident(size_t bytes) {
  char text[64];
  snprintf(text, sizeof text, "1000000 %zu 0 0 0 0 0\n", bytes / os_page_bytes());
  put("/proc/self/statm", text);
  assert_true(usage_look());
}

static bool fits(size_t bytes) {
  bool is_promised = usage_reserve(bytes);
  if (is_promised)
    usage_move(USAGE_PROMISED, USAGE_NOWHERE, bytes);
  return is_promised;
}

/* All of the limit is held, so the resident bytes decide. */
static void hold_all(bool holds) {
  if (holds)
    usage_move(USAGE_NOWHERE, USAGE_LARGE, LIMIT);
  else
    usage_move(USAGE_LARGE, USAGE_NOWHERE, LIMIT);
}

UNIT_TEST(what_was_given_out_counts_until_it_is_touched) {
  assert_int_equal(usage_limit(), LIMIT);
  hold_all(true);
  become_resident(100 * MIB);
  assert_true(fits(700 * MIB));
  assert_false(fits(200 * MIB)); /* 700 may come */
  now_ms += 101;
  become_resident(100 * MIB);
  assert_false(fits(200 * MIB));
  now_ms += 101;
  become_resident(100 * MIB);
  assert_true(fits(200 * MIB));
  hold_all(false);
}

/* The 700 MiB are among the resident bytes since long. */
UNIT_TEST(what_was_given_out_before_a_pause_does_not_count_again) {
  now_ms += 10000;
  hold_all(true);
  become_resident(100 * MIB);
  assert_true(fits(700 * MIB));
  now_ms += 10000;
  become_resident(800 * MIB);
  assert_true(fits(100 * MIB));
  assert_false(fits(100 * MIB));
  hold_all(false);
}

/* A signal handler that interrupts a purge forks. */
static bool handler_forks;
TEST_WRAP(bool, os_purge, void *address, size_t size) {
  bool is_done = __real_os_purge(address, size);
  if (handler_forks)
    usage_in_child();
  return is_done;
}

UNIT_TEST(a_child_of_a_fork_in_a_purge_has_no_bytes_on_their_way) {
  now_ms += 10000;
  char *pages = os_map(MIB, os_page_bytes());
  assert_non_null(pages);
  hold_all(true);
  become_resident(100 * MIB);
  handler_forks = true;
  assert_int_equal(pages_purge(pages, MIB), PURGE_GONE);
  handler_forks = false;
  become_resident(100 * MIB);
  assert_false(fits(LIMIT - 100 * MIB + 1));
  assert_true(fits(LIMIT - 100 * MIB));
  hold_all(false);
  os_unmap(pages, MIB);
}

static int group_end(void **unused) {
  (void)unused;
  tree_end();
  return 0;
}

int main(void) { return unit_run(NULL, group_end); }
