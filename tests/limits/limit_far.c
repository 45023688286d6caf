/* Under a limit of many GiB blocks are not packed, which takes many times as long (docs/decisions/0022), while many GiB
 * are left. With `near` the check fails. */
#include "limit_far.h"

#define SIZE ((size_t)70000) /* packed it has little more, else whole units of 64 KiB */

int main(int argc, char **argv) {
  hold(argc, argv);
  char *block = t_malloc(SIZE);
  CHECK(block != NULL);
  size_t bytes = t_usable_size(block);
  CHECK_SAY(bytes >= SIZE + SIZE / 4, "%zu usable bytes", bytes);
  t_free(block);
  let_go();
}
