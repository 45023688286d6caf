/* Under a limit of many GiB blocks are not packed, which takes many times as long (docs/decisions/0022), while many GiB
 * are left: a third of the limit is held. With the argument `near` less than 4 GiB are left, and the check fails. */
#include <sys/resource.h>

#include "../heap_api.h"
#include "../reclaim/again.h"

#define LIMIT_GIB 48
#define LIMIT_NEAR_GIB 20
#define HELD_GIB 17
#define GIB ((size_t)1 << 30)
#define SIZE ((size_t)70000) /* packed it has little more, else whole units of 64 KiB */

/* The library asks for the limit at its start. */
static void begin_under_limit(size_t bytes, char **argv) {
  const char *const options[] = {NULL};
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
    test_skip("a lower limit is in force");
  limit.rlim_cur = bytes;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  test_again_with(argv, options);
}

int main(int argc, char **argv) {
  size_t limit_gib = argc > 1 && strcmp(argv[1], "near") == 0 ? LIMIT_NEAR_GIB : LIMIT_GIB;
  begin_under_limit(limit_gib * GIB, argv);
  test_begin(argc, argv);
  static char *held[HELD_GIB];
  for (int i = 0; i < HELD_GIB; i++) {
    held[i] = t_malloc(GIB); /* address space only: nothing is written */
    if (held[i] == NULL)
      test_skip("the system commits too little memory");
  }
  char *block = t_malloc(SIZE);
  CHECK(block != NULL);
  size_t bytes = t_usable_size(block);
  CHECK_SAY(bytes >= SIZE + SIZE / 4, "%zu usable bytes", bytes);
  t_free(block);
  for (int i = 0; i < HELD_GIB; i++)
    t_free(held[i]);
  puts("limit far: ok");
  return 0;
}
