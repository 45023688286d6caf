/* reporter MODE: a program that gives hakmem something to say in a moment when it should not.
 *
 *   exit            allocates, frees, ends
 *   full            one thread writes malloc_stats into a full pipe, meanwhile another forks and the child allocates
 *   data FILE       descriptor 2 is a data file by now, and a block is freed twice
 *   closed-on-exec FILE   the same with a file opened to be written only
 *   log FILE        the same after descriptor 2 was given by exec: a log
 */
#include <malloc.h>
#include <pthread.h>

#include "../child.h"

#define REPORT_SECONDS 5 /* that a report waits for its reader (os/say.c) */

static void *report(void *unused) {
  malloc_stats();
  return NULL;
}

static void full(void) {
  int ends[2];
  pthread_t thread;
  CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
  while (write(ends[1], "full", 4) > 0)
    ;
  CHECK(fcntl(ends[1], F_SETFL, 0) == 0 && dup2(ends[1], 2) == 2);
  double begun = test_seconds();
  CHECK(pthread_create(&thread, NULL, report, NULL) == 0);
  usleep(300000);
  pid_t child = fork();
  if (child == 0)
    _exit(test_opaque(malloc(1000)) == NULL);
  test_child_passes(child);
  CHECK_SAY(test_seconds() - begun < REPORT_SECONDS, "the fork waited for the report");
  pthread_join(thread, NULL);
}

static void free_twice(const char *path, int flags) {
  close(2);
  CHECK(open(path, flags | O_CREAT, 0600) == 2);
  CHECK(write(2, "a row\n", 6) == 6);
  char *block = test_opaque(malloc(300000));
  free(block);
  free(test_opaque(block));
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
  if (strcmp(mode, "exit") == 0)
    free(test_opaque(malloc(100)));
  else if (strcmp(mode, "full") == 0)
    full();
  else if (strcmp(mode, "data") == 0)
    free_twice(path, O_RDWR);
  else if (strcmp(mode, "closed-on-exec") == 0)
    free_twice(path, O_WRONLY | O_CLOEXEC);
  else if (strcmp(mode, "log") == 0) {
    char *block = test_opaque(malloc(300000));
    free(block);
    free(test_opaque(block));
  } else
    return 1;
  puts("reporter: ok");
  return 0;
}
