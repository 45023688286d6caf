#include "bench.h"

#include "soak.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void usage(const struct bench *bench, FILE *out) {
  fprintf(out, "usage: %s", bench->name);
  for (size_t i = 0; i < bench->param_count; i++)
    fprintf(out, " [%s", bench->params[i].name);
  for (size_t i = 0; i < bench->param_count; i++)
    fputc(']', out);
  fprintf(out, "%s%s%s%s [--json]\n", bench->flag ? " [" : "", bench->flag ? bench->flag : "", bench->flag ? "]" : "",
          bench->repeats ? " [--soak S [--epoch-ms N] [--epoch-fd N]]" : "");
}

static void help(const struct bench *bench) {
  usage(bench, stdout);
  printf("%s\n", bench->about);
  for (size_t i = 0; i < bench->param_count; i++) {
    const struct bench_param *p = &bench->params[i];
    printf("  %-11s %s (%ju; %ju to %ju)\n", p->name, p->text, (uintmax_t)p->value, (uintmax_t)p->min,
           (uintmax_t)p->max);
  }
  if (bench->flag)
    printf("  %-11s %s\n", bench->flag, bench->flag_text);
  printf("  %-11s %s\n", "--json", "one JSON object instead of a line");
  if (bench->repeats)
    soak_help();
}

void bench_refuse(const struct bench *bench, const char *format, ...) {
  va_list list;
  usage(bench, stderr);
  va_start(list, format);
  fprintf(stderr, "%s: ", bench->name); /* `hak bench` shows the last line */
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  exit(2);
}

void bench_die(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fputs("bench: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  exit(1);
}

void bench_arguments(struct bench *bench, int argc, char **argv) {
  size_t given = 0;
  bench->epoch_fd = STDOUT_FILENO;
  for (int i = 1; i < argc; i++) {
    const char *text = argv[i];
    if (strcmp(text, "--help") == 0) {
      help(bench);
      exit(0);
    }
    if (strcmp(text, "--json") == 0) {
      bench->json = true;
      continue;
    }
    if (bench->flag && strcmp(text, bench->flag) == 0) {
      bench->flag_given = true;
      continue;
    }
    if (soak_option(bench, argc, argv, &i))
      continue;
    if (strncmp(text, "--", 2) == 0)
      bench_refuse(bench, "unknown option %s", text);
    if (given == bench->param_count)
      bench_refuse(bench, "one argument too many: %s", text);
    struct bench_param *p = &bench->params[given++];
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || value < p->min || value > p->max)
      bench_refuse(bench, "%s: '%s' is not a number from %ju to %ju", p->name, text, (uintmax_t)p->min,
                   (uintmax_t)p->max);
    p->value = value;
  }
  soak_open(bench);
  for (size_t i = 1; i < bench->param_count; i++) {
    const struct bench_param *p = &bench->params[i - 1];
    if (strncmp(p->name, "MIN", 3) == 0 && p->value > p[1].value)
      bench_refuse(bench, "%s %ju is over %s %ju", p->name, (uintmax_t)p->value, p[1].name, (uintmax_t)p[1].value);
  }
}

void *bench_table(struct bench *bench, size_t count, size_t item_bytes) {
  size_t bytes = count * item_bytes;
  void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED)
    bench_die("no memory for a table of %zu bytes", bytes);
  madvise(table, bytes, MADV_NOHUGEPAGE);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t at = 0; at < bytes; at += page)
    ((volatile char *)table)[at] = 0;
  bench->tables_kb += (bytes + page - 1) / page * page / 1024;
  return table;
}

