/* Many threads end, each of which kept little, so that none of them freed into a slab. Then the program does nothing:
 * what they left in their bins goes back. With the argument `off` there is no background thread, and it stays.
 */
#include "../threads.h"
#include "again.h"

#define THREADS 2000
#define STACK_BYTES ((size_t)64 << 10)
#define BLOCKS 20
#define SHARE_PERCENT 60 /* each heap keeps a page, and libc keeps stacks */

static pthread_barrier_t all_have;

static void *work(void *unused) {
  char *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = CHECK_GOT(t_malloc(50 + 37 * i));
    memset(blocks[i], 1, 50);
  }
  pthread_barrier_wait(&all_have);
  t_free_all(blocks, BLOCKS);
  return NULL;
}

int main(int argc, char **argv) {
  int is_off = argc > 1 && strcmp(argv[1], "off") == 0;
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", is_off ? "off" : "on");
  test_skip_if(!TEST_RSS_COUNTS, "RSS is not the heap's alone here");
  static pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&all_have, NULL, THREADS + 1) == 0);
  long start_kib = test_rss_kib();
  test_threads_start_small(threads, THREADS, STACK_BYTES, work);
  pthread_barrier_wait(&all_have);
  long full_kib = test_rss_kib() - start_kib, most_kib = full_kib * SHARE_PERCENT / 100;
  test_threads_join(threads, THREADS);
  long kib =
      full_kib - test_wait_gone_kib(start_kib + full_kib, full_kib - most_kib, is_off ? 5.0 : TEST_PATIENCE_SECONDS);
  CHECK_SAY(kib <= most_kib, "%ld of %ld KiB stay", kib, full_kib);
  printf("dead_many: ok, %ld of %ld KiB stay\n", kib, full_kib);
}
