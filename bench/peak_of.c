/* peak_of FD COMMAND [ARGUMENT...]: runs the command and writes one JSON object to descriptor FD: its wait status,
 * seconds, CPU seconds, and the peak RSS of the largest process among it and its waited-for descendants.
 *
 * The kernel counts what a process was before exec towards its peak, so what starts a program must be smaller than
 * the program: this is; Python is not. */
#include "bench.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

int main(int argc, char **argv) {
  char *end = NULL;
  unsigned long fd = argc > 2 ? strtoul(argv[1], &end, 10) : 0;
  if (argc < 3 || end == argv[1] || *end || fd > 1023) {
    fputs("usage: peak_of FD COMMAND [ARGUMENT...]\n", stderr);
    return 2;
  }
  uint64_t start_ns = bench_clock_ns();
  pid_t pid;
  int status = 0, error = posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ);
  if (error)
    bench_die("%s: %s", argv[2], strerror(error));
  struct rusage usage;
  while (wait4(pid, &status, 0, &usage) != pid)
    if (errno != EINTR)
      bench_die("no wait: %s", strerror(errno));
  if (dprintf((int)fd, "{\"status\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"rss_peak_kb\": %ld}\n", status,
              (double)(bench_clock_ns() - start_ns) / 1e9, seconds(usage.ru_utime) + seconds(usage.ru_stime),
              usage.ru_maxrss) < 0)
    bench_die("descriptor %lu: %s", fd, strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
