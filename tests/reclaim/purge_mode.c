/* HAKMEM_PURGE: how free memory goes back, by what the kernel was asked for, and that contents stay right.
 *     purge_mode off | free | dontneed */

#include "again.h"

#define COUNT 4000

static unsigned char *blocks[COUNT];

static void work(uint64_t seed) {
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < COUNT; i++) {
      size_t size = 100 + test_random(&seed) % (i % 50 ? 5000 : 2000000);
      unsigned char *block = CHECK_GOT(i % 3 ? t_malloc(size) : t_calloc(size, 1));
      for (size_t b = 0; i % 3 == 0 && b < size; b++)
        CHECK(block[b] == 0);
      memset(block, i | 1, size);
      blocks[i] = block;
    }
    for (int i = 0; i < COUNT; i++)
      if (i % 8) {
        t_free(blocks[i]);
        blocks[i] = NULL;
      }
    t_trim(0);
    for (int i = 0; i < COUNT; i += 8) {
      for (size_t b = 0; b < 100; b++)
        CHECK(blocks[i][b] == (unsigned char)(i | 1));
      t_free(blocks[i]);
    }
    t_trim(0);
  }
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "off";
  test_begin_with(argc, argv, "HAKMEM_PURGE", mode, "HAKMEM_HUGE", "off", "HAKMEM_PURGE_DELAY_MS", "0",
                  "HAKMEM_KEEP_MB", "0");
  int (*stats_get)(struct hak_stats *) = TEST_HAK(hak_stats_get);
  CHECK(stats_get != NULL);
  long before_kib = test_rss_kib();
  work(test_seed);
  struct hak_stats stats;
  stats_get(&stats);
  if (strcmp(mode, "off") == 0)
    CHECK_SAY(stats.purges == 0 && stats.purged_bytes == 0, "%llu purges", (unsigned long long)stats.purges);
  else
    CHECK(stats.calls_advise > 0 && stats.purges > 0 && stats.purged_bytes > 1 << 20);
  if (strcmp(mode, "dontneed") == 0)
    CHECK_SAY(!TEST_RSS_COUNTS || test_rss_kib() - before_kib < 8192, "%ld KiB more", test_rss_kib() - before_kib);
}
