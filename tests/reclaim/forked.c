/* A program frees much, forks, and sleeps: the thread that would give the memory back has ended before the fork, and
 * nothing calls for it again. The memory goes back all the same, in the parent and in a child that lives on. */
#include "../child.h"
#include "../heap_api.h"

#define BLOCKS 100000
#define BLOCK_BYTES 500
#define LEFT_SHARE 5 /* of what was taken */

static void *blocks[BLOCKS];
static long first_kib; /* resident before: the program itself, and what a sanitizer needs */

static long taken_kib(void) { return test_rss_kib() - first_kib; }

static void sleep_until_small(const char *who, long from_kib) {
  for (double end = test_seconds() + TEST_PATIENCE_SECONDS; test_seconds() < end; usleep(100000))
    if (taken_kib() < from_kib / LEFT_SHARE)
      return;
  CHECK_SAY(0, "%s keeps %ld of %ld KiB", who, taken_kib(), from_kib);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  first_kib = taken_kib();
  t_fill(blocks, BLOCKS, BLOCK_BYTES, 1);
  long most_kib = taken_kib();
  t_free_all(blocks, BLOCKS);
  usleep(200000);
  pid_t child = test_fork();
  if (child == 0) {
    sleep_until_small("the child", most_kib);
    _exit(0);
  }
  sleep_until_small("the parent", most_kib);
  test_child_passes(child);
}
