/* A program that changed the pages of a block and freed it without changing them back: once free memory was given back
 * to the system, whoever gets it can use it, the child of a fork too.
 *     pages_changed [unforked|protected]
 * With a word, a block with such pages comes first and is not given back. Then nobody can use it, which is this test's
 * control. */
#include <stdbool.h>
#include <sys/mman.h>

#include "../child.h"
#include "../heap_api.h"

static size_t size;

static void use(void) {
  for (int i = 0; i < 4; i++) {
    char *block = CHECK_GOT(t_malloc(size));
    memset(block, 3, size);
  }
}

int main(int argc, char **argv) {
  bool is_kept = argc > 1, keeps_protected = is_kept && strcmp(argv[1], "protected") == 0;
  test_begin(argc, argv);
  for (size = 2 * MIB; size < 80 * MIB; size *= 2) {
    for (int is_protected = keeps_protected; is_protected < 2; is_protected++) {
      char *block = CHECK_GOT(t_aligned_alloc(4096, size));
      memset(block, 1, size);
      CHECK((is_protected ? mprotect(block, size, PROT_NONE) : madvise(block, size, MADV_DONTFORK)) == 0);
      t_free(block);
      if (!is_kept)
        t_trim(0);
      test_in_child(use);
    }
  }
}
