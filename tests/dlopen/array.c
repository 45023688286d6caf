/* Another malloc stands before hakmem's in the process, and lacks reallocarray: its blocks can be resized by hakmem's,
 * and it can free what that gives. With libc's it can. */
#include <stdlib.h>

#include "../check.h"

int main(int argc, char **argv) {
  test_begin(argc, argv);
  char *made = malloc(100), *fresh = test_opaque(reallocarray(NULL, 10, 10));
  CHECK(made != NULL && fresh != NULL);
  memset(made, 7, 100);
  made = test_opaque(reallocarray(made, 100, 10));
  CHECK(made != NULL && made[99] == 7);
  free(made);
  free(fresh);
  volatile size_t many = SIZE_MAX / 2;
  CHECK(reallocarray(NULL, many, 3) == NULL && errno == ENOMEM);
}
