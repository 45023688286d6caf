/* A program that frees most of what it has and then does nothing: its memory goes back by itself.
 *     idle mixed|random [off]
 * mixed: some blocks of several lengths stay. random: all blocks of one length are freed in random order, so those that
 * the bin keeps lie anywhere. off: without the background thread. Then nothing goes back, which is this test's
 * control. */
#include "again.h"

#include <stdbool.h>

struct kind {
  size_t size;
  int count;
};
static const struct kind mixed[] = {{512, 150000}, {1024, 100000}, {2048, 50000}, {400000, 100}};
static const struct kind random_order[] = {{64, 1500000}};
#define KINDS_MAX (sizeof mixed / sizeof mixed[0])
#define KEPT_EACH 20 /* one in so many stays */
#define SHARE_PERCENT 85

static void free_in_random_order(char **blocks, int count) {
  uint64_t random = 1;
  for (int i = count - 1; i >= 0; i--) {
    int j = (int)(test_random(&random) % (uint64_t)(i + 1));
    t_free(blocks[j]);
    blocks[j] = blocks[i];
  }
}

int main(int argc, char **argv) {
  bool is_random = argc > 1 && strcmp(argv[1], "random") == 0, is_off = argc > 2 && strcmp(argv[2], "off") == 0;
  const struct kind *kinds = is_random ? random_order : mixed;
  size_t kind_count = is_random ? 1 : KINDS_MAX;
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", is_off ? "off" : "on", "HAKMEM_KEEP_MB",
                  "512"); /* slow paths leave it */
  test_skip_if(!TEST_RSS_COUNTS, "RSS is not the heap's alone here");
  static char **blocks[KINDS_MAX];
  long releasable_kib = 0;
  for (size_t k = 0; k < kind_count; k++) {
    blocks[k] = CHECK_GOT(t_malloc((size_t)kinds[k].count * sizeof(char *)));
    for (int i = 0; i < kinds[k].count; i++) {
      blocks[k][i] = CHECK_GOT(t_malloc(kinds[k].size));
      memset(blocks[k][i], i, kinds[k].size);
    }
  }
  long full_kib = test_rss_kib();
  if (is_random) {
    free_in_random_order(blocks[0], kinds[0].count);
    releasable_kib = kinds[0].count / 1024 * (long)kinds[0].size;
  }
  for (size_t k = 0; !is_random && k < kind_count; k++)
    for (int i = 0; i < kinds[k].count; i++)
      if (i % KEPT_EACH) {
        t_free(blocks[k][i]);
        releasable_kib +=
            i % KEPT_EACH > 4 ? (long)kinds[k].size / 1024 : 0; /* not the pages shared with one that stays */
      }
  double limit = is_off ? 8.0 : TEST_PATIENCE_SECONDS, start = test_seconds();
  long wanted_kib = releasable_kib * SHARE_PERCENT / 100, gone_kib = test_wait_gone_kib(full_kib, wanted_kib, limit);
  CHECK_SAY(gone_kib >= wanted_kib, "%ld of %ld KiB went back in %.0f s", gone_kib, releasable_kib, limit);
  for (size_t k = 0; !is_random && k < kind_count; k++)
    for (int i = 0; i < kinds[k].count; i += KEPT_EACH)
      for (size_t b = 0; b < kinds[k].size; b++)
        CHECK(blocks[k][i][b] == (char)i);
  printf("idle: ok, %ld of %ld KiB in %.1f s\n", gone_kib, releasable_kib, test_seconds() - start);
}
