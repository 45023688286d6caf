/* thp: transparent huge pages are hakmem's decision, whatever the system's setting. All that hakmem maps refuses them,
 * until the huge-page policy asks for them. The kernel tells so in the flags of its mappings.
 *
 * Positive control: with `silent` the refusal does not reach the kernel. The test must fail then.
 */
#include "unit.h"

#include "tree.h"

#include "pages/huge.h"

static unsigned pages_asked; /* for which huge pages were asked */

TEST_WRAP(int, madvise, void *address, size_t size, int advice) {
  pages_asked += advice == MADV_HUGEPAGE && size == 2 * MIB;
  return unit_lies("silent") && advice == MADV_NOHUGEPAGE ? 0 : __real_madvise(address, size, advice);
}

/* Has the mapping that an address lies in this flag? */
static bool has_flag(const void *address, const char *flag) {
  FILE *file = fopen("/proc/self/smaps", "r");
  if (file == NULL)
    abort();
  static char line[4096];
  bool is_there = false, has = false, found = false;
  while (!found && fgets(line, sizeof line, file)) {
    char *end;
    uintptr_t start = strtoul(line, &end, 16);
    if (*end == '-')
      is_there = (uintptr_t)address >= start && (uintptr_t)address < strtoul(end + 1, NULL, 16);
    found = is_there && strncmp(line, "VmFlags:", 8) == 0;
    has = found && strstr(line, flag) != NULL;
  }
  fclose(file);
  assert_true(found);
  return has;
}

static void *touched(size_t size) {
  void *block = UNIT_GOT(hak_malloc(size));
  return memset(block, 1, size);
}

UNIT_TEST(all_that_is_mapped_refuses) {
  static const size_t sizes[] = {16, 5000, 200000, 1000000, 40000000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *block = touched(sizes[i]);
    assert_true(has_flag(block, " nh"));
    assert_true(has_flag(map_record(block), " nh"));
    hak_free(block);
  }
  void *array = metadata_take(METADATA_ORDER_MAX);
  assert_true(has_flag(array, " nh"));
  metadata_give(array, METADATA_ORDER_MAX);
  void *grown = touched(40000000);
  grown = hak_realloc(grown, 80000000);
  assert_true(has_flag(grown, " nh"));
  hak_free(grown);
}

/* With other pages a huge page is not 2 MiB, and hakmem asks for none. */
static void needs_small_pages(void) {
  unit_skip_if(os_page_bytes() != 4096, "hakmem asks for huge pages only where a page has 4 KiB");
}

/* Objects that are hardly written get none, however quick a first touch is. */
UNIT_TEST(sparse_objects_get_none) {
  needs_small_pages();
  unit_option("HAKMEM_HUGE", "large");
  for (unsigned i = 0; i < 100; i++) {
    char *object = UNIT_GOT(hak_malloc(4 * MIB));
    object[0] = 1;
    assert_false(has_flag(object, " hg"));
  }
  for (unsigned i = 0; i < 400; i++) /* the half of a short range */
    assert_false(has_flag(touched(UNIT_BYTES + 2048), " hg"));
}

/* A first touch that the machine's other work made slow stops huge pages for a while, the next one for longer. */
#define WAITS_MAX 300u
static void wait_a_little(void) { usleep(200000); }

/* Asks for blocks until slabs are on a huge page; writes the first byte of each. */
static char *blocks(size_t size, size_t bytes_max) {
  char *block = NULL;
  pages_asked = 0;
  for (size_t bytes = 0; bytes < bytes_max && pages_asked == 0; bytes += size) {
    block = UNIT_GOT(hak_malloc(size));
    block[0] = 1;
  }
  return block;
}

