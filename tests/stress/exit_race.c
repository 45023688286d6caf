/* Threads exit at the very moment others free their blocks; new threads take over at the same time.
 * A maker posts a batch of its blocks and ends without waiting; takers free from batches of makers that
 * are alive, ending or dead. */

#include "../heap_api.h"
#include "../threads.h"
#include "ring.h"

#define BATCH 64
#define MAKERS_AT_ONCE 3
#define TAKERS 3

struct batch {
  void *blocks[BATCH];
};

static struct ring ring;
static long waves;
static char end_mark;

static void *maker(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  for (int n = 0; n < 8; n++) {
    struct batch *batch = CHECK_GOT(t_malloc(sizeof *batch));
    for (int i = 0; i < BATCH; i++) {
      size_t size = test_random(&seed) % 200 + 1;
      if (i == 0 && n == 0)
        size = 300000;
      batch->blocks[i] = CHECK_GOT(t_malloc(size));
      memset(batch->blocks[i], 0x5a, size < 200 ? size : 200);
    }
    ring_give(&ring, batch);
  }
  return NULL;
}

static void *taker(void *argument) {
  for (;;) {
    struct batch *batch = ring_take(&ring);
    if ((void *)batch == &end_mark)
      return NULL;
    for (int i = 0; i < BATCH; i++) {
      CHECK(*(unsigned char *)batch->blocks[i] == 0x5a);
      t_free(batch->blocks[i]);
    }
    t_free(batch);
  }
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  waves = test_rounds(1200, 600);
  pthread_t takers[TAKERS], makers[MAKERS_AT_ONCE];
  test_threads_start(takers, TAKERS, taker, NULL, 0);
  test_threads_start(makers, MAKERS_AT_ONCE, maker, (void *)(uintptr_t)1, 1);
  for (long wave = 0; wave < waves; wave++) {
    int i = (int)(wave % MAKERS_AT_ONCE);
    pthread_join(makers[i], NULL);
    CHECK(pthread_create(&makers[i], NULL, maker, (void *)(uintptr_t)(wave + 10)) == 0);
  }
  test_threads_join(makers, MAKERS_AT_ONCE);
  for (int i = 0; i < TAKERS; i++)
    ring_give(&ring, &end_mark);
  test_threads_join(takers, TAKERS);
#ifdef TEST_CORE
  struct hak_stats stats;
  hak_stats_get(&stats);
  CHECK_SAY(stats.heap_count <= 2 * (MAKERS_AT_ONCE + TAKERS) + 2, "%zu heaps", stats.heap_count);
#endif
}
