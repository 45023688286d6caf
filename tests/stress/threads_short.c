/* Many short-lived threads: memory stays flat, and heaps are taken over rather than piled up. */

#include "../heap_api.h"
#include "../threads.h"

#define AT_ONCE 4
#define BLOCKS 200

static void *worker(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    size_t size = test_random(&seed) % 1000 + 1;
    blocks[i] = CHECK_GOT(t_malloc(size));
    blocks[i][0] = blocks[i][size - 1] = (char)i;
  }
  t_free_all(blocks, BLOCKS);
  return NULL;
}

static void threads_run(long waves) {
  for (long wave = 0; wave < waves; wave++) {
    test_threads_run(AT_ONCE, worker, (void *)(uintptr_t)(wave * AT_ONCE + 1), 1);
  }
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  /* Bins of the few heaps may grow to their budgets once; after that nothing grows. Samples and counts take as much
   * again. */
  long share = getenv("HAKMEM_HEAP_PROFILE") || getenv("HAKMEM_COUNT") ? 2 : 1;
  long waves = test_rounds(4000, 60);
  long first = test_rss_kib();
  threads_run(waves / 2);
  long settled = test_rss_kib();
  threads_run(waves / 2);
  long grown = test_rss_kib() - settled;
  CHECK_SAY(!TEST_RSS_COUNTS || settled - first < 8192 * share, "RSS rose by %ld KiB for %d threads at once",
            settled - first, AT_ONCE);
  CHECK_SAY(!TEST_RSS_COUNTS || grown < 4096 * share, "RSS %ld KiB grew by %ld KiB", settled, grown);
#ifdef TEST_CORE
  struct hak_stats stats;
  hak_stats_get(&stats);
  CHECK_SAY(stats.heap_count <= 2 * AT_ONCE + 2, "%zu heaps for %d threads at once", stats.heap_count, AT_ONCE);
#endif
}
