#include "soak.h"

#include "bench.h"
#include "calls.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { EPOCH_MS_DEFAULT = 1000, LINE_BYTES = 320 };

static volatile sig_atomic_t stop_wanted;
static int calls_fd = -1; /* the kernel's counter of system calls; -1: there is none */

/* What an epoch is the difference of. */
struct reading {
  uint64_t ns, cpu_ns, calls, faults_minor, faults_major;
};
static struct reading epoch_first;
static uint64_t soak_first_ns, epoch_ops;
static uint64_t rss_highest_kb; /* the kernel's own peak can be off by what it has not summed up yet */

/* Also how soak_report_file and bench_again know that this is a soak. */
static bool soaks(const struct bench *bench) { return bench->soak_seconds > 0; }

static double number(const struct bench *bench, const char *name, const char *text, double low, double high) {
  char *end = NULL;
  double value = text ? strtod(text, &end) : 0;
  if (!text || end == text || *end || !isfinite(value) || value < low || value > high)
    bench_refuse(bench, "%s: '%s' is not a number from %g to %g", name, text ? text : "", low, high);
  return value;
}

bool soak_option(struct bench *bench, int argc, char **argv, int *at) {
  const char *name = argv[*at], *text = *at + 1 < argc ? argv[*at + 1] : NULL;
  if (!bench->repeats)
    return false;
  if (strcmp(name, "--soak") == 0)
    bench->soak_seconds = number(bench, name, text, 1e-3, 1e8);
  else if (strcmp(name, "--epoch-ms") == 0)
    bench->epoch_ms = (uint64_t)number(bench, name, text, 1, 1e9);
  else if (strcmp(name, "--epoch-fd") == 0)
    bench->epoch_fd = (int)number(bench, name, text, 0, 1 << 20);
  else
    return false;
  ++*at;
  return true;
}

void soak_help(void) {
  printf("  %-11s %s\n", "--soak S", "work for S seconds, round after round, with a line of CSV each second");
  printf("  %-11s %s\n", "--epoch-ms N", "a line each N milliseconds (1000)");
  printf("  %-11s %s\n", "--epoch-fd N", "where the lines go (1; the report is on stderr then)");
}

static void stop_ask(int number_of_signal) {
  (void)number_of_signal;
  stop_wanted = 1;
}

void soak_open(struct bench *bench) {
  if (!soaks(bench))
    return;
  if (!bench->epoch_ms)
    bench->epoch_ms = EPOCH_MS_DEFAULT;
  struct sigaction action = {.sa_handler = stop_ask, .sa_flags = SA_RESTART};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  const char *why;
  calls_fd = calls_open(CALLS_FROM_HERE, &why);
  if (calls_fd < 0)
    fprintf(stderr, "%s: system calls are not counted: %s\n", bench->name, why);
}

static uint64_t calls_now(void) {
  uint64_t count = 0;
  return calls_read(calls_fd, &count) ? count : 0;
}

/* An epoch is closed and the next one opened in this order, so that what is done in between belongs to neither: of
 * the system calls made here an epoch sees one, the read that closes it. */
static struct reading epoch_close(void) {
  struct reading last;
  struct rusage used;
  last.ns = bench_clock_ns();
  last.calls = calls_now();
  last.cpu_ns = bench_cpu_ns();
  getrusage(RUSAGE_SELF, &used);
  last.faults_minor = (uint64_t)used.ru_minflt;
  last.faults_major = (uint64_t)used.ru_majflt;
  return last;
}

static void epoch_open(void) {
  epoch_first = epoch_close();
  epoch_first.calls = calls_now();
  epoch_first.ns = bench_clock_ns();
  epoch_ops = 0;
}

static void write_all(const struct bench *bench, const char *text, size_t length) {
  while (length) {
    ssize_t done = write(bench->epoch_fd, text, length);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      bench_die("the epochs cannot be written: %s", strerror(errno));
    text += done;
    length -= (size_t)done;
  }
}

void soak_start(struct bench *bench) {
  static const char names[] = "time_s,epoch_ops,ops_per_s,rss_kb,rss_peak_kb,epoch_faults_minor,epoch_faults_major,"
                              "epoch_cpu_seconds,epoch_system_calls\n";
  if (!soaks(bench))
    return;
  write_all(bench, names, sizeof names - 1);
  epoch_open();
  soak_first_ns = epoch_first.ns;
}

/* Whole numbers only: printf of a double may ask for memory. */
static void epoch_write(const struct bench *bench) {
  struct reading last = epoch_close();
  char line[LINE_BYTES], calls[24] = "";
  uint64_t at_ns = last.ns - soak_first_ns, cpu_ns = last.cpu_ns - epoch_first.cpu_ns;
  uint64_t rate_tenths = (uint64_t)((double)epoch_ops * 1e10 / (double)(last.ns - epoch_first.ns));
  uint64_t rss_kb = bench_status_kb("VmRSS:"), peak_kb = bench_status_kb("VmHWM:");
  peak_kb = peak_kb > rss_kb ? peak_kb : rss_kb;
  rss_highest_kb = rss_highest_kb > peak_kb ? rss_highest_kb : peak_kb;
  if (calls_fd >= 0)
    snprintf(calls, sizeof calls, "%ju", (uintmax_t)(last.calls - epoch_first.calls - 1));
  int length = snprintf(line, sizeof line, "%ju.%06ju,%ju,%ju.%ju,%ju,%ju,%ju,%ju,%ju.%06ju,%s\n",
                        (uintmax_t)(at_ns / 1000000000), (uintmax_t)(at_ns % 1000000000 / 1000), (uintmax_t)epoch_ops,
                        (uintmax_t)(rate_tenths / 10), (uintmax_t)(rate_tenths % 10), (uintmax_t)rss_kb,
                        (uintmax_t)rss_highest_kb, (uintmax_t)(last.faults_minor - epoch_first.faults_minor),
                        (uintmax_t)(last.faults_major - epoch_first.faults_major), (uintmax_t)(cpu_ns / 1000000000),
                        (uintmax_t)(cpu_ns % 1000000000 / 1000), calls);
  write_all(bench, line, (size_t)length);
}

bool bench_again(struct bench *bench, uint64_t ops) {
  bench->rounds++;
  bench->ops += ops;
  if (!soaks(bench))
    return false;
  epoch_ops += ops;
  uint64_t now = bench_clock_ns();
  if (now - epoch_first.ns >= bench->epoch_ms * 1000000) {
    epoch_write(bench);
    epoch_open();
  }
  return !stop_wanted && (double)(now - soak_first_ns) < bench->soak_seconds * 1e9;
}

FILE *soak_report_file(const struct bench *bench) {
  return soaks(bench) && bench->epoch_fd == STDOUT_FILENO ? stderr : stdout;
}
