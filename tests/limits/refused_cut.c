/* An aligned mapping where the program has as many mappings as the system allows. The kernel joins a new mapping with
 * the program's, and then refuses to cut off what lies between both. No address space is lost by that. */
#include "../heap_api.h"
#include "use_up.h"

#define ALIGNMENT (64 * MIB)
#define SIZE (40 * MIB)
#define TURNS 10

/* Leaves a hole that a block fits in, but not at a multiple of ALIGNMENT, nor below its place. */
static void hole_make(void) {
  char *range = mmap(NULL, 3 * ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(range != MAP_FAILED);
  char *aligned = (char *)(((uintptr_t)range + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  CHECK(munmap(aligned + 4 * MIB, SIZE + 4 * MIB) == 0);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(TEST_SANITIZED, "a sanitizer needs mappings of its own");
  t_free(t_malloc(100));
  t_free(CHECK_GOT(t_memalign(ALIGNMENT, SIZE)));
  t_trim(0);
  hole_make();
  char *range = use_up_mappings();
  CHECK(munmap(range, 4096) == 0); /* makes room for one, below which the next lie */
  char *neighbour = mmap(NULL, SIZE + ALIGNMENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(neighbour != MAP_FAILED);
  long before_kib = test_status("VmSize:");
  for (int i = 0; i < TURNS; i++) {
    char *block = t_memalign(ALIGNMENT, SIZE);
    if (block != NULL) /* an aligned one may be a mapping too many, as the system placed the others */
      block[0] = block[SIZE - 1] = 1;
    t_free(block);
    t_trim(0);
  }
  long left_mib = (test_status("VmSize:") - before_kib) / 1024;
  printf("refused cut: %ld MiB left\n", left_mib);
  CHECK(munmap(range, USED_UP_BYTES) == 0);
  CHECK_SAY(left_mib < (long)(ALIGNMENT / MIB), "%ld MiB left", left_mib);
}
