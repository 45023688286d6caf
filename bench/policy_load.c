/* policy_load NAME: one of the workloads that show what learning is worth (policy_works.c), in real time, or with
 * --events as text, by a clock of its own. --watch runs another program and measures that in the same way.
 *
 * What is measured is wall time, and memory times time: RSS at every take, give and SAMPLE_MS of a wait. */
#include "bench.h"
#include "policy_works.h"
#include "sites.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLE_MS = 4, FACTOR_MAX = 1000, TINY_SPEED = 50 };
#define MS_NS ((uint64_t)1000000)

ALL_128(SITE)
static unsigned char *(*const sites[])(size_t) = {ALL_128(SITE_NAME)};
_Static_assert(sizeof sites / sizeof *sites == LOAD_SITES, "a function for each site");

/* RSS over time, as the area under straight lines from one look to the next. */
struct area {
  int fd; /* /proc/PID/statm */
  uint64_t at_ns;
  double rss_kb, rss_peak_kb, rss_ms_kb;
};

struct running {
  struct load load; /* first: this is what the workload gets */
  bool prints_turns;
  uint64_t events;
  /* by the workload's clock */
  uint64_t now_ms;
  /* by the real one */
  struct area area;
  struct {
    unsigned char *block;
    size_t bytes;
    unsigned site;
  } slots[LOAD_SLOTS];
};

static struct running *running_of(struct load *load) { return (struct running *)load; }

/* --- as text --- */

static void print_take(struct load *load, unsigned site, unsigned slot, size_t bytes) {
  struct running *running = running_of(load);
  running->slots[slot].site = site;
  running->slots[slot].bytes = bytes;
  running->events++;
  if (!running->prints_turns)
    printf("%ju + %u %zu\n", (uintmax_t)running->now_ms, site, bytes);
}

static void print_give(struct load *load, unsigned slot) {
  struct running *running = running_of(load);
  running->events++;
  if (!running->prints_turns)
    printf("%ju - %u %zu\n", (uintmax_t)running->now_ms, running->slots[slot].site, running->slots[slot].bytes);
}

static void print_wait(struct load *load, uint32_t ms) { running_of(load)->now_ms += ms; }

static void print_turn(struct load *load) {
  struct running *running = running_of(load);
  if (running->prints_turns)
    printf("%ju\n", (uintmax_t)running->events);
}

/* --- in real time --- */

static bool look(struct area *area) {
  char text[64];
  ssize_t length = pread(area->fd, text, sizeof text - 1, 0);
  if (length <= 0)
    return false;
  text[length] = 0;
  char *end = NULL;
  strtoul(text, &end, 10);
  double rss_kb = (double)strtoul(end, NULL, 10) * (double)sysconf(_SC_PAGESIZE) / 1024;
  uint64_t now_ns = bench_clock_ns();
  area->rss_ms_kb += (area->rss_kb + rss_kb) / 2 * (double)(now_ns - area->at_ns) / MS_NS;
  area->rss_peak_kb = rss_kb > area->rss_peak_kb ? rss_kb : area->rss_peak_kb;
  area->rss_kb = rss_kb;
  area->at_ns = now_ns;
  return true;
}

static void open_area(struct area *area, const char *path) {
  area->fd = open(path, O_RDONLY | O_CLOEXEC);
  if (area->fd < 0)
    bench_die("%s: %s", path, strerror(errno));
  area->at_ns = bench_clock_ns();
}

static void real_take(struct load *load, unsigned site, unsigned slot, size_t bytes) {
  struct running *running = running_of(load);
  running->events++;
  unsigned char *block = bench_block(sites[site - 1](bytes));
  bench_touch(block, bytes, (size_t)sysconf(_SC_PAGESIZE), running->events);
  running->slots[slot].block = block;
  look(&running->area);
}

static void real_give(struct load *load, unsigned slot) {
  struct running *running = running_of(load);
  running->events++;
  free(running->slots[slot].block);
  look(&running->area);
}

static void sleep_until(uint64_t ns) {
  const struct timespec until = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
  }
}

static void real_wait(struct load *load, uint32_t ms) {
  struct area *area = &running_of(load)->area;
  uint64_t now_ns = bench_clock_ns();
  const uint64_t end_ns = now_ns + ms * MS_NS / load->speed;
  while (now_ns < end_ns) {
    uint64_t next_ns = now_ns + SAMPLE_MS * MS_NS;
    sleep_until(next_ns < end_ns ? next_ns : end_ns);
    look(area);
    now_ns = bench_clock_ns();
  }
}

static void real_turn(struct load *load) { (void)load; }

/* --- the report --- */

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

static void report(const char *name, const char *malloc_file, const struct area *area, uint64_t start_ns,
                   const struct rusage *used, uint64_t events) {
  printf("{\"work\": \"%s\", \"malloc\": \"%s\", \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"rss_ms_kb\": %.0f, "
         "\"rss_peak_kb\": %.0f, \"faults\": %ld, \"events\": %ju}\n",
         name, malloc_file, (double)(bench_clock_ns() - start_ns) / 1e9,
         seconds(used->ru_utime) + seconds(used->ru_stime), area->rss_ms_kb, area->rss_peak_kb, used->ru_minflt,
         (uintmax_t)events);
}