/* Blocks above a page may have pages that are never written. The range refuses huge pages again afterwards. */
UNIT_TEST(dense_slabs_are_on_huge_pages) {
  needs_small_pages();
  unit_option("HAKMEM_HUGE", "off");
  blocks(64, 48 * MIB);
  assert_int_equal(pages_asked, 0);
  unit_option("HAKMEM_HUGE", "large");
  blocks(12000, 48 * MIB);
  assert_int_equal(pages_asked, 0);
  char *block = blocks(64, 128 * MIB);
  for (unsigned waits = 0; waits < WAITS_MAX && pages_asked == 0; waits++) {
    wait_a_little();
    block = blocks(64, 4 * MIB);
  }
  assert_int_equal(pages_asked, 1);
  assert_true(has_flag(block, " nh"));
  assert_int_equal(os_resident_bytes((char *)round_down((uintptr_t)block, 2 * MIB), 2 * MIB), 2 * MIB);
}

/* Only the first touch of a huge page says something, and only that page is touched. */
UNIT_TEST(a_probe_touches_the_first_huge_page_that_begins) {
  char *base = UNIT_GOT(os_map(4 * MIB, 2 * MIB));
  huge_probe(base + UNIT_BYTES, 2 * MIB - UNIT_BYTES);
  assert_int_equal(os_resident_bytes(base, 4 * MIB), 0);
  huge_probe(base + UNIT_BYTES, 3 * MIB);
  assert_int_equal(os_resident_bytes(base, 2 * MIB), 0);
  assert_int_equal(os_resident_bytes(base + 2 * MIB, 2 * MIB), os_page_bytes());
  os_unmap(base, 4 * MIB);
}

/* Asks for objects until one is on huge pages. */
static bool policy_asks(void) {
  bool asked = false;
  for (unsigned i = 0; i < 64 + WAITS_MAX && !asked; i++) {
    if (i >= 64)
      wait_a_little();
    asked = has_flag(touched(MIB), " hg");
  }
  return asked;
}

/* The gaps between objects of a wide alignment would be resident, so these get none, before and after others that
 * do. */
UNIT_TEST(the_policy_asks) {
  needs_small_pages();
  unit_option("HAKMEM_HUGE", "large");
  assert_true(policy_asks());
  bool others_do = false;
  for (unsigned i = 0; i < WAITS_MAX && !others_do; i++) {
    bool are_asked_before = policy_asks();
    char *object = UNIT_GOT(hak_aligned_alloc(2 * MIB, 4 * MIB));
    object[0] = 1;
    assert_false(has_flag(object, " hg"));
    others_do = are_asked_before && has_flag(touched(MIB), " hg");
  }
  assert_true(others_do);
}

static void begin(void) {
  unit_alone();
  test_skip_if(access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0, "there are no transparent huge pages");
}

static int forget_tree(void **state) {
  (void)state;
  tree_end();
  return 0;
}

/* What the background thread asks for nevertheless is up to hakmem (pages/collapse.h). */
UNIT_TEST_BETWEEN(either_setting_forbids, NULL, forget_tree) {
  static const struct {
    const char *all, *of_2_mib; /* NULL: there is no such file */
    bool is_forbidden;
  } rows[] = {
      {NULL, NULL, false},
      {"always [madvise] never\n", NULL, false},
      {"always madvise [never]\n", NULL, true},
      {"always [madvise] never\n", "always [inherit] madvise never\n", false},
      {"[always] madvise never\n", "always inherit madvise [never]\n", true},
      {"always madvise [never]\n", "always [inherit] madvise never\n", true},
      {"always [madvise] never\n", "always inherit [madvise] never\n", false},
  };
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
    tree_made();
    if (rows[i].all != NULL)
      put("/sys/kernel/mm/transparent_hugepage/enabled", rows[i].all);
    if (rows[i].of_2_mib != NULL)
      put("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled", rows[i].of_2_mib);
    errno = 4711;
    assert_int_equal(os_huge_is_forbidden(), rows[i].is_forbidden);
    assert_int_equal(errno, 4711);
  }
}

UNIT_MAIN(begin())
