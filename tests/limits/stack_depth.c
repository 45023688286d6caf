/* No call takes more than STACK_BYTES of the caller's stack, which may be a coroutine's of 8 KiB: also not the first
 * one of a second thread, which counts the machine's nodes, and those at 16 MiB, which read the cgroup's limits. The
 * calls run in a signal handler on a stack that was filled with a pattern. malloc_stats takes at most
 * STATS_BYTES.
 *
 *   deep, deep_stats   the handler of the calls, or that of malloc_stats, takes more itself: the test must fail */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "../heap_api.h"

#define STACK_BYTES ((size_t)4 << 10)
#define STATS_BYTES ((size_t)6 << 10)
#define WHOLE_BYTES ((size_t)256 << 10)
#define PATTERN 0x5a
#define COUNT 600

static char *stack, *top;
static void *blocks[COUNT];
static size_t own_bytes, own_stats_bytes;

static void call_all(int signal) {
  (void)signal;
  top = __builtin_frame_address(0);
  if (own_bytes > 0)
    memset(test_opaque(__builtin_alloca(own_bytes)), 1, own_bytes);
  for (size_t i = 0; i < COUNT; i++)
    blocks[i] = test_opaque(t_malloc(i % 2 ? 100000 : i * 16 + 1));
  for (size_t i = 0; i < COUNT; i += 3)
    blocks[i] = test_opaque(t_realloc(blocks[i], 150000));
  for (size_t i = 0; i < COUNT; i++)
    t_free(blocks[i]);
  t_trim(0);
}

static void call_stats(int signal) {
  (void)signal;
  top = __builtin_frame_address(0);
  if (own_stats_bytes > 0)
    memset(test_opaque(__builtin_alloca(own_stats_bytes)), 1, own_stats_bytes);
  malloc_stats();
}

/* Runs a signal's handler, and checks how much it took of its stack. */
static void measure_handler(int signal, size_t bytes_max, const char *name) {
  CHECK(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = WHOLE_BYTES}, NULL) == 0);
  memset(stack, PATTERN, WHOLE_BYTES);
  CHECK(raise(signal) == 0);
  char *used = stack;
  while (*used == PATTERN)
    used++;
  CHECK_SAY((size_t)(top - used) <= bytes_max, "%s: %zu bytes of stack", name, (size_t)(top - used));
  CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
}

static void *measure(void *name) {
  measure_handler(SIGUSR1, STACK_BYTES, name);
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  own_bytes = argc > 1 && strcmp(argv[1], "deep") == 0 ? STACK_BYTES : 0;
  own_stats_bytes = argc > 1 && strcmp(argv[1], "deep_stats") == 0 ? STATS_BYTES : 0;
  pthread_t thread;
  stack = mmap(NULL, WHOLE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(stack != MAP_FAILED);
  CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = call_all, .sa_flags = SA_ONSTACK}, NULL) == 0);
  CHECK(sigaction(SIGUSR2, &(struct sigaction){.sa_handler = call_stats, .sa_flags = SA_ONSTACK}, NULL) == 0);
  t_free(test_opaque(t_realloc(test_opaque(t_malloc(1)), 2))); /* binds the names */
  CHECK(pthread_create(&thread, NULL, measure, "a second thread") == 0 && pthread_join(thread, NULL) == 0);
  measure("the first thread");
  malloc_stats(); /* binds the name */
  measure_handler(SIGUSR2, STATS_BYTES, "malloc_stats");
}
