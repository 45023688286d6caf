/* child.h: what may hang is done in a child, so that a test can say that it does. */
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include "check.h"

/* Runs `work` in a child; a CHECK fails unless it returns. Ends what the child started, too. */
static inline void test_in_child(void (*work)(void)) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    setpgid(0, 0);
    work();
    _exit(0);
  }
  int status = 0;
  pid_t ended = 0;
  for (double end = test_seconds() + TEST_PATIENCE_SECONDS; ended == 0 && test_seconds() < end; usleep(10000)) {
    ended = waitpid(child, &status, WNOHANG);
    CHECK(ended >= 0);
  }
  if (ended == 0)
    kill(-child, SIGKILL);
  CHECK_SAY(ended == child, "it hangs");
  CHECK_SAY(status == 0, "status 0x%x", status);
}
