/* A program that frees by realloc alone: blocks shrink and move, and what they leave goes back while it sleeps. realloc
 * passes on its caller, so that the background thread may start. off: without the thread nothing goes back, which is
 * this test's control. */
#include "../heap_api.h"
#include "again.h"

#include <stdbool.h>

#define BLOCKS 3000
#define BLOCK_BYTES 60000
#define BYTES_LEFT 100

int main(int argc, char **argv) {
  static char *blocks[BLOCKS];
  bool is_off = argc > 1 && strcmp(argv[1], "off") == 0;
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", is_off ? "off" : "on");
  test_skip_if(!TEST_RSS_COUNTS, "RSS is not the heap's alone here");
  t_fill(blocks, BLOCKS, BLOCK_BYTES, 1);
  long full_kib = test_rss_kib(), wanted_kib = (long)BLOCKS * BLOCK_BYTES / 1024 * 85 / 100;
  for (unsigned i = 0; i < BLOCKS; i++)
    blocks[i] = t_realloc(blocks[i], BYTES_LEFT);
  long gone_kib = test_wait_gone_kib(full_kib, wanted_kib, is_off ? 5.0 : TEST_PATIENCE_SECONDS);
  CHECK_SAY(gone_kib >= wanted_kib, "%ld of %ld KiB went back", gone_kib, wanted_kib);
}
