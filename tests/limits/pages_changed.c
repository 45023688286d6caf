/* A program that changed the pages of a block and freed it without changing them back: once free memory was given back
 * to the system, whoever gets it can use it, the child of a fork too, which has its content.
 *     pages_changed [unforked|protected|wiped]
 * With a word, a block with such pages comes first and is not given back. Then nobody can use it, which is this test's
 * control. */
#include <stdbool.h>
#include <sys/mman.h>

#include "../child.h"
#include "../heap_api.h"

#define BLOCKS 4

static const char *const changes[] = {"unforked", "protected", "wiped"};
#define CHANGES (sizeof changes / sizeof changes[0])

static size_t size;
static char *blocks[BLOCKS];

static void use(void) {
  for (int i = 0; i < BLOCKS; i++) {
    char *block = CHECK_GOT(t_malloc(size));
    memset(block, 3, size);
  }
}

static void look(void) {
  for (int i = 0; i < BLOCKS; i++)
    CHECK(blocks[i][0] == 4 && blocks[i][size / 2] == 4 && blocks[i][size - 1] == 4);
}

static int change_pages(char *block, size_t change) {
  switch (change) {
  case 0:
    return madvise(block, size, MADV_DONTFORK);
  case 1:
    return mprotect(block, size, PROT_NONE);
  default:
    return madvise(block, size, MADV_WIPEONFORK);
  }
}

int main(int argc, char **argv) {
  size_t first = 0;
  bool is_kept = argc > 1;
  while (is_kept && strcmp(argv[1], changes[first]) != 0)
    CHECK(++first < CHANGES);
  test_begin(argc, argv);
  for (size = 2 * MIB; size < 80 * MIB; size *= 2) {
    for (size_t change = first; change < CHANGES; change++) {
      char *block = CHECK_GOT(t_aligned_alloc(4096, size));
      memset(block, 1, size);
      CHECK(change_pages(block, change) == 0);
      t_free(block);
      if (!is_kept)
        t_trim(0);
      test_in_child(use);
      for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = CHECK_GOT(t_malloc(size)), 4, size);
      test_in_child(look);
      for (int i = 0; i < BLOCKS; i++)
        t_free(blocks[i]);
    }
  }
}
