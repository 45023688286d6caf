/* A request that is long beside what the program holds is refused. That says nothing about shorter ones: they are not
 * packed, which takes many times as long (docs/decisions/0022). With the argument `short` the refused request is short
 * beside what is held, and the checks fail. */
#include <sys/resource.h>

#include "../heap_api.h"

#define LIMIT_BYTES ((size_t)64 << 30)
#define REFUSED_BYTES ((size_t)100 << 30)
#define HELD_BYTES (8 * MIB)
#define SIZE ((size_t)70000) /* packed it has little more, else whole units of 64 KiB */

static void check_not_packed(void) {
  char *block = t_malloc(SIZE);
  CHECK(block != NULL);
  size_t bytes = t_usable_size(block);
  t_free(block);
  CHECK_SAY(bytes >= SIZE + SIZE / 4, "%zu usable bytes", bytes);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  int is_short = argc > 1 && strcmp(argv[1], "short") == 0;
  char *held = t_malloc(HELD_BYTES);
  CHECK(held != NULL);
  memset(held, 1, HELD_BYTES);
  check_not_packed();
  struct rlimit limit, lower = {is_short ? HELD_BYTES : LIMIT_BYTES, LIMIT_BYTES};
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  lower.rlim_max = limit.rlim_max;
  test_skip_if(setrlimit(RLIMIT_AS, &lower) != 0, "a lower limit is in force");
  CHECK(t_malloc(is_short ? 2 * HELD_BYTES : REFUSED_BYTES) == NULL && errno == ENOMEM);
  if (!is_short)
    CHECK(t_memalign(test_opaque_size((size_t)1 << 52), 100) == NULL && errno == ENOMEM);
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  check_not_packed();
  t_free(held);
}
