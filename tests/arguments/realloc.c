/* realloc at its corners: NULL, zero, up and down through every scale, in place or moved. */
#include "../heap_api.h"

/* Byte i of a block is i * 7 + i / 256, which comes again after 64 KiB. */
static unsigned char contents[1 << 16];

static size_t up_to(size_t from, size_t to) {
  size_t left = sizeof contents - from % sizeof contents;
  return to - from < left ? to - from : left;
}

static void fill(unsigned char *block, size_t from, size_t to) {
  for (; from < to; from += up_to(from, to))
    memcpy(block + from, contents + from % sizeof contents, up_to(from, to));
}

static void verify(const unsigned char *block, size_t size) {
  for (size_t i = 0; i < size; i += up_to(i, size))
    CHECK_SAY(memcmp(block + i, contents + i % sizeof contents, up_to(i, size)) == 0, "behind %zu of %zu", i, size);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  for (size_t i = 0; i < sizeof contents; i++)
    contents[i] = (unsigned char)(i * 7 + (i >> 8));
  unsigned char *block = CHECK_GOT(t_realloc(NULL, 100));
  errno = 0;
  CHECK(t_realloc(block, 0) == NULL); /* frees, as glibc */
  CHECK(errno == 0);
  block = CHECK_GOT(t_realloc(NULL, 0));
  t_free(block);
  block = t_reallocarray(NULL, 10, 10);
  CHECK(block && t_usable_size(block) >= 100);
  fill(block, 0, 100);
  block = CHECK_GOT(t_reallocarray(block, 100, 100));
  verify(block, 100);
  t_free(block);

  /* The same size, and any size up to the usable one, always works and keeps the contents. */
  for (size_t size = 1; size < 5000000; size = size * 5 / 4 + 1) {
    block = CHECK_GOT(t_malloc(size));
    fill(block, 0, size);
    size_t usable = t_usable_size(block);
    block = t_realloc(block, usable);
    CHECK(block && t_usable_size(block) >= usable);
    verify(block, size);
    block = CHECK_GOT(t_realloc(block, size));
    verify(block, size);
    t_free(block);
  }
  /* No class is smaller than the smallest: its blocks stay where they are. */
  block = CHECK_GOT(t_malloc(1));
  for (size_t size = t_usable_size(block); size > 0; size--)
    CHECK_SAY(t_realloc(block, size) == block, "moved for %zu bytes", size);
  t_free(block);
  /* Grown in steps from 1 byte to 24 MiB and shrunk back: contents follow. */
  size_t size = 1;
  block = CHECK_GOT(t_malloc(size));
  fill(block, 0, size);
  while (size < (size_t)24 << 20) {
    size_t next = size + size / 2 + 1;
    block = t_realloc(block, next);
    CHECK(block && t_usable_size(block) >= next);
    verify(block, size);
    fill(block, size, next);
    size = next;
  }
  while (size > 1) {
    size = size * 2 / 3;
    block = t_realloc(block, size);
    CHECK(block && t_usable_size(block) >= size);
    verify(block, size);
  }
  t_free(block);
  /* Small appends, as buffers grow, with other blocks in between so that few grow in place. */
  void *others[64] = {0};
  block = t_malloc(1);
  fill(block, 0, 1);
  for (size = 1; size < 40000; size += 13) {
    t_free(others[size % 64]);
    others[size % 64] = t_malloc(size);
    block = CHECK_GOT(t_realloc(block, size + 13));
    fill(block, size, size + 13);
  }
  verify(block, size);
  t_free(block);
  t_free_all(others, 64);
  /* A shrunken block does not keep the memory of the large one. */
  long before = test_rss_kib();
  enum { SHRUNK = 40 };
  void *shrunk[SHRUNK];
  for (int i = 0; i < SHRUNK; i++) {
    shrunk[i] = CHECK_GOT(t_malloc(2000000));
    memset(shrunk[i], 1, 2000000);
    shrunk[i] = t_realloc(shrunk[i], 100);
    CHECK(shrunk[i] && *(char *)shrunk[i] == 1);
  }
  long grown = test_rss_kib() - before;
  CHECK_SAY(!TEST_RSS_COUNTS || grown < 30000, "%d blocks of 100 bytes hold %ld KiB", SHRUNK, grown);
  t_free_all(shrunk, SHRUNK);
}
