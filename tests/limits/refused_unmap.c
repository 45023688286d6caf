/* The kernel joins neighbours to one mapping, and refuses to unmap a part of it while the process has as many mappings
 * as it may. The freed parts go once it has fewer. */
#include <sys/mman.h>

#include "mixed.h"
#include "use_up.h"

/* The blocks' mappings are whole multiples of 2 MiB, so the kernel puts them side by side. */
static const char *const option_sets[] = {
    "HAKMEM_PROFILE=balanced",
    "HAKMEM_PROFILE=lean",
};
#define OPTION_SETS (sizeof option_sets / sizeof option_sets[0])
#define BLOCKS 24
#define SIZE (128 * MIB - 20000)

static void *blocks[BLOCKS];

static void work(const char *options) {
  t_free(t_malloc(100));
  long before_kib = test_status("VmSize:");
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = CHECK_GOT(t_malloc(SIZE));
  char *range = use_up_mappings();
  for (int i = 0; i < BLOCKS; i++)
    t_free(blocks[i * 7 % BLOCKS]);
  CHECK(munmap(range, USED_UP_BYTES) == 0);
  t_trim(0);
  long left_mib = (test_status("VmSize:") - before_kib) / 1024;
  printf("refused unmap, %s: %ld MiB left\n", options, left_mib);
  fflush(stdout);
  CHECK_SAY(left_mib < (long)(SIZE / MIB), "%s: %ld MiB left", options, left_mib);
}

static void nothing(char **argv) {}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(TEST_SANITIZED, "a sanitizer needs mappings of its own");
  mixed_in_sets(option_sets, OPTION_SETS, argv, nothing, work);
}
