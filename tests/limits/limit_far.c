/* Under a limit of many GiB blocks are not packed, which takes many times as long (docs/decisions/0022), while many GiB
 * are left. The first argument: `as`, a limit of the system, of which a third is held; `own`, the library's own, of
 * which half is. With a second argument `near` less than 4 GiB are left, and the check fails. */
#include <sys/resource.h>

#include "../heap_api.h"
#include "../reclaim/again.h"

#define LIMIT_GIB 48
#define NEAR_GIB 20
#define OWN_MIB "32768"
#define OWN_NEAR_MIB "20480"
#define HELD_GIB 17
#define GIB ((size_t)1 << 30)
#define SIZE ((size_t)70000) /* packed it has little more, else whole units of 64 KiB */

/* The library asks for the limit at its start. */
static void limit_of_system(size_t bytes) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
    test_skip("a lower limit is in force");
  limit.rlim_cur = bytes;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main(int argc, char **argv) {
  int is_own = argc > 1 && strcmp(argv[1], "own") == 0, is_near = argc > 2 && strcmp(argv[2], "near") == 0;
  const char *const none[] = {NULL};
  const char *const own[] = {"HAKMEM_LIMIT_MB", is_near ? OWN_NEAR_MIB : OWN_MIB, NULL};
  if (!is_own)
    limit_of_system((is_near ? NEAR_GIB : LIMIT_GIB) * GIB);
  test_again_with(argv, is_own ? own : none);
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
