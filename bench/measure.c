/* measure [--cpu N] [--calls] [--env NAME=VALUE]... FD COMMAND [ARGUMENT...]: runs the command, with its variables
 * set and on one CPU if asked for, and writes one JSON object to descriptor FD: its wait status, seconds, CPU
 * seconds, page faults, and the peak RSS of the largest process among it and its waited-for descendants.
 * --calls: also their system calls, counted by the kernel at its tracepoint, which makes each a little slower;
 * null where the kernel or our rights do not permit it.
 *
 * The kernel counts what a process was before exec towards its peak, so what starts a program must be smaller than
 * the program: this is; Python is not. Its own malloc is libc's: the variables are for the command. */
#include "bench.h"
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

_Noreturn static void usage(void) {
  fputs("usage: measure [--cpu N] [--calls] [--env NAME=VALUE]... FD COMMAND [ARGUMENT...]\n", stderr);
  exit(2);
}

static unsigned long number(const char *word, unsigned long max) {
  char *end = NULL;
  errno = 0;
  unsigned long value = word ? strtoul(word, &end, 10) : 0;
  if (!word || end == word || *end || errno || value > max)
    usage();
  return value;
}

static void end_all(int number_of_signal) {
  (void)number_of_signal;
  kill(0, SIGKILL);
}

/* Nothing outlives the lab: as the leader of a process group, which it is when the lab starts it, measure kills all of
 * the group when its starter dies (the thread of it that started measure), and on SIGTERM. */
static void end_with_starter(int report_fd) {
  if (getpgrp() != getpid())
    return;
  const pid_t starter = getppid();
  struct sigaction action = {.sa_handler = end_all};
  sigaction(SIGTERM, &action, NULL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  /* It may have died before, even before main: then another process is the parent, or nobody can read the report. */
  struct pollfd report = {.fd = report_fd};
  if (getppid() != starter || (poll(&report, 1, 0) == 1 && report.revents & POLLERR))
    bench_die("the starter is gone");
}

int main(int argc, char **argv) {
  int at = 1, counter = -1;
  bool has_calls = false;
  const char *why_not;
  for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
    if (strcmp(argv[at], "--calls") == 0) {
      has_calls = true;
    } else if (strcmp(argv[at], "--cpu") == 0) {
      unsigned long cpu = number(argv[++at], CPU_SETSIZE - 1); /* CPU_SET reads its argument twice */
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cpu, &set);
      if (sched_setaffinity(0, sizeof set, &set))
        bench_die("CPU %s: %s", argv[at], strerror(errno));
    } else if (strcmp(argv[at], "--env") == 0) {
      if (++at == argc || !strchr(argv[at], '=') || putenv(argv[at]))
        usage();
    } else {
      usage();
    }
  }
  if (argc - at < 2)
    usage();
  int fd = (int)number(argv[at++], 1023);
  end_with_starter(fd);
  if (has_calls)
    counter = calls_open(CALLS_FROM_EXEC, &why_not);
  fcntl(fd, F_SETFD, FD_CLOEXEC);

  uint64_t start_ns = bench_clock_ns();
  pid_t pid;
  int status = 0, error = posix_spawnp(&pid, argv[at], NULL, NULL, argv + at, environ);
  if (error)
    bench_die("%s: %s", argv[at], strerror(error));
  struct rusage used;
  while (wait4(pid, &status, 0, &used) != pid)
    if (errno != EINTR)
      bench_die("no wait: %s", strerror(errno));
  double wall = (double)(bench_clock_ns() - start_ns) / 1e9;

  char calls[24] = "null";
  uint64_t count = 0;
  if (calls_read(counter, &count))
    snprintf(calls, sizeof calls, "%ju", (uintmax_t)count);
  if (dprintf(fd,
              "{\"status\": %d, \"seconds\": %.6f, \"user_seconds\": %.6f, \"system_seconds\": %.6f, "
              "\"rss_peak_kb\": %ld, \"faults_minor\": %ld, \"faults_major\": %ld, \"system_calls\": %s}\n",
              status, wall, seconds(used.ru_utime), seconds(used.ru_stime), used.ru_maxrss, used.ru_minflt,
              used.ru_majflt, calls) < 0)
    bench_die("descriptor %d: %s", fd, strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
