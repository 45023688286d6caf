/* What the fork handlers write: the child of a fork has few pages of its own more than one that no handler prepared.
 * Page faults are not counted: those on code depend on where the linker and the loader place it. */
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../heap_api.h"

#define KB_OF_HANDLERS 28 /* at most: 20, of which 12 are the C library's */

/* KiB of pages in writable mappings that were written and that no other process shares with this one. */
static long kb_written(pid_t process) {
  char path[64], line[512], rights[8];
  long kb = 0, more;
  int is_writable = 0;
  snprintf(path, sizeof path, "/proc/%d/smaps", (int)process);
  FILE *file = fopen(path, "r");
  CHECK(file != NULL);
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "%*x-%*x %7s", rights) == 1)
      is_writable = rights[1] == 'w';
    else if (is_writable && sscanf(line, "Private_Dirty: %ld kB", &more) == 1)
      kb += more;
  }
  CHECK(fclose(file) == 0 && kb > 0);
  return kb;
}

/* The same of a child that does nothing. It says so by a byte, and is killed. */
static long kb_of(pid_t child, int ends[2]) {
  int status;
  char byte;
  CHECK(child >= 0);
  if (child == 0) {
    syscall(SYS_write, ends[1], "", 1);
    for (;;)
      syscall(SYS_ppoll, NULL, 0L, NULL, NULL, 0L);
  }
  CHECK(read(ends[0], &byte, 1) == 1);
  long kb = kb_written(child);
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
  return kb;
}

static pid_t raw_fork(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

int main(int argc, char **argv) {
  int ends[2];
  test_begin(argc, argv);
  CHECK(pipe(ends) == 0);
  for (size_t size = 16; size <= 2048; size += 64)
    t_free(t_malloc(size));
  long prepared = 0, raw = 0;
  for (int i = 0; i < 3; i++) { /* the last counts: whatever is done once is done */
    raw = kb_of(raw_fork(), ends);
    prepared = kb_of(fork(), ends);
  }
  CHECK_SAY(prepared <= raw + KB_OF_HANDLERS, "%ld KiB written, %ld without handlers", prepared, raw);
  printf("pages: ok, %ld KiB, %ld without handlers\n", prepared, raw);
}
