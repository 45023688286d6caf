/* Children that no fork handler knows of, in a program with a big heap of which memory is given back: they allocate,
 * free and end, and so does the parent after them.
 *     raw _Fork     with a copy of the memory
 *     raw clone     the same by clone, after which the C library believes that the thread is the parent's; and the
 *                   child has a second thread, which gives memory back all the time
 *     raw vm        clone with CLONE_VM and CLONE_VFORK: in the parent's memory, while the parent waits
 *     raw vfork     the same
 * A child in the parent's memory comes before the parent is big, and is so itself: the thread that gives memory back
 * must not be started there, or the parent never gets one.
 * argv[2] on: options of hakmem, NAME=VALUE each, for the environment.
 */
#include <sched.h>

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

#define HEAP_BLOCKS 64000
#define BLOCK_BYTES 1000
#define CHILD_BLOCKS 20000

static char *blocks[HEAP_BLOCKS], *childs[CHILD_BLOCKS];

static void churn(char **list, int count, size_t bytes) {
  for (int i = 0; i < count; i++) {
    list[i] = CHECK_GOT(t_malloc(bytes));
    memset(list[i], i, bytes);
  }
  for (int i = 0; i < count; i++) {
    CHECK(list[i][bytes - 1] == (char)i);
    t_free(list[i]);
  }
}

static int be_child(void *unused) {
  alarm(TEST_PATIENCE_SECONDS); /* ends a child that hangs */
  churn(childs, CHILD_BLOCKS, BLOCK_BYTES);
  for (int i = 0; i < 20; i++)
    t_free(t_malloc(1000000));
  return 0;
}

static void *trim(void *is_over) {
  do {
    t_free(CHECK_GOT(t_malloc(BLOCK_BYTES)));
    t_trim(0);
  } while (!__atomic_load_n((int *)is_over, __ATOMIC_ACQUIRE));
  return NULL;
}

static int be_child_of_two(void *unused) {
  pthread_t other;
  int is_over = 0;
  CHECK(pthread_create(&other, NULL, trim, &is_over) == 0);
  be_child(NULL);
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  CHECK(pthread_join(other, NULL) == 0);
  return 0;
}

extern pid_t _Fork(void) __attribute__((weak)); /* not in every libc */

static void wait_for(pid_t child) {
  CHECK(child >= 0);
  test_child_passes_within(child, TEST_PATIENCE_SECONDS);
}

/* A program that does nothing gets small. */
static void idle(void) {
  churn(blocks, HEAP_BLOCKS, BLOCK_BYTES);
  double end = test_seconds() + TEST_PATIENCE_SECONDS;
  while (test_rss_kib() > HEAP_BLOCKS * (BLOCK_BYTES / 1000) / 2 && test_seconds() < end)
    usleep(100000);
  CHECK_SAY(test_seconds() < end, "%ld KiB stay resident", test_rss_kib());
}

static pid_t child_begin(const char *kind) {
  static char stack[1 << 20] __attribute__((aligned(64)));
  if (strcmp(kind, "vm") == 0)
    return clone(be_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
  if (strcmp(kind, "clone") == 0)
    return clone(be_child_of_two, stack + sizeof stack, SIGCHLD, NULL);
  pid_t child = strcmp(kind, "vfork") == 0 ? vfork() : _Fork();
  if (child == 0)
    _exit(be_child(NULL));
  return child;
}

static void again(int argc, char **argv) {
  if (argc <= 2 || getenv("TEST_AGAIN"))
    return;
  setenv("TEST_AGAIN", "1", 1);
  for (int i = 2; i < argc; i++)
    if (strchr(argv[i], '='))
      CHECK(putenv(argv[i]) == 0);
  execv("/proc/self/exe", argv);
  test_skip("/proc/self/exe cannot be executed");
}

int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "_Fork";
  again(argc, argv);
  test_begin(argc, argv);
  test_skip_if(strcmp(kind, "_Fork") == 0 && _Fork == NULL, "this libc has no _Fork");
  if (strcmp(kind, "clone") == 0) /* children are noticed from the second thread on */
    test_thread_run(trim, &(int){1});
  if (kind[0] == 'v') {
    wait_for(child_begin(kind));
    if (argc == 2 && TEST_RSS_COUNTS)
      idle();
  }
  for (int i = 0; i < HEAP_BLOCKS; i++) {
    blocks[i] = CHECK_GOT(t_malloc(BLOCK_BYTES));
    memset(blocks[i], i, BLOCK_BYTES);
  }
  for (long round = test_rounds(40, 10); round > 0; round--) {
    churn(childs, CHILD_BLOCKS, BLOCK_BYTES); /* something is due to be given back */
    wait_for(child_begin(kind));
  }
  pid_t child = test_fork(); /* whatever a child left behind, a fork must not wait for it */
  if (child == 0)
    _exit(be_child(NULL));
  wait_for(child);
  for (int i = 0; i < HEAP_BLOCKS; i++)
    CHECK(blocks[i][BLOCK_BYTES - 1] == (char)i);
}
