/* A thread of real-time priority forks on the only processor that the others have, where one may be in the midst of a
 * slow path. It must not spin for what cannot run meanwhile. Control `spin`: a fork that spins for the others until
 * they have freed something. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../child.h"
#include "../heap_api.h"

#define BLOCKS 500

static _Atomic bool stop;
static _Atomic unsigned long frees;

static void *work(void *unused) {
  static char *blocks[BLOCKS];
  while (!atomic_load(&stop)) {
    for (int i = 0; i < BLOCKS; i++)
      blocks[i] = CHECK_GOT(t_malloc(3000 + (size_t)i * 60));
    t_free_all(blocks, BLOCKS);
    atomic_fetch_add(&frees, BLOCKS);
  }
  return NULL;
}

static void fork_and_wait(void) {
  TEST_IN_CHILD { t_free(t_malloc(5000)); }
}

static bool spins;

static void body(void) {
  pthread_t thread;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
  while (atomic_load(&frees) == 0)
    sched_yield();
  struct sched_param priority = {.sched_priority = 1};
  CHECK(pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) == 0);
  alarm(spins ? 1 : 50);
  for (long i = test_rounds(50, 5); i > 0; i--) {
    unsigned long before = atomic_load(&frees);
    while (spins && atomic_load(&frees) < before + 100 * BLOCKS)
      ;
    fork_and_wait();
    usleep(500); /* the other gets into the midst of something */
  }
  alarm(0);
  atomic_store(&stop, true);
  pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
  spins = argc > 1 && strcmp(argv[1], "spin") == 0;
  test_begin(spins ? 1 : argc, argv);
  struct sched_param priority = {.sched_priority = 1}, normal = {0};
  test_skip_if(sched_setscheduler(0, SCHED_FIFO, &priority) != 0, "no real-time priority here");
  CHECK(sched_setscheduler(0, SCHED_OTHER, &normal) == 0);
  test_in_child(body);
}
