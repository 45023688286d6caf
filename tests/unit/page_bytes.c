/* page_bytes: OS pages of 4, 16 and 64 KiB, of which the machine has only one size. os_page_bytes says
 * the others, and everything that is asked of the system must be in whole pages of that size. */
#include "unit.h"

#include <malloc.h>

static size_t page_bytes = 4096;
static long calls;
static long calls_in_parts; /* that were not in whole pages */

static void look(const void *address, size_t size) {
  calls++;
  calls_in_parts += (((uintptr_t)address | size) & (page_bytes - 1)) != 0;
}

TEST_WRAP(size_t, os_page_bytes, void) { return page_bytes; }
TEST_WRAP(void *, os_map, size_t size, size_t alignment) {
  look((void *)alignment, size);
  return __real_os_map(size, alignment);
}
TEST_WRAP(void *, os_reserve, size_t size, size_t alignment) {
  look((void *)alignment, size);
  return __real_os_reserve(size, alignment);
}
TEST_WRAP(bool, os_commit, void *address, size_t size) {
  look(address, size);
  return __real_os_commit(address, size);
}
TEST_WRAP(bool, os_purge, void *address, size_t size) {
  look(address, size);
  return __real_os_purge(address, size);
}
TEST_WRAP(bool, os_unmap, void *address, size_t size) {
  look(address, size);
  return __real_os_unmap(address, size);
}
TEST_WRAP(bool, os_resize, void *address, size_t size, size_t size_wanted) {
  look(address, size | size_wanted);
  return __real_os_resize(address, size, size_wanted);
}
TEST_WRAP(void *, os_move, void *address, size_t size, size_t size_wanted) {
  look(address, size | size_wanted);
  return __real_os_move(address, size, size_wanted);
}

static void use_tables(void) {
  for (unsigned i = 0; i < 40; i++) {
    unsigned order = METADATA_ORDER_MIN + i % 12;
    char *piece = metadata_take(order);
    CHECK(piece != NULL && ((uintptr_t)piece & (CACHE_LINE - 1)) == 0);
    memset(piece, 1, (size_t)1 << order);
    if (i % 3 == 0)
      metadata_give(piece, order);
    char *zero = metadata_take_forever(5000);
    for (unsigned b = 0; b < 5000; b++)
      CHECK(zero[b] == 0);
    memset(zero, 1, 5000);
  }
  for (uintptr_t leaf = 50; leaf < 54; leaf++) {
    CHECK(map_cover((void *)(leaf << HAK_LEAF_SHIFT), UNIT_BYTES));
    CHECK(((uintptr_t)map_leaf((void *)(leaf << HAK_LEAF_SHIFT)) & (CACHE_LINE - 1)) == 0);
    CHECK(map_entry((void *)(leaf << HAK_LEAF_SHIFT)) == ENTRY_NONE);
  }
}

static void use_heap(void) {
  enum { COUNT = 3000 };
  static unsigned char *blocks[COUNT];
  uint64_t seed = UNIT_SEED;
  for (unsigned i = 0; i < COUNT; i++) {
    size_t size = 16 + test_random(&seed) % (i % 30 ? 4000 : 900000);
    blocks[i] = CHECK_GOT(hak_malloc(size));
    memset(blocks[i], (int)i, size);
  }
  for (unsigned i = 0; i < COUNT; i++)
    if (i % 8) {
      hak_free(blocks[i]);
      blocks[i] = NULL;
    }
  hak_trim(0); /* the pages in holes of slabs, too */
  for (unsigned i = 0; i < COUNT; i += 8) {
    size_t bytes = min_size(hak_usable_size(blocks[i]), 16);
    for (size_t b = 0; b < bytes; b++)
      CHECK(blocks[i][b] == (unsigned char)i);
    blocks[i] = hak_realloc(blocks[i], 500000);
    CHECK(blocks[i] != NULL && blocks[i][15] == (unsigned char)i);
    blocks[i] = hak_realloc(blocks[i], 2000000 + i * 100);
    CHECK(blocks[i] != NULL && blocks[i][15] == (unsigned char)i);
    hak_free(blocks[i]);
  }
  for (size_t alignment = 16; alignment <= 1 << 22; alignment *= 2) {
    void *block = test_opaque(hak_aligned_alloc(alignment, alignment + 7));
    CHECK(block != NULL && ((uintptr_t)block & (alignment - 1)) == 0);
    hak_free(block);
  }
  hak_trim(0);
}

/* Linked with the whole family: valloc and pvalloc are ours then. */
static void use_family(void) {
#ifdef UNIT_FAMILY
  const size_t sizes[] = {0, 1, 4095, 4096, 4097, 65537, 300000};
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    void *block = test_opaque(valloc(sizes[i]));
    CHECK(block != NULL && ((uintptr_t)block & (page_bytes - 1)) == 0);
    CHECK(malloc_usable_size(block) >= sizes[i]);
    free(block);
    block = test_opaque(pvalloc(sizes[i]));
    CHECK(block != NULL && ((uintptr_t)block & (page_bytes - 1)) == 0);
    CHECK(malloc_usable_size(block) >= round_up(sizes[i], page_bytes));
    free(block);
  }
  errno = 0;
  CHECK(pvalloc(SIZE_MAX - 5) == NULL && errno == ENOMEM);
  CHECK(pvalloc(PTRDIFF_MAX) == NULL && errno == ENOMEM);
#endif
}

static void work(void *page) {
  page_bytes = *(size_t *)page;
  calls = calls_in_parts = 0;
  use_tables();
  use_heap();
  use_family();
  CHECK(calls > 20);
  CHECK(calls_in_parts == 0);
}

static void whole_pages_of(size_t bytes) { unit_passes_in_child(work, &bytes); }

UNIT_TEST(pages_of_4_kib) { whole_pages_of(4096); }
UNIT_TEST(pages_of_16_kib) { whole_pages_of(16384); }
UNIT_TEST(pages_of_64_kib) { whole_pages_of(65536); }

UNIT_MAIN(unit_alone())
