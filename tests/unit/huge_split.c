/* huge_split: where the group has a limit, what is given back of a huge page is not charged any more.
 *
 * Positive control: with `whole` no huge page is split.
 */
#include "unit.h"

#include "../cgroup/group.h"

#define LIMIT_BYTES ((size_t)256 << 20)
#define PAGES 32u
#define BYTES (PAGES * ROW_BYTES)
#define OTHER_BYTES ((size_t)4 << 20) /* page tables, and pages that the kernel has ready for the group */

TEST_WRAP(void, os_huge_split, void *page) {
  if (!unit_lies("whole"))
    __real_os_huge_split(page);
}

/* Fills huge pages. */
static char *filled(void) {
  char *base = UNIT_GOT(os_map(BYTES, ROW_BYTES));
  os_huge(base, BYTES);
  memset(base, 1, BYTES);
  return base;
}

static void other_half_stays(const char *base, size_t offset) {
  for (unsigned i = 0; i < PAGES; i++)
    for (size_t at = 0; at < ROW_BYTES / 2; at += 1024)
      assert_int_equal(base[i * ROW_BYTES + offset + at], 1);
}

static size_t charged(void) { return group_charged(getenv("TEST_LIMITED")); }

UNIT_TEST(purged_halves_are_not_charged) {
  size_t before = charged();
  char *base = filled();
  assert_true(charged() > before + BYTES - OTHER_BYTES);
  for (unsigned i = 0; i < PAGES; i++) /* the first half, and the second */
    assert_int_equal(pages_purge(base + i * ROW_BYTES, ROW_BYTES / 2), PURGE_GONE);
  assert_true(charged() < before + BYTES / 2 + OTHER_BYTES);
  other_half_stays(base, ROW_BYTES / 2);
  assert_true(pages_unmap(base, BYTES));

  base = filled();
  for (unsigned i = 0; i < PAGES; i++)
    assert_int_equal(pages_purge(base + i * ROW_BYTES + ROW_BYTES / 2, ROW_BYTES / 2), PURGE_GONE);
  assert_true(charged() < before + BYTES / 2 + OTHER_BYTES);
  other_half_stays(base, 0);
  assert_true(pages_unmap(base, BYTES));
}

UNIT_TEST(unmapped_halves_are_not_charged) {
  size_t before = charged();
  char *base = filled();
  for (unsigned i = 0; i < PAGES; i++)
    assert_true(pages_unmap(base + i * ROW_BYTES, ROW_BYTES / 2));
  assert_true(charged() < before + BYTES / 2 + OTHER_BYTES);
  other_half_stays(base, ROW_BYTES / 2);
  for (unsigned i = 0; i < PAGES; i++)
    assert_true(pages_unmap(base + i * ROW_BYTES + ROW_BYTES / 2, ROW_BYTES / 2));
}

static bool has_huge_pages(void) {
  char modes[64] = "[never]";
  int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    modes[test_read(file, modes, sizeof modes - 1)] = 0;
    close(file);
  }
  return strstr(modes, "[never]") == NULL;
}

int main(int argc, char **argv) {
  struct group group;
  unit_word = argc > 1 ? argv[1] : "";
  if (!getenv("TEST_LIMITED")) {
    test_skip_if(TEST_SANITIZED || TEST_EMULATED, "a sanitizer or an emulator takes memory of its own");
    test_skip_if(!has_huge_pages(), "the system gives no huge pages");
    group_make(&group, LIMIT_BYTES);
    group_run(&group, argv);
  }
  usage_look();
  return unit_run(NULL, NULL);
}
