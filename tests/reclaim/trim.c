/* malloc_trim(0) gives back what is not live, whoever freed it: this thread, threads that sleep, threads that are
 * gone; small blocks, holes between live ones, large ranges. What a living thread has in its bins goes when it
 * comes by. */
#include "../threads.h"
#include "again.h"

#define THREADS 4 /* one that ends, some that sleep, and the main thread */
#define SLEEPERS (THREADS - 2)
#define COUNT 20000
#define KEPT_EACH 50
#define BINS_KIB (9 * 1024L) /* a thread's bins hold no more */

static pthread_barrier_t steps;
static char **live[THREADS];

static size_t size_of(int i) { return 1 + (size_t)i * 7919 % 3000; }

/* 30 MiB of blocks of 1 to 3,000 bytes and 30 MiB of large ones; one in KEPT_EACH stays. */
static void use(int thread) {
  char **blocks = live[thread];
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = CHECK_GOT(t_malloc(size_of(i)));
    memset(blocks[i], thread + 1, size_of(i));
  }
  char *large[60];
  t_fill(large, 60, MIB / 2, 1);
  t_free_all(large, 60);
  for (int i = 0; i < COUNT; i++)
    if (i % KEPT_EACH) {
      t_free(blocks[i]);
      blocks[i] = NULL;
    }
}

static void come_by(void) {
  void *blocks[300];
  for (size_t size = 16; size < 4000; size += size / 2)
    for (int round = 0; round < 2; round++) {
      for (int i = 0; i < 300; i++)
        blocks[i] = t_malloc(size);
      t_free_all(blocks, 300);
    }
}

static void *use_and_end(void *thread) {
  use((int)(size_t)thread);
  return NULL;
}

static void *use_and_sleep(void *argument) {
  int thread = (int)(size_t)argument;
  use(thread);
  pthread_barrier_wait(&steps); /* all is freed */
  pthread_barrier_wait(&steps); /* and trimmed */
  come_by();
  pthread_barrier_wait(&steps); /* all came by */
  pthread_barrier_wait(&steps); /* trimmed again */
  return NULL;
}

int main(int argc, char **argv) {
  /* Nothing goes back but by trimming. */
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", "off", "HAKMEM_PURGE_DELAY_MS", "600000", "HAKMEM_KEEP_MB", "512");
  static char *pointers[THREADS][COUNT];
  memset(pointers, 1, sizeof pointers);
  for (int i = 0; i < THREADS; i++)
    live[i] = pointers[i];
  pthread_t threads[SLEEPERS];
  pthread_barrier_init(&steps, NULL, SLEEPERS + 1);
  long base_kib = test_rss_kib();
  test_thread_run(use_and_end, (void *)0);
  test_threads_start(threads, SLEEPERS, use_and_sleep, (void *)1, 1);
  use(THREADS - 1);
  pthread_barrier_wait(&steps);
  long full_kib = test_rss_kib() - base_kib;
  CHECK(t_trim(0) == 1);
  long first_kib = test_rss_kib() - base_kib;
  pthread_barrier_wait(&steps);
  pthread_barrier_wait(&steps);
  t_trim(0);
  long second_kib = test_rss_kib() - base_kib;
  pthread_barrier_wait(&steps);
  test_threads_join(threads, SLEEPERS);
  printf("%ld KiB when full, %ld after a trim, %ld after the next\n", full_kib, first_kib, second_kib);
  fflush(stdout);
  /* What stays: a page or two of each live block, tables, and the sleepers' bins. */
  long live_kib = THREADS * (COUNT / KEPT_EACH) * 8L, tables_kib = 6 * 1024;
  CHECK(!TEST_RSS_COUNTS || full_kib > THREADS * 20 * 1024);
  CHECK(!TEST_RSS_COUNTS || first_kib <= live_kib + tables_kib + SLEEPERS * BINS_KIB);
  CHECK(!TEST_RSS_COUNTS || second_kib <= live_kib + tables_kib);
  for (int thread = 0; thread < THREADS; thread++)
    for (int i = 0; i < COUNT; i += KEPT_EACH) {
      for (size_t b = 0; b < size_of(i); b++)
        CHECK(live[thread][i][b] == thread + 1);
      t_free(live[thread][i]);
    }
}
