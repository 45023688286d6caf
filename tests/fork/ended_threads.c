/* A fork's child does no work for the threads that ended: it touches few pages of theirs.
 *     ended_threads           as the options are
 *     ended_threads counted   with HAKMEM_COUNT=1, where a heap has much more state */
#include <sys/resource.h>

#include "../child.h"
#include "../reclaim/again.h"
#include "../threads.h"

#define THREADS 1000
#define STACK_BYTES (64 * 1024)
#define FAULTS_OF_THREAD 2 /* at most, on average */

static pthread_barrier_t all_are_there;

static void *work(void *unused) {
  for (size_t size = 16; size <= 2048; size += 64)
    t_free(t_malloc(size));
  pthread_barrier_wait(&all_are_there);
  return unused;
}

static void threads_run(void) {
  static pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&all_are_there, NULL, THREADS) == 0);
  test_threads_start_small(threads, THREADS, STACK_BYTES, work);
  test_threads_join(threads, THREADS);
}

/* Page faults of a child that does nothing. */
static long faults_of_fork(void) {
  struct rusage usage;
  int status;
  pid_t child = test_fork();
  if (child == 0)
    _exit(0);
  CHECK(wait4(child, &status, 0, &usage) == child && status == 0);
  return usage.ru_minflt;
}

int main(int argc, char **argv) {
  test_begin_with(argc, argv, "HAKMEM_COUNT", argc > 1 && strcmp(argv[1], "counted") == 0 ? "on" : "off");
  t_free(t_malloc(100));
  faults_of_fork();
  long before = faults_of_fork();
  threads_run();
  faults_of_fork(); /* the last threads' heaps may be swept by this one */
  long after = faults_of_fork();
  CHECK_SAY(after - before < THREADS * FAULTS_OF_THREAD, "%ld page faults in a child, %ld before %d threads", after,
            before, THREADS);
  printf("ended_threads: ok, %ld page faults, %ld before\n", after, before);
}
