/* chroot [SECONDS]: a program that has changed its root to a folder without /proc gives its memory back when it is
 * idle. As root. SECONDS: how long it waits for that; a control waits in vain. */
#include <fcntl.h>

#include "../child.h"

#define BLOCKS 100000
#define BLOCK_BYTES 1000

static long pages_resident(int statm) {
  char text[128];
  long pages = -1;
  ssize_t length = pread(statm, text, sizeof text - 1, 0);
  CHECK(length > 0);
  text[length] = 0;
  CHECK(sscanf(text, "%*d %ld", &pages) == 1);
  return pages;
}

int main(int argc, char **argv) {
  static void *blocks[BLOCKS];
  int statm = open("/proc/self/statm", O_RDONLY);
  CHECK(statm >= 0);
  test_leave_proc();
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = memset(CHECK_GOT(malloc(BLOCK_BYTES)), 1, BLOCK_BYTES);
  double patience = argc > 1 ? atof(argv[1]) : TEST_PATIENCE_SECONDS;
  long most = pages_resident(statm), left = most;
  for (int i = 0; i < BLOCKS; i++)
    free(blocks[i]);
  for (double end = test_seconds() + patience; left > most / 4 && test_seconds() < end; test_pause_ms(50))
    left = pages_resident(statm);
  CHECK_SAY(left <= most / 4, "%ld of %ld pages stay resident", left, most);
  puts("chroot: ok");
}
