/* Threads that freed all they had end, and then the program does nothing: what they left in their bins goes back.
 *     dead            they end at once
 *     dead asleep     they end when the program has been idle for longer than the background thread works
 *     dead off        without the background thread: what they left stays, which is this test's control
 */

#include "../threads.h"
#include "again.h"

#define THREADS 64
#define ROUNDS 4
#define BYTES_EACH ((size_t)8 << 20)
#define SIZE_MAX_EACH ((size_t)32 << 10)
#define SHARE_PERCENT 8

#define ASLEEP_SECONDS 7

static pthread_barrier_t all_have, all_end;
static int are_asleep;

static void *work(void *seed_of) {
  uint64_t seed = (uintptr_t)seed_of;
  static __thread char *blocks[BYTES_EACH / 256];
  for (int round = 0; round < ROUNDS; round++) {
    size_t count = 0, bytes = 0;
    for (; bytes < BYTES_EACH && count < sizeof blocks / sizeof *blocks; count++) {
      size_t size = (size_t)1 << (4 + test_random(&seed) % 12);
      blocks[count] = t_malloc(size);
      CHECK(blocks[count] != NULL && size <= SIZE_MAX_EACH);
      memset(blocks[count], 1, size);
      bytes += size;
    }
    if (round == ROUNDS - 1)
      pthread_barrier_wait(&all_have);
    while (count > 0)
      t_free(blocks[--count]);
  }
  if (are_asleep)
    pthread_barrier_wait(&all_end);
  return NULL;
}

int main(int argc, char **argv) {
  int is_off = argc > 1 && strcmp(argv[1], "off") == 0;
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", is_off ? "off" : "on");
  are_asleep = argc > 1 && strcmp(argv[1], "asleep") == 0;
  test_skip_if(!TEST_RSS_COUNTS, "RSS is not the heap's alone here");
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&all_have, NULL, THREADS + 1) == 0);
  CHECK(pthread_barrier_init(&all_end, NULL, THREADS + 1) == 0);
  long start_kib = test_rss_kib();
  test_threads_start(threads, THREADS, work, (void *)(uintptr_t)1, 1);
  pthread_barrier_wait(&all_have);
  long full_kib = test_rss_kib() - start_kib, most_kib = full_kib * SHARE_PERCENT / 100;
  if (are_asleep) {
    sleep(ASLEEP_SECONDS);
    pthread_barrier_wait(&all_end);
  }
  test_threads_join(threads, THREADS);
  double start = test_seconds();
  long kib =
      full_kib - test_wait_gone_kib(start_kib + full_kib, full_kib - most_kib, is_off ? 5.0 : TEST_PATIENCE_SECONDS);
  CHECK_SAY(kib <= most_kib, "%ld of %ld KiB stay", kib, full_kib);
  printf("dead: ok, %ld of %ld KiB stay after %.1f s\n", kib, full_kib, test_seconds() - start);
}
