/* A program too small for the background thread of itself frees what it wants again only much later. What was learned
 * gives it back while the program sleeps.
 *     learned [off]    off: without the engine. Then it stays, which is this test's control. */
#include "again.h"

#include <stdbool.h>

#define COUNT 3
#define BYTES ((size_t)3 << 20)
#define ROUNDS 12
#define SHARE_PERCENT 80

int main(int argc, char **argv) {
  bool is_off = argc > 1 && strcmp(argv[1], "off") == 0;
  test_begin_with(argc, argv, "HAKMEM_POLICY", is_off ? "off" : "evolving", "HAKMEM_PURGE_DELAY_MS", "20");
  test_skip_if(!TEST_RSS_COUNTS, "RSS is not the heap's alone here");
  char *blocks[COUNT];
  long full_kib = 0;
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < COUNT; i++) {
      blocks[i] = CHECK_GOT(t_malloc(BYTES));
      memset(blocks[i], i + 1, BYTES);
    }
    full_kib = test_rss_kib();
    for (int i = 0; i < COUNT; i++) {
      CHECK(blocks[i][BYTES - 1] == i + 1);
      t_free(blocks[i]);
    }
    test_pause_ms(150);
  }
  double start = test_seconds();
  const long freed_kib = (long)(COUNT * BYTES / 1024), wanted_kib = freed_kib * SHARE_PERCENT / 100;
  long gone_kib = test_wait_gone_kib(full_kib, wanted_kib, is_off ? 1.0 : TEST_PATIENCE_SECONDS);
  CHECK_SAY(gone_kib >= wanted_kib, "%ld of %ld KiB went back", gone_kib, freed_kib);
  printf("learned: ok, %ld of %ld KiB in %.1f s\n", gone_kib, freed_kib, test_seconds() - start);
}
