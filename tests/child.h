/* child.h: children of tests. What may hang is done in one, so that a test can say that it does. */
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include "check.h"

static inline pid_t test_fork(void) {
  pid_t child = fork();
  CHECK(child >= 0);
  return child;
}

/* Waits for a child's end. */
static inline void test_child_passes(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_SAY(status == 0, "status 0x%x", status);
}

/* TEST_IN_CHILD { ... } does it in a child, whose end is waited for. */
#define TEST_IN_CHILD                                                                                                  \
  for (pid_t test_child = -1; test_child < 0; test_child == 0 ? _exit(0) : test_child_passes(test_child))              \
    if ((test_child = test_fork()) == 0)

/* Runs `work` in a child. Returns its wait status; what it wrote to stderr comes in `said`. */
static inline int test_child_says(void (*work)(void *), void *argument, char *said, size_t said_bytes) {
  int ends[2], status;
  pid_t ended;
  CHECK(pipe(ends) == 0);
  fflush(NULL);
  pid_t child = test_fork();
  if (child == 0) {
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    work(argument);
    _exit(0);
  }
  close(ends[1]);
  said[test_read(ends[0], said, said_bytes - 1)] = 0;
  close(ends[0]);
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
    ;
  CHECK(ended == child);
  char *emulators = TEST_EMULATED ? strstr(said, "qemu: ") : NULL; /* a line of its own */
  if (emulators)
    *emulators = 0;
  return status;
}

/* Waits for a child's end, too, but only so long. Then it ends the child and its process group. */
static inline void test_child_passes_within(pid_t child, double seconds) {
  int status = 0;
  pid_t ended = 0;
  for (double end = test_seconds() + seconds; ended == 0 && test_seconds() < end; usleep(1000)) {
    ended = waitpid(child, &status, WNOHANG);
    CHECK(ended >= 0);
  }
  if (ended == 0) {
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
  }
  CHECK_SAY(ended == child, "it hangs");
  CHECK_SAY(status == 0, "status 0x%x", status);
}

/* Runs `work` in a child; a CHECK fails unless it returns. Ends what the child started, too. */
static inline void test_in_child(void (*work)(void)) {
  pid_t child = test_fork();
  if (child == 0) {
    setpgid(0, 0);
    work();
    _exit(0);
  }
  test_child_passes_within(child, TEST_PATIENCE_SECONDS);
}
