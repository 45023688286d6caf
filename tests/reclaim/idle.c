/* A program that frees most of what it has and then does nothing: its memory goes back by itself.
 *     idle [off]    off: without the background thread. Then nothing goes back, which is this test's control. */
#include "again.h"

struct kind {
  size_t size;
  int count;
};
static const struct kind kinds[] = {{512, 150000}, {1024, 100000}, {2048, 50000}, {400000, 100}};
#define KINDS (sizeof kinds / sizeof kinds[0])
#define KEPT_EACH 20 /* one in so many stays */
#define SHARE_PERCENT 85

int main(int argc, char **argv) {
  const char *const options[] = {"HAKMEM_BACKGROUND", argc > 1 && strcmp(argv[1], "off") == 0 ? "off" : "on",
                                 "HAKMEM_KEEP_MB", "512", NULL}; /* slow paths leave it */
  test_again_with(argv, options);
  test_begin(argc, argv);
  if (!TEST_RSS_COUNTS)
    test_skip("RSS is not the heap's alone here");
  static char **blocks[KINDS];
  long releasable_kib = 0;
  for (size_t k = 0; k < KINDS; k++) {
    blocks[k] = t_malloc((size_t)kinds[k].count * sizeof(char *));
    for (int i = 0; i < kinds[k].count; i++) {
      blocks[k][i] = t_malloc(kinds[k].size);
      CHECK(blocks[k][i] != NULL);
      memset(blocks[k][i], i, kinds[k].size);
    }
  }
  long full_kib = test_rss_kib();
  for (size_t k = 0; k < KINDS; k++)
    for (int i = 0; i < kinds[k].count; i++)
      if (i % KEPT_EACH) {
        t_free(blocks[k][i]);
        releasable_kib +=
            i % KEPT_EACH > 4 ? (long)kinds[k].size / 1024 : 0; /* not the pages shared with one that stays */
      }
  double limit = argc > 1 && strcmp(argv[1], "off") == 0 ? 8.0 : TEST_PATIENCE_SECONDS;
  double start = test_seconds();
  long gone_kib = 0;
  struct timespec pause = {.tv_nsec = 200000000};
  while (test_seconds() - start < limit) {
    nanosleep(&pause, NULL);
    gone_kib = full_kib - test_rss_kib(); /* (this reads a file; only that allocates) */
    if (gone_kib >= releasable_kib * SHARE_PERCENT / 100)
      break;
  }
  CHECK_SAY(gone_kib >= releasable_kib * SHARE_PERCENT / 100, "%ld of %ld KiB went back in %.0f s", gone_kib,
            releasable_kib, limit);
  for (size_t k = 0; k < KINDS; k++)
    for (int i = 0; i < kinds[k].count; i += KEPT_EACH)
      for (size_t b = 0; b < kinds[k].size; b++)
        CHECK(blocks[k][i][b] == (char)i);
  printf("idle: ok, %ld of %ld KiB in %.1f s\n", gone_kib, releasable_kib, test_seconds() - start);
  return 0;
}
