/* vfork + exec, posix_spawn, popen and system from several threads at once, while others allocate. */
#include <spawn.h>
#include <stdatomic.h>

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

extern char **environ;
static _Atomic int ending;

static void *allocator(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  while (!atomic_load_explicit(&ending, memory_order_relaxed)) {
    void *block = CHECK_GOT(t_malloc(test_random(&seed) % 5000 + 1));
    t_free(block);
  }
  return NULL;
}

/* The child runs on the parent's memory and thread state until it is another program. */
__attribute__((noinline)) static pid_t vfork_exec(char *const *words) {
  pid_t child = vfork();
  if (child == 0) {
    execv("/bin/sh", words);
    _exit(127);
  }
  return child;
}

/* musl closes a stream's descriptor before it takes the stream out of its list. popen in another thread gets the
 * number, finds the old stream in the list, and closes its own pipe in the child: EBADF. So there one thread at a time
 * has one. */
#ifdef __GLIBC__
static void streams_lock(void) {}
static void streams_unlock(void) {}
#else
static pthread_mutex_t streams = PTHREAD_MUTEX_INITIALIZER;
static void streams_lock(void) { CHECK(pthread_mutex_lock(&streams) == 0); }
static void streams_unlock(void) { CHECK(pthread_mutex_unlock(&streams) == 0); }
#endif

static void *spawner(void *argument) {
  char *const words[] = {"sh", "-c", "exit 0", NULL};
  for (long n = (intptr_t)argument; n > 0; n--) {
    pid_t child = vfork_exec(words);
    CHECK(child > 0);
    test_child_passes(child);
    CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0);
    test_child_passes(child);
    streams_lock();
    FILE *pipe = popen("echo hello", "r");
    CHECK_SAY(pipe != NULL, "errno %d", errno);
    char line[16] = "";
    CHECK(fgets(line, sizeof line, pipe) && strcmp(line, "hello\n") == 0);
    CHECK(pclose(pipe) == 0);
    streams_unlock();
    CHECK(system("exit 3") == 3 << 8);
  }
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  alarm(test_long ? 1000 : TEST_PATIENCE_SECONDS);
  pthread_t allocators[2];
  test_threads_start(allocators, 2, allocator, (void *)(uintptr_t)1, 1);
  long rounds = test_rounds(20, 20);
  test_threads_run(3, spawner, (void *)(intptr_t)rounds, 0);
  atomic_store(&ending, 1);
  test_threads_join(allocators, 2);
}
