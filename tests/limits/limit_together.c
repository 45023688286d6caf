/* HAKMEM_LIMIT_MB: threads that ask at the same moment, each for what would fit, together get no more than the
 * limit. */
#include <stdatomic.h>

#include "../reclaim/again.h"
#include "../threads.h"

#define LIMIT_MB 256
#define LIMIT_TEXT "256"
#define THREADS 32
#define BLOCKS 40

/* More than the limit each, if all threads were served. */
static const struct request {
  size_t bytes, count;
} requests[] = {{200 * MIB, 1}, {20 * MIB, 1}, {300000, BLOCKS}};

static pthread_barrier_t barrier;
static struct request request;
static _Atomic size_t taken_bytes;

static void judge(void) {
  CHECK_SAY(taken_bytes <= LIMIT_MB * MIB, "%zu bytes in blocks of %zu", taken_bytes, request.bytes);
  struct hak_stats stats;
  TEST_HAK(hak_stats_get)(&stats);
  size_t held = stats.heap_bytes + stats.extent_free_bytes + stats.large_cached_bytes;
  CHECK_SAY(held <= LIMIT_MB * MIB, "%zu bytes held, with blocks of %zu", held, request.bytes);
}

static void *asks(void *number) {
  void *blocks[BLOCKS];
  for (long round = test_rounds(60, 25); round > 0; round--) {
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < request.count; i++) {
      blocks[i] = t_malloc(request.bytes);
      if (blocks[i])
        taken_bytes += request.bytes;
    }
    pthread_barrier_wait(&barrier);
    if (number == NULL) {
      judge();
      taken_bytes = 0;
    }
    pthread_barrier_wait(&barrier);
    t_free_all(blocks, request.count);
  }
  return NULL;
}

int main(int argc, char **argv) {
  test_begin_with(argc, argv, "HAKMEM_LIMIT_MB", LIMIT_TEXT);
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
  for (size_t k = 0; k < sizeof requests / sizeof *requests; k++) {
    request = requests[k];
    test_threads_run(THREADS, asks, NULL, 1);
  }
}
