/* The number of mappings stays small, whatever is allocated, freed and given back: the kernel allows 65,530
 * a process, and a heap that splits its mappings runs into that long before memory is out. */
#include "../heap_api.h"

#define BLOCKS 40000
#define LARGE_BLOCKS 400

static char *blocks[BLOCKS], *large[LARGE_BLOCKS];

static char *block_make(size_t size) {
  char *block = CHECK_GOT(t_malloc(size));
  block[0] = block[size - 1] = 1;
  return block;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  long before = test_mappings(), most = 0;
  uint64_t seed = test_seed;
  for (long round = test_rounds(20, 20); round > 0; round--) {
    for (int i = 0; i < BLOCKS; i++) {
      if (test_random(&seed) % 3 == 0)
        continue;
      t_free(blocks[i]);
      blocks[i] = test_random(&seed) % 3 ? block_make(test_random(&seed) % 9000 + 1) : NULL;
    }
    for (int i = 0; i < LARGE_BLOCKS; i++) {
      t_free(large[i]);
      large[i] = test_random(&seed) % 2 ? block_make(test_random(&seed) % 3000000 + 1) : NULL;
    }
    if (round % 4 == 0)
      t_trim(0);
    long now = test_mappings() - before;
    most = now > most ? now : most;
  }
  /* A live large block may be a mapping of its own, with one beside it that is kept for reuse. */
  CHECK_SAY(most < 2 * LARGE_BLOCKS + 100, "%ld mappings more", most);
  t_free_all(blocks, BLOCKS);
  t_free_all(large, LARGE_BLOCKS);
  t_trim(0);
  long after = test_mappings() - before;
  CHECK_SAY(after < 100, "%ld mappings more after all was freed", after);
  printf("mappings: ok (%ld at most, %ld at the end)\n", most, after);
}
