/* Threads allocate, free and hand over all the time while the main thread forks. Every child frees
 * blocks of all origins, allocates, starts a thread, and ends with 0. Every other child first gives back what the
 * parent's threads left to it. A hang ends by SIGALRM. */
#include <stdatomic.h>
#include <stdbool.h>

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

#define THREADS 3
#define SHARED 256

static void *_Atomic shared[SHARED]; /* blocks of any thread, for anyone to take and free */
static _Atomic int ending;

static void *worker(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  while (!atomic_load_explicit(&ending, memory_order_relaxed)) {
    size_t size = test_random(&seed) % 64 ? test_random(&seed) % 3000 + 1 : test_random(&seed) % 600000 + 1;
    char *block = CHECK_GOT(t_malloc(size));
    block[0] = block[size - 1] = 1;
    t_free(atomic_exchange(&shared[test_random(&seed) % SHARED], block));
  }
  return NULL;
}

static void *child_thread(void *argument) {
  uint64_t seed = 99;
  void *blocks[200];
  for (int i = 0; i < 200; i++)
    blocks[i] = CHECK_GOT(t_malloc(test_random(&seed) % 5000));
  t_free_all(blocks, 200);
  return NULL;
}

/* Big enough for a thread that gives memory back (on hakmem): rounds of it and forks meet. */
#define BALLAST 24
#define BALLAST_BYTES ((size_t)1 << 20)
#define BALLAST_SHARE 8 /* one in so many is renewed at a time */
static char *ballast[BALLAST];

static void ballast_stir(long n) {
  for (int i = 0; i < BALLAST; i++)
    if (i % BALLAST_SHARE == n % BALLAST_SHARE) {
      t_free(ballast[i]);
      ballast[i] = CHECK_GOT(t_malloc(BALLAST_BYTES - (size_t)i * 1000));
      memset(ballast[i], i, BALLAST_BYTES / 2);
    }
}

/* fork is the child's only thread; the blocks in `shared` were made by threads that are gone here. */
static void child_run(bool trims_first) {
  alarm(TEST_PATIENCE_SECONDS / 2);
  if (trims_first)
    t_trim(0);
  for (int i = 0; i < BALLAST; i++)
    CHECK(ballast[i][0] == (char)i && ballast[i][BALLAST_BYTES / 2 - 1] == (char)i);
  ballast_stir(0);
  for (int i = 0; i < SHARED; i++) {
    char *block = atomic_exchange(&shared[i], NULL);
    if (block)
      CHECK(block[0] == 1);
    t_free(block);
  }
  child_thread(NULL);
  if (!TEST_SANITIZED) { /* a sanitizer's own heap does not survive the fork of a threaded program */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, child_thread, NULL) == 0);
    child_thread(NULL);
    pthread_join(thread, NULL);
  }
  for (int i = 0; i < 2000; i++) {
    char *block = CHECK_GOT(t_malloc((size_t)i * 7 % 2500 + 1));
    block[0] = 1;
    t_free(atomic_exchange(&shared[i % SHARED], block));
  }
  t_trim(0);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  for (long n = 0; n < BALLAST_SHARE; n++)
    ballast_stir(n);
  pthread_t threads[THREADS];
  test_threads_start(threads, THREADS, worker, (void *)(uintptr_t)1, 1);
  for (long n = test_rounds(100, 60); n > 0; n--) {
    alarm(TEST_PATIENCE_SECONDS);
    ballast_stir(n);
    if (n % 16 == 0)
      t_trim(0);
    pid_t child = test_fork();
    if (child == 0) {
      child_run(n % 2 == 0);
      if (n % 8 == 0) { /* a fork from the forked child */
        pid_t grandchild = test_fork();
        if (grandchild == 0) {
          child_run(n % 16 == 0);
          _exit(0);
        }
        test_child_passes(grandchild);
      }
      _exit(0);
    }
    test_child_passes(child);
  }
  atomic_store(&ending, 1);
  test_threads_join(threads, THREADS);
}
