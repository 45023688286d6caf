/* A program with much thread-local storage, which lies in the stack of hakmem's thread, too: the thread runs, and what
 * the program freed goes back while it sleeps. WIDE_BYTES is about the thread's usual stack; wider.c has more. off:
 * without the thread nothing goes back, which is this test's control. */
#include "../heap_api.h"
#include "again.h"

#include <stdbool.h>

#ifndef WIDE_BYTES
#define WIDE_BYTES (((size_t)1 << 20) - 10000)
#endif

#define BLOCKS 3000
#define BLOCK_BYTES 60000

__thread volatile char wide[WIDE_BYTES];

int main(int argc, char **argv) {
  static char *blocks[BLOCKS];
  bool is_off = argc > 1 && strcmp(argv[1], "off") == 0;
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", is_off ? "off" : "on");
  test_skip_if(!TEST_RSS_COUNTS, "RSS is not the heap's alone here");
  wide[0] = 1;
  t_fill(blocks, BLOCKS, BLOCK_BYTES, 1);
  long full_kib = test_rss_kib(), wanted_kib = (long)BLOCKS * BLOCK_BYTES / 1024 * 85 / 100;
  t_free_all(blocks, BLOCKS);
  long gone_kib = test_wait_gone_kib(full_kib, wanted_kib, is_off ? 5.0 : TEST_PATIENCE_SECONDS);
  CHECK_SAY(gone_kib >= wanted_kib, "%ld of %ld KiB went back", gone_kib, wanted_kib);
}
