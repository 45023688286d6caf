/* startup: starts a program that does nothing, many times: what an allocator costs before it is used.
 * The program is this one, called as `startup --child` (returns at once) or `startup --child FD`
 * (writes its own peak RSS to the descriptor first). */
#include "bench.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { RSS_SAMPLES = 9 };

static int child(const char *fd) {
  if (!fd)
    return 0;
  uint64_t kb = bench_status_kb("VmHWM:");
  return write(atoi(fd), &kb, sizeof kb) == (ssize_t)sizeof kb ? 0 : 1;
}

static void spawn(char *fd) {
  char path[] = "/proc/self/exe", flag[] = "--child";
  char *argv[] = {path, flag, fd, NULL};
  pid_t pid;
  int status = 0;
  int error = posix_spawn(&pid, path, NULL, NULL, argv, environ);
  if (error)
    bench_die("no process: %s", strerror(error));
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
    bench_die("the program that does nothing failed, wait status %d", status);
}

static uint64_t spawn_for_rss(void) {
  int fds[2];
  char number[16];
  uint64_t kb;
  if (pipe(fds))
    bench_die("no pipe");
  snprintf(number, sizeof number, "%d", fds[1]);
  spawn(number);
  if (read(fds[0], &kb, sizeof kb) != (ssize_t)sizeof kb)
    bench_die("no answer from the program that does nothing");
  close(fds[0]);
  close(fds[1]);
  return kb;
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--child") == 0)
    return child(argc > 2 ? argv[2] : NULL);
  enum { COUNT, PARAMS };
  struct bench_param params[PARAMS] = {{"COUNT", 300, 1, 1000000, "processes"}};
  struct bench bench = {.name = "startup",
                        .about = "Starts a program that does nothing and waits for it; a process counts one.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  uint64_t kb[RSS_SAMPLES];
  for (int i = 0; i < RSS_SAMPLES; i++)
    kb[i] = spawn_for_rss();
  qsort(kb, RSS_SAMPLES, sizeof kb[0], compare);

  bench_start(&bench);
  for (uint64_t i = 0; i < params[COUNT].value; i++)
    spawn(NULL);
  bench_stop(&bench, params[COUNT].value);
  bench_extra(&bench, "child_rss_peak_kb", (double)kb[RSS_SAMPLES / 2]);
  bench_extra(&bench, "child_ms", bench.seconds * 1e3 / (double)params[COUNT].value);
  return bench_report(&bench, bench_mix(0, params[COUNT].value));
}
