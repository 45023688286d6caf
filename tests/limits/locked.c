/* mlockall: what is mapped is resident from then on, and counts against RLIMIT_MEMLOCK. The first block makes a program
 * little bigger, and under a limit of 8 MiB a good part of it can be used. */
#include <grp.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "../heap_api.h"

#define BLOCK_BYTES 10000
#define BLOCKS_MIN 240

static void lock_all(void) {
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
    CHECK_SAY(errno != ENOMEM, "more is reserved than may be locked");
    test_skip("memory may not be locked here");
  }
}

static void first_block(void) {
  lock_all();
  CHECK(t_malloc(100) != NULL);
  long resident_kib = test_rss_kib();
  CHECK_SAY(resident_kib < 9 * 1024, "%ld KiB resident", resident_kib);
}

/* Before the first block: what is reserved for it counts. */
static void limit_and_lock(void) {
  struct rlimit limit = {8 * MIB, 8 * MIB};
  CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  if (geteuid() == 0) /* for whom there is no limit */
    CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
  lock_all();
}

#define SIZES 1000

/* Preloaded, what is only reserved goes before, and what is free. */
static void lock_late(void) {
  static void *sizes[SIZES];
  for (size_t i = 0; i < SIZES; i++)
    sizes[i] = CHECK_GOT(t_malloc(3 * i));
  t_free_all(sizes, SIZES);
  char *block = CHECK_GOT(t_malloc(100));
  block[0] = 1;
  limit_and_lock();
  CHECK(block[0] == 1);
}

static void limited(void) {
  int count = 0;
  for (char *block; (block = t_malloc(BLOCK_BYTES)) != NULL; count++)
    memset(block, 1, BLOCK_BYTES);
  CHECK(errno == ENOMEM);
  CHECK_SAY(count >= BLOCKS_MIN, "%d blocks of %d bytes under a limit of 8 MiB", count, BLOCK_BYTES);
}

int main(int argc, char **argv) {
  bool is_late = argc > 1 && strcmp(argv[1], "late") == 0; /* after the first block */
  bool is_limited = argc > 1 && strcmp(argv[1], "limited") == 0;
  test_skip_if(TEST_SANITIZED, "a sanitizer's shadow would be locked, too");
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  test_skip_if(limit.rlim_max < 8 * MIB && geteuid() != 0, "less than 8 MiB may be locked here");
  if (is_limited)
    limit_and_lock();
  test_begin(argc, argv);
  if (is_late)
    lock_late();
  if (is_limited || is_late)
    limited();
  else
    first_block();
}
