/* All usable bytes of a block may be written: neighbours, and the block after realloc, do not notice. */
#include "../heap_api.h"

#define COUNT 400

int main(int argc, char **argv) {
  test_begin(argc, argv);
  CHECK(t_usable_size(NULL) == 0);
  for (size_t size = 0; size < 3000000; size = size < 200 ? size + 1 : size * 9 / 8) {
    int count = size < 5000 ? COUNT : 8;
    unsigned char *blocks[COUNT];
    for (int i = 0; i < count; i++) {
      blocks[i] = CHECK_GOT(i % 2 ? t_malloc(size) : t_calloc(1, size));
      size_t usable = t_usable_size(blocks[i]);
      CHECK_SAY(usable >= size, "%zu of %zu", usable, size);
      memset(blocks[i], i, usable);
      CHECK(t_usable_size(blocks[i]) == usable);
    }
    for (int i = 0; i < count; i++) {
      size_t usable = t_usable_size(blocks[i]);
      for (size_t j = 0; j < usable; j += usable > 100000 ? 997 : 1)
        CHECK(blocks[i][j] == (unsigned char)i);
      t_free(blocks[i]);
    }
  }
}
