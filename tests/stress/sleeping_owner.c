/* A thread allocates much and sleeps; another frees it all. Without the owner's help the memory serves
 * the rest of the program again: a sleeping owner pins nothing. */
#include <pthread.h>

#include "../heap_api.h"

#define BLOCKS 40000
#define BLOCK_BYTES 1000

static void *blocks[BLOCKS];
static pthread_barrier_t made, finished;

static void *owner(void *argument) {
  t_fill(blocks, BLOCKS, BLOCK_BYTES, 1);
  pthread_barrier_wait(&made);
  pthread_barrier_wait(&finished);
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  pthread_t sleeper;
  CHECK(pthread_barrier_init(&made, NULL, 2) == 0 && pthread_barrier_init(&finished, NULL, 2) == 0);
  CHECK(pthread_create(&sleeper, NULL, owner, NULL) == 0);
  pthread_barrier_wait(&made);
  long full = test_rss_kib();
  for (int round = 0; round < 3; round++) {
    t_free_all(blocks, BLOCKS);
    t_fill(blocks, BLOCKS, BLOCK_BYTES, 1);
    CHECK_SAY(!TEST_RSS_COUNTS || test_rss_kib() < full * 13 / 10 + 6144, "round %d: RSS %ld KiB, full heap %ld KiB",
              round, test_rss_kib(), full);
  }
  t_free_all(blocks, BLOCKS);
  pthread_barrier_wait(&finished);
  pthread_join(sleeper, NULL);
}