static const char *malloc_file(void) {
  Dl_info info;
  void *symbol = dlsym(RTLD_DEFAULT, "malloc");
  return symbol && dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "?";
}

static int run_real(const struct policy_work *work, struct running *running) {
  prctl(PR_SET_TIMERSLACK, 1);
  uint64_t start_ns = bench_clock_ns();
  open_area(&running->area, "/proc/self/statm");
  work->run(&running->load);
  look(&running->area);
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  report(work->name, malloc_file(), &running->area, start_ns, &used, running->events);
  return 0;
}

/* The program's variables are its own: this process runs on libc's malloc. */
static int watch(char **words) {
  while (words[0] && strcmp(words[0], "--env") == 0) {
    if (!words[1] || !strchr(words[1], '=') || putenv(words[1]))
      return 2;
    words += 2;
  }
  if (!words[0])
    return 2;
  uint64_t start_ns = bench_clock_ns();
  pid_t pid;
  int error = posix_spawnp(&pid, words[0], NULL, NULL, words, environ);
  if (error)
    bench_die("%s: %s", words[0], strerror(error));
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/statm", pid);
  struct area area = {0};
  open_area(&area, path);
  int status = 0;
  struct rusage used;
  while (wait4(pid, &status, WNOHANG, &used) == 0) {
    look(&area);
    sleep_until(bench_clock_ns() + MS_NS);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    bench_die("%s: %s %d", words[0], WIFEXITED(status) ? "status" : "died of signal",
              WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  area.rss_peak_kb = (double)used.ru_maxrss;
  const char *last = strrchr(words[0], '/');
  report(last ? last + 1 : words[0], "?", &area, start_ns, &used, 0);
  return 0;
}

/* --- arguments --- */

static void usage(FILE *out) {
  fputs("usage: policy_load NAME [--events | --turns] [--speed N] [--times N] [--tiny]\n"
        "       policy_load --watch [--env NAME=VALUE]... COMMAND [ARGUMENT...]\n",
        out);
}

static int help(void) {
  usage(stdout);
  puts("  NAME        the workload:");
  for (size_t i = 0; i < policy_work_count; i++)
    printf("                %-11s %s\n", policy_works[i].name, policy_works[i].about);
  puts(
      "  --events    print its events instead: MILLISECONDS + SITE BYTES of a block taken, - of one given back\n"
      "  --turns     print after how many events the program changes its ways\n"
      "  --speed N   how much faster than its own clock it runs (1; 1 to 1000); with --events: the adversary's engine\n"
      "  --times N   so many times as long (1; 1 to 1000)\n"
      "  --tiny      almost nothing: does it work?\n"
      "  --watch     run COMMAND, with its variables set, and measure that");
  return 0;
}

__attribute__((format(printf, 1, 2))) static int refuse(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fputs("policy_load: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  usage(stderr);
  return 2;
}

static bool read_factor(const char *text, unsigned *factor) {
  char *end = NULL;
  unsigned long value = text ? strtoul(text, &end, 10) : 0;
  if (!text || text[0] < '0' || text[0] > '9' || *end || value < 1 || value > FACTOR_MAX)
    return false;
  *factor = (unsigned)value;
  return true;
}

int main(int argc, char **argv) {
  static struct running running = {
      .load = {.take = real_take, .give = real_give, .wait = real_wait, .turn = real_turn}};
  const struct policy_work *work = NULL;
  struct load *load = &running.load;
  bool is_text = false;
  load->speed = load->times = 1;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "--help") == 0)
      return help();
    if (strcmp(word, "--watch") == 0)
      return watch(argv + i + 1) == 0 ? 0 : refuse("--watch takes [--env NAME=VALUE]... and a command");
    if (strcmp(word, "--events") == 0 || strcmp(word, "--turns") == 0) {
      is_text = true;
      running.prints_turns = word[2] == 't';
    } else if (strcmp(word, "--tiny") == 0) {
      load->is_tiny = true;
    } else if (strcmp(word, "--speed") == 0 || strcmp(word, "--times") == 0) {
      if (!read_factor(argv[++i], strcmp(word, "--speed") == 0 ? &load->speed : &load->times))
        return refuse("%s: '%s' is not a number from 1 to %d", word, argv[i] ? argv[i] : "", FACTOR_MAX);
    } else if (word[0] == '-') {
      return refuse("unknown option %s", word);
    } else if (work) {
      return refuse("one argument too many: %s", word);
    } else {
      for (size_t k = 0; k < policy_work_count; k++)
        work = strcmp(policy_works[k].name, word) == 0 ? &policy_works[k] : work;
      if (!work)
        return refuse("unknown workload '%s'", word);
    }
  }
  if (!work)
    return refuse("which workload?");
  if (!is_text) {
    load->speed *= load->is_tiny ? TINY_SPEED : 1;
    return run_real(work, &running);
  }
  load->take = print_take;
  load->give = print_give;
  load->wait = print_wait;
  load->turn = print_turn;
  work->run(load);
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout))
    return 0;
  fprintf(stderr, "policy_load: stdout: %s\n", strerror(errno ? errno : EIO));
  return 1;
}
