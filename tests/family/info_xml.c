/* Prints malloc_info's XML in a known state: a few small blocks live, many freed, three large live. */
#include "../heap_api.h"

int main(int argc, char **argv) {
  test_begin(argc, argv);
#ifndef __GLIBC__
  test_skip("no malloc_info in this libc");
#else
  static void *blocks[3000], *large[3];
  for (int i = 0; i < 3000; i++)
    blocks[i] = CHECK_GOT(malloc((size_t)i));
  for (int i = 0; i < 2900; i++)
    free(blocks[i]);
  for (int i = 0; i < 3; i++)
    large[i] = CHECK_GOT(malloc((size_t)5 << 20));
  CHECK(malloc_info(1, stdout) != 0); /* options must be 0 */
  CHECK(malloc_info(0, stdout) == 0);
  fflush(stdout);
  struct mallinfo2 info = mallinfo2();
  fprintf(stderr, "{\"live\": %zu, \"free\": %zu, \"large\": %zu, \"large_count\": %zu}\n", info.uordblks,
          info.fordblks, info.hblkhd, info.hblks);
  free(large[2]);
  return 0;
#endif
}
