/* One thread that only frees, many that only allocate: memory stays near what is live. */

#include "../heap_api.h"
#include "../threads.h"

#define PRODUCERS 16
#define BLOCK_BYTES 400

static int batches, blocks_per_batch;
static void ***handed; /* one array of pointers per producer */
static pthread_barrier_t made, freed;

static void *producer(void *argument) {
  void **mine = handed[(uintptr_t)argument];
  for (int batch = 0; batch < batches; batch++) {
    t_fill(mine, blocks_per_batch, BLOCK_BYTES, batch);
    pthread_barrier_wait(&made);
    pthread_barrier_wait(&freed);
  }
  return NULL;
}

/* The producers' blocks are freed in turns, so that the frees of all owners interleave. */
static void *consumer(void *argument) {
  for (int batch = 0; batch < batches; batch++) {
    pthread_barrier_wait(&made);
    for (int i = 0; i < blocks_per_batch; i++) {
      for (int p = 0; p < PRODUCERS; p++)
        t_free(handed[p][i]);
    }
    pthread_barrier_wait(&freed);
  }
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  batches = test_long ? 3000 : 12;
  blocks_per_batch = TEST_SANITIZED ? 500 : 3000;
  handed = calloc(PRODUCERS, sizeof *handed);
  for (int i = 0; i < PRODUCERS; i++)
    handed[i] = calloc((size_t)blocks_per_batch, sizeof **handed);
  CHECK(pthread_barrier_init(&made, NULL, PRODUCERS + 1) == 0);
  CHECK(pthread_barrier_init(&freed, NULL, PRODUCERS + 1) == 0);
  long before = test_rss_kib();
  pthread_t taker;
  CHECK(pthread_create(&taker, NULL, consumer, NULL) == 0);
  test_threads_run(PRODUCERS, producer, NULL, 1);
  pthread_join(taker, NULL);
  long peak = test_status("VmHWM:") - before;
  long live = (long)PRODUCERS * blocks_per_batch * BLOCK_BYTES / 1024;
  /* Slack: 1.3 x live, and 6 MiB for thread stacks, slabs opened and envelopes under way. */
  CHECK_SAY(!TEST_RSS_COUNTS || peak < live * 13 / 10 + 6144, "peak RSS %ld KiB for %ld KiB live", peak, live);
  printf("free_only: ok (peak %ld KiB for %ld KiB live)\n", peak, live);
}
