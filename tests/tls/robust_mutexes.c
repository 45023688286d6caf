/* A thread ends with more robust mutexes of its own than the kernel looks at when a thread ends (2,048, the ones locked
 * last). Its heap is not lost: a trim finds it, and its memory serves other threads. */

#include "../heap_api.h"
#include "../threads.h"

#define MUTEXES 3000
#define BLOCKS 4000
#define BLOCK_BYTES 1000
#define ROUNDS 12
#define KEPT_KIB_MAX 6000 /* a thread leaves more than 1,000 in its bins */

static pthread_mutex_t mutexes[ROUNDS][MUTEXES];

static void *work(void *argument) {
  pthread_mutex_t *own = argument;
  pthread_mutexattr_t attributes;
  char *blocks[BLOCKS];
  CHECK(pthread_mutexattr_init(&attributes) == 0);
  CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
  CHECK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
  t_fill(blocks, BLOCKS, BLOCK_BYTES, 1);
  for (int i = 0; i < MUTEXES; i++)
    CHECK(pthread_mutex_init(&own[i], &attributes) == 0 && pthread_mutex_lock(&own[i]) == 0);
  t_free_all(blocks, BLOCKS);
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  long before = test_rss_kib();
  for (int round = 0; round < ROUNDS; round++) {
    test_thread_run(work, mutexes[round]);
    t_trim(0);
  }
  long rise = test_rss_kib() - before;
  CHECK_SAY(!TEST_RSS_COUNTS || rise < KEPT_KIB_MAX, "RSS rose by %ld KiB", rise);
#ifdef TEST_CORE
  struct hak_stats stats;
  hak_stats_get(&stats);
  CHECK_SAY(stats.heap_count <= 3, "%zu heaps", stats.heap_count);
#endif
  printf("robust_mutexes: ok, RSS rose by %ld KiB\n", rise);
}
