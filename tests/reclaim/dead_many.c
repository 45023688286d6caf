/* Many threads end, each of which kept little, so that none of them freed into a slab. Then the program does nothing:
 * what they left in their bins goes back.
 *     dead_many          they free and end at once
 *     dead_many asleep   they do when the program has been idle for longer than the background thread works
 *     dead_many off      without the background thread it stays
 */
#include "../threads.h"
#include "again.h"

#define THREADS 2000
#define THREADS_ASLEEP 1000 /* so few that libc keeps their stacks: then their ends free nothing, which would tell */
#define STACK_BYTES ((size_t)32 << 10)
#define BLOCKS 20
#define SHARE_PERCENT 60 /* each heap keeps a page, and libc keeps stacks */

#define ASLEEP_SECONDS 27 /* longer than the background thread waits for memory that cannot go back */

static pthread_barrier_t all_have, all_end;
static int are_asleep;

static void *work(void *unused) {
  char *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = CHECK_GOT(t_malloc(50 + 37 * i));
    memset(blocks[i], 1, 50);
  }
  pthread_barrier_wait(&all_have);
  if (are_asleep)
    pthread_barrier_wait(&all_end);
  t_free_all(blocks, BLOCKS);
  return NULL;
}

int main(int argc, char **argv) {
  int is_off = argc > 1 && strcmp(argv[1], "off") == 0;
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", is_off ? "off" : "on");
  are_asleep = argc > 1 && strcmp(argv[1], "asleep") == 0;
  test_skip_if(!TEST_RSS_COUNTS, "RSS is not the heap's alone here");
  static pthread_t threads[THREADS];
  unsigned count = are_asleep ? THREADS_ASLEEP : THREADS;
  CHECK(pthread_barrier_init(&all_have, NULL, count + 1) == 0);
  CHECK(pthread_barrier_init(&all_end, NULL, count + 1) == 0);
  long start_kib = test_rss_kib();
  test_threads_start_small(threads, count, STACK_BYTES, work);
  pthread_barrier_wait(&all_have);
  long full_kib = test_rss_kib() - start_kib, most_kib = full_kib * SHARE_PERCENT / 100;
  if (are_asleep) {
    sleep(ASLEEP_SECONDS);
    pthread_barrier_wait(&all_end);
  }
  test_threads_join(threads, count);
  long kib =
      full_kib - test_wait_gone_kib(start_kib + full_kib, full_kib - most_kib, is_off ? 5.0 : TEST_PATIENCE_SECONDS);
  CHECK_SAY(kib <= most_kib, "%ld of %ld KiB stay", kib, full_kib);
  printf("dead_many: ok, %ld of %ld KiB stay\n", kib, full_kib);
}
