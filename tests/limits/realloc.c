/* A realloc that RLIMIT_DATA refuses leaves the block and the address space as they were. */
#include <sys/resource.h>

#include "../heap_api.h"

#define BLOCK_BYTES (64 * MIB)
#define TOO_MUCH (1024 * MIB)
#define REFUSALS 50
#define SLACK_KIB (16 * 1024) /* tables */

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(TEST_SANITIZED, "a sanitizer maps memory of its own");
  char *block = CHECK_GOT(t_malloc(BLOCK_BYTES));
  memset(block, 7, BLOCK_BYTES);
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_DATA, &limit) == 0);
  limit.rlim_cur = 400 * MIB;
  CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  long before_kib = test_status("VmSize:");
  for (int i = 0; i < REFUSALS; i++) {
    errno = 0;
    CHECK(test_opaque(t_realloc(block, TOO_MUCH)) == NULL && errno == ENOMEM);
  }
  long grown_kib = test_status("VmSize:") - before_kib;
  CHECK_SAY(grown_kib < SLACK_KIB, "the address space grew by %ld KiB", grown_kib);
  for (size_t i = 0; i < BLOCK_BYTES; i += 1000)
    CHECK(block[i] == 7);
  /* What there is room for can still be had. */
  block = t_realloc(block, 2 * BLOCK_BYTES);
  CHECK(block != NULL && block[BLOCK_BYTES - 1] == 7);
  t_free(block);
}
