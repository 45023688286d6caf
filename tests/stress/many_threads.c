/* Many threads at once, which exchange blocks and end: a trim then leaves little of what they had.
 *     many_threads          they end, then a trim
 *     many_threads idle     they end, and nobody calls anything: the background thread gives it back
 */
#include "../heap_api.h"
#include "../threads.h"

#define THREADS 2000
#define BLOCKS 200
#define SIZE_MAX_DRAWN 2000
#define PLACES (THREADS * 20)
#define STACK_BYTES ((size_t)64 * 1024)
#define KIB_OF_THREAD 60 /* that may stay, on average, of some 500 */

static void *places[PLACES];
static pthread_barrier_t all_allocated;
static pthread_t threads[THREADS];

static void *exchange(void *argument) {
  uint64_t seed = test_seed + (uintptr_t)argument;
  for (int i = 0; i < BLOCKS; i++) {
    size_t size = test_random(&seed) % SIZE_MAX_DRAWN + 1;
    char *block = CHECK_GOT(t_malloc(size));
    memset(block, 1, size);
    t_free(__atomic_exchange_n(&places[test_random(&seed) % PLACES], block, __ATOMIC_ACQ_REL));
  }
  pthread_barrier_wait(&all_allocated);
  for (int i = 0; i < BLOCKS; i++)
    t_free(__atomic_exchange_n(&places[test_random(&seed) % PLACES], NULL, __ATOMIC_ACQ_REL));
  return NULL;
}

static void threads_run(void) {
  CHECK(pthread_barrier_init(&all_allocated, NULL, THREADS) == 0);
  test_threads_start_small(threads, THREADS, STACK_BYTES, exchange);
  test_threads_join(threads, THREADS);
  t_free_all(places, PLACES);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  int is_idle = argc > 1 && strcmp(argv[1], "idle") == 0;
  long before = test_rss_kib(), most = before + (long)THREADS * KIB_OF_THREAD;
  threads_run();
  long full = test_rss_kib();
  if (!is_idle)
    t_trim(0);
  else
    for (double end = test_seconds() + TEST_PATIENCE_SECONDS; test_rss_kib() > most && test_seconds() < end;)
      usleep(100000);
  long left = test_rss_kib();
  CHECK_SAY(!TEST_RSS_COUNTS || left <= most, "RSS %ld KiB before %d threads, %ld after, %ld in the end", before,
            THREADS, full, left);
  printf("many_threads: ok, RSS %ld KiB before, %ld after, %ld in the end\n", before, full, left);
}