static uint64_t clock_read(clockid_t id) {
  struct timespec now;
  clock_gettime(id, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bench_clock_ns(void) { return clock_read(CLOCK_MONOTONIC); }
uint64_t bench_cpu_ns(void) { return clock_read(CLOCK_PROCESS_CPUTIME_ID); }

uint64_t bench_status_kb(const char *field) { return bench_file_number("/proc/self/status", field); }

uint64_t bench_file_number(const char *path, const char *field) {
  char text[8192];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0)
    return 0;
  text[length] = 0;
  const char *at = strstr(text, field);
  uint64_t number = 0;
  if (!at)
    return 0;
  for (at += strlen(field); *at && !isdigit((unsigned char)*at); at++) {
  }
  for (; isdigit((unsigned char)*at); at++)
    number = number * 10 + (uint64_t)(*at - '0');
  return number;
}

uint64_t bench_faults(void) {
  struct rusage usage_now;
  getrusage(RUSAGE_SELF, &usage_now);
  return (uint64_t)usage_now.ru_minflt;
}

void bench_sleep_ns(uint64_t ns) {
  struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  while (nanosleep(&left, &left) && errno == EINTR) {
  }
}

void bench_start(struct bench *bench) {
  bench->start_cpu_ns = clock_read(CLOCK_PROCESS_CPUTIME_ID);
  soak_start(bench);
  bench->start_ns = bench_clock_ns();
}

void bench_stop(struct bench *bench, uint64_t ops) {
  uint64_t end_ns = bench_clock_ns(), end_cpu_ns = clock_read(CLOCK_PROCESS_CPUTIME_ID);
  struct rusage usage_now;
  getrusage(RUSAGE_SELF, &usage_now);
  bench->ops = ops;
  bench->seconds = (double)(end_ns - bench->start_ns) / 1e9;
  bench->cpu_seconds = (double)(end_cpu_ns - bench->start_cpu_ns) / 1e9;
  bench->faults_minor = (uint64_t)usage_now.ru_minflt;
  bench->faults_major = (uint64_t)usage_now.ru_majflt;
  bench->rss_kb = bench_status_kb("VmRSS:");
  bench->rss_peak_kb = bench_status_kb("VmHWM:");
}

void bench_extra(struct bench *bench, const char *name, double value) {
  if (bench->extra_count == BENCH_EXTRAS_MAX)
    bench_die("more than %d extra numbers", BENCH_EXTRAS_MAX);
  bench->extras[bench->extra_count].name = name;
  bench->extras[bench->extra_count++].value = value;
}

/* The file that serves malloc, so that a preload that did not take place cannot go unnoticed. */
static const char *malloc_file(void) {
#ifdef BENCH_FAST
  return "inlined";
#else
  Dl_info info;
  void *symbol = dlsym(RTLD_DEFAULT, "malloc");
  return symbol && dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "?";
#endif
}

static void print_lower(FILE *out, const char *name) {
  for (; *name; name++)
    fputc(tolower((unsigned char)*name), out);
}

static void print_json(FILE *out, const struct bench *bench, double rate, uint64_t hash) {
  fprintf(out, "{\"name\": \"%s\", \"parameters\": {", bench->name);
  for (size_t i = 0; i < bench->param_count; i++) {
    fprintf(out, "%s\"", i ? ", " : "");
    print_lower(out, bench->params[i].name);
    fprintf(out, "\": %ju", (uintmax_t)bench->params[i].value);
  }
  if (bench->flag)
    fprintf(out, "%s\"%s\": %s", bench->param_count ? ", " : "", bench->flag + 2, bench->flag_given ? "true" : "false");
  fprintf(out, "}, \"malloc\": \"");
  for (const char *c = malloc_file(); *c; c++)
    fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
  fprintf(out, "\", \"operations\": %ju, \"seconds\": %.9f, \"cpu_seconds\": %.9f, \"ops_per_s\": %.1f",
          (uintmax_t)bench->ops, bench->seconds, bench->cpu_seconds, rate);
  fprintf(out,
          ", \"rss_kb\": %ju, \"rss_peak_kb\": %ju, \"tables_kb\": %ju, \"faults_minor\": %ju, \"faults_major\": %ju",
          (uintmax_t)bench->rss_kb, (uintmax_t)bench->rss_peak_kb, (uintmax_t)bench->tables_kb,
          (uintmax_t)bench->faults_minor, (uintmax_t)bench->faults_major);
  for (size_t i = 0; i < bench->extra_count; i++)
    fprintf(out, ", \"%s\": %.9g", bench->extras[i].name, bench->extras[i].value);
  if (bench->soak_seconds > 0)
    fprintf(out, ", \"rounds\": %ju", (uintmax_t)bench->rounds);
  if (bench->json_more)
    bench->json_more(out);
  fprintf(out, ", \"hash\": \"%016jx\"}\n", (uintmax_t)hash);
}

static void print_line(FILE *out, const struct bench *bench, double rate, uint64_t hash) {
  fprintf(out, "%s%s%s", bench->name, bench->flag_given ? " " : "", bench->flag_given ? bench->flag : "");
  for (size_t i = 0; i < bench->param_count; i++)
    fprintf(out, " %ju", (uintmax_t)bench->params[i].value);
  double scaled = rate >= 1e6 ? rate / 1e6 : rate >= 1e3 ? rate / 1e3 : rate;
  fprintf(out, ": %.2f %sops/s, %ju in %.3f s, rss %ju KB, peak %ju KB (tables %ju), faults %ju+%ju", scaled,
          rate >= 1e6   ? "M"
          : rate >= 1e3 ? "K"
                        : "",
          (uintmax_t)bench->ops, bench->seconds, (uintmax_t)bench->rss_kb, (uintmax_t)bench->rss_peak_kb,
          (uintmax_t)bench->tables_kb, (uintmax_t)bench->faults_minor, (uintmax_t)bench->faults_major);
  for (size_t i = 0; i < bench->extra_count; i++)
    fprintf(out, ", %s %.6g", bench->extras[i].name, bench->extras[i].value);
  fprintf(out, ", hash %016jx\n", (uintmax_t)hash);
}

int bench_report(struct bench *bench, uint64_t hash) {
  FILE *out = soak_report_file(bench);
  double rate = bench->seconds > 0 ? (double)bench->ops / bench->seconds : 0;
  if (bench->json)
    print_json(out, bench, rate, hash);
  else
    print_line(out, bench, rate, hash);
  errno = 0;
  if (fflush(out) || ferror(out))
    bench_die("the report: %s", strerror(errno ? errno : EIO));
  return 0;
}

pthread_t bench_thread(void *(*body)(void *), void *argument) {
  pthread_t thread;
  int error = pthread_create(&thread, NULL, body, argument);
  if (error)
    bench_die("no thread: %s", strerror(error));
  return thread;
}

void bench_join(pthread_t thread) {
  int error = pthread_join(thread, NULL);
  if (error)
    bench_die("no join: %s", strerror(error));
}
