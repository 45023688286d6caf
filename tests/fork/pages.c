/* What the fork handlers touch: the child of a fork has few page faults more than one that no handler prepared. */
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../heap_api.h"

#define FAULTS_OF_HANDLERS 16 /* at most: 11 to 15, as the loader places the pages; five are the C library's */

/* Page faults of a child that ends at once. */
static long faults_of(pid_t child) {
  struct rusage usage;
  int status;
  CHECK(child >= 0);
  if (child == 0)
    syscall(SYS_exit_group, 0);
  CHECK(wait4(child, &status, 0, &usage) == child && status == 0);
  return usage.ru_minflt;
}

static pid_t raw_fork(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

int main(int argc, char **argv) {
  test_begin(argc, argv);
  for (size_t size = 16; size <= 2048; size += 64)
    t_free(t_malloc(size));
  long prepared = 0, raw = 0;
  for (int i = 0; i < 3; i++) { /* the last counts: whatever is done once is done */
    raw = faults_of(raw_fork());
    prepared = faults_of(fork());
  }
  CHECK_SAY(prepared <= raw + FAULTS_OF_HANDLERS, "%ld page faults, %ld without handlers", prepared, raw);
  printf("pages: ok, %ld page faults, %ld without handlers\n", prepared, raw);
}
