/* A program for `hakmem-live` and `hakmem-top` to look at. It says "ready", and more where that is said, on stdout, and
 * ends when stdin does.
 *     threads N    N threads take and free small and large blocks all the time, some of each other's
 *     idle         has 4 MiB of small blocks and 32 large objects of 1 MiB
 *     fork         its child does, too: "ready CHILD"
 *     forkquiet    its child takes no memory: "ready CHILD"
 *     rawfork      its child was made without fork's handlers and takes much: "ready CHILD"
 *     exec         becomes `idle` without HAKMEM_LIVE
 *     close        closes all descriptors behind stderr, then is idle
 *     many N MIB   N threads with a heap each, MIB of memory all together
 */
#include "../threads.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LARGE ((size_t)1 << 20)
#define LARGE_COUNT 32
#define SMALL ((size_t)64)
#define SMALL_COUNT 65536
#define SHARED 64
#define SIZES 512

static _Atomic bool is_over;
static _Atomic(void *) shared[SHARED];
static size_t many_bytes;

static void *take(size_t bytes) {
  char *block = CHECK_GOT(test_opaque(malloc(bytes)));
  block[0] = 1;
  return block;
}

static void *work(void *argument) {
  uint64_t random = (uint64_t)(uintptr_t)argument;
  while (!atomic_load(&is_over)) {
    uint64_t draw = test_random(&random);
    void *block = take(draw % 50 == 0 ? LARGE : 1 + draw % SIZES * 8);
    free(atomic_exchange(&shared[draw >> 32 & (SHARED - 1)], block));
  }
  return NULL;
}

static pthread_barrier_t all_hold;

static void *hold(void *unused) {
  const size_t large = (size_t)8 << 20;
  for (size_t i = 0; i < 2000; i++)
    take(1 + i % SIZES * 16);
  for (size_t bytes = 0; bytes + large <= many_bytes; bytes += large)
    take(large);
  pthread_barrier_wait(&all_hold);
  while (!atomic_load(&is_over))
    usleep(100000);
  return NULL;
}

static void wait_for_end(void) {
  fflush(stdout);
  while (getchar() != EOF)
    ;
}

/* Slow paths, as a program has them now and then: without a background thread, they write the snapshots. */
static void stir_until_end(void) {
  fflush(stdout);
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  while (poll(&input, 1, 40) == 0)
    free(test_opaque(calloc(1, LARGE)));
}

static void run_threads(int count, void *(*body)(void *)) {
  static pthread_t threads[512];
  CHECK(count > 0 && count <= 512);
  test_threads_start(threads, count, body, (void *)(uintptr_t)1, 1);
  if (body == hold)
    pthread_barrier_wait(&all_hold);
  puts("ready");
  wait_for_end();
  atomic_store(&is_over, true);
  test_threads_join(threads, count);
}

static void hold_memory(void) {
  for (int i = 0; i < SMALL_COUNT; i++)
    take(SMALL);
  for (int i = 0; i < LARGE_COUNT; i++)
    take(LARGE);
}

static void stir(void) {
  for (int i = 0; i < 4; i++) {
    usleep(40000);
    free(test_opaque(calloc(1, LARGE)));
  }
}

static void run_fork(const char *mode) {
  bool is_raw = strcmp(mode, "rawfork") == 0;
  hold_memory();
  stir();
  int ends[2];
  CHECK(pipe(ends) == 0);
  fflush(stdout);
  pid_t child = is_raw ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a judge that gives up kills the parent only, and waits for all writers */
    bool is_quiet = strcmp(mode, "forkquiet") == 0;
    for (int i = 0; i < 100 && !is_quiet; i++)
      take(LARGE);
    CHECK(write(ends[1], "x", 1) == 1);
    while (!is_quiet)
      stir();
    for (;;)
      pause();
  }
  char said;
  CHECK(read(ends[0], &said, 1) == 1);
  printf("ready %ld\n", (long)child);
  if (is_raw)
    stir_until_end();
  else
    wait_for_end();
  kill(child, SIGKILL);
  CHECK(waitpid(child, NULL, 0) == child);
}

static void run_exec(char *program) {
  char idle[] = "idle";
  char *arguments[] = {program, idle, NULL};
  hold_memory();
  CHECK(unsetenv("HAKMEM_LIVE") == 0);
  execv(program, arguments);
  CHECK(!"execv");
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  const char *mode = argv[1];
  if (strcmp(mode, "threads") == 0) {
    run_threads(atoi(argv[2]), work);
  } else if (strcmp(mode, "many") == 0) {
    many_bytes = ((size_t)atol(argv[3]) << 20) / (size_t)atoi(argv[2]);
    CHECK(pthread_barrier_init(&all_hold, NULL, (unsigned)atoi(argv[2]) + 1) == 0);
    run_threads(atoi(argv[2]), hold);
  } else if (strcmp(mode, "fork") == 0 || strcmp(mode, "forkquiet") == 0 || strcmp(mode, "rawfork") == 0) {
    run_fork(mode);
  } else if (strcmp(mode, "exec") == 0) {
    run_exec(argv[0]);
  } else {
    bool is_close = strcmp(mode, "close") == 0;
    if (is_close)
      for (int fd = 3; fd < 1024; fd++)
        close(fd);
    hold_memory();
    stir();
    puts("ready");
    if (is_close)
      stir_until_end();
    else
      wait_for_end();
  }
}
