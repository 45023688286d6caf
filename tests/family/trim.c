/* malloc_trim(0) gives free memory back: RSS falls, it says 1, and what is live stays intact. */
#include "../check.h"
#include "../heap_api.h"

#define COUNT 60000
#define SIZE 1000

int main(int argc, char **argv) {
  test_begin(argc, argv);
  static char *blocks[COUNT];
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = CHECK_GOT(t_malloc(SIZE));
    memset(blocks[i], i, SIZE);
  }
  long full = test_rss_kib();
  for (int i = 0; i < COUNT; i++) {
    if (i % 1000)
      t_free(blocks[i]);
  }
  int gave = t_trim(0);
  long after = test_rss_kib();
  CHECK_SAY(gave == 1, "trim says %d", gave);
  CHECK_SAY(!TEST_RSS_COUNTS || full - after > (long)COUNT * SIZE / 1024 * 7 / 10, "RSS %ld KiB full, %ld KiB after",
            full, after);
  for (int i = 0; i < COUNT; i += 1000) {
    for (int j = 0; j < SIZE; j++)
      CHECK(blocks[i][j] == (char)i);
    t_free(blocks[i]);
  }
  t_trim(0);
  puts("trim: ok");
  return 0;
}
