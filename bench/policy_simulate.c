/* policy_simulate: what every strategy, and the engine that learns, would have cost on a recorded stream of events. No
 * memory is touched and no clock is asked: the same stream gives the same figures, bit for bit. */
#include "policy_stream.h"

#include "adapt/policy_state.h"
#include "adapt/strategy_words.h"
#include "inspect/file.h"
#include "tools/policy_disk.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u
#define DELAY_MS_MAX 3600000u /* that of the option purge_delay_ms */
#define FAULT_NS 500u
#define FAULT_NS_MAX 1000000u
#define PURGE_PAGE_NS 60u
#define PURGE_CALL_NS 800u
#define MAP_NS 2500u
#define WRITER "policy_simulate"

struct snapshot {
  uint64_t event;
  struct policy_totals totals;
};

static struct {
  struct policy_table table;
  struct policy_place places[POLICY_ARMS];
  uint32_t delay_ms, fault_ns;
  uint64_t events, ms;
  uint64_t each; /* 0: no snapshots */
  struct snapshot *snapshots;
  size_t snapshot_count, snapshot_room;
  struct policy_module modules[POLICY_MODULES]; /* of the sites, for --save */
  const char *load, *save;
  bool is_json;
} run = {.delay_ms = 1000, .fault_ns = FAULT_NS};

static const char usage[] =
    "usage: policy_simulate [--delay MS] [--fault NS] [--load FILE] [--save FILE] [--each N] [--json] TRACE\n";
static const char help[] =
    "What it would cost to keep freed large blocks for a while, by each strategy and by the engine that learns\n"
    "(HAKMEM_POLICY=evolving): page faults, system calls, and rent for idle memory.\n"
    "  TRACE        a trace of `hak record`; or text, a line an event, - for stdin:\n"
    "                 MILLISECONDS + SITE BYTES   a block taken      MILLISECONDS - SITE BYTES   a block freed\n"
    "  --delay MS   idle time that costs as much as a page fault (1000)\n"
    "  --fault NS   what a page fault costs (500)\n"
    "  --load FILE  begin with ratings that were learned before\n"
    "  --save FILE  write what was learned, as HAKMEM_POLICY_FILE does\n"
    "  --each N     the sums after every N events, too; with --json only\n"
    "  --json       one line for programs, times in nanoseconds\n"
    "Costs come from a table, so they are the same everywhere: 60 ns to give a page back, 800 ns a call, 2500 ns more "
    "for\n"
    "a mapping (from 32 MiB on), pages of 4096 bytes.\n"
    "Left out: blocks of 64 KiB and less, and the slabs they lie in, whose lives are not in a trace; a realloc that\n"
    "keeps a block large counts as growth where it lies, so as no event; an exec counts as freeing all blocks.\n";

__attribute__((format(printf, 1, 2))) static int refuse(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fputs("policy_simulate: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  return 2;
}

/* --- the engine --- */

static void begin(void) {
  struct policy_table_costs costs =
      policy_table_costs_of(run.fault_ns, PURGE_PAGE_NS, PURGE_CALL_NS, MAP_NS, run.delay_ms);
  policy_table_begin(&run.table, run.places, POLICY_ARMS, &costs, policy_strategy_like(run.delay_ms));
}

static struct policy_totals totals_now(void) { return policy_totals(&run.table, (uint32_t)run.ms); }

static void note_snapshot(void) {
  if (run.snapshot_count == run.snapshot_room) {
    run.snapshot_room = run.snapshot_room ? 2 * run.snapshot_room : 64;
    struct snapshot *grown = reallocarray(run.snapshots, run.snapshot_room, sizeof *grown);
    if (grown == NULL) {
      refuse("no memory for %zu rows of --each", run.snapshot_room);
      exit(1);
    }
    run.snapshots = grown;
  }
  run.snapshots[run.snapshot_count++] = (struct snapshot){.event = run.events, .totals = totals_now()};
}

static void happened(void *context, const struct stream_event *event) {
  (void)context;
  run.ms = event->ms;
  if (event->bytes == 0)
    return;
  uint64_t pages = event->bytes / PAGE_BYTES;
  uint32_t counted = pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages, now_ms = (uint32_t)event->ms;
  unsigned range = policy_range(event->bytes);
  if (event->module)
    policy_note_module(run.modules, policy_tag_of(event->site), event->module);
  if (event->is_taken)
    policy_table_taken(&run.table, event->site, range, counted, now_ms);
  else
    policy_table_freed(&run.table, event->site, range, counted, true, now_ms);
  run.events++;
  if (run.each && run.events % run.each == 0)
    note_snapshot();
}

/* --- the report --- */

static void print_fixed(const struct policy_totals *totals) {
  printf("\"fixed\":{");
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    printf("%s\"%s\":%ju", strategy ? "," : "", strategy_words[strategy].name, (uintmax_t)totals->fixed[strategy]);
  putchar('}');
}

static void print_json(const struct policy_totals *totals) {
  printf("{\"events\":%ju,\"seconds\":%.3f,", (uintmax_t)run.events, (double)run.ms / 1000);
  print_fixed(totals);
  printf(",\"evolving\":%ju,\"best_of_arm\":%ju,\"best_fixed\":\"%s\",\"arms\":%u,\"matches\":%ju,\"switches\":%ju}\n",
         (uintmax_t)totals->acted, (uintmax_t)totals->best_of_arm,
         strategy_words[policy_best_fixed(totals->fixed)].name, run.table.taken_count, (uintmax_t)totals->epochs,
         (uintmax_t)totals->switches);
  for (size_t i = 0; i < run.snapshot_count; i++) {
    const struct snapshot *row = &run.snapshots[i];
    printf("{\"event\":%ju,\"evolving\":%ju,", (uintmax_t)row->event, (uintmax_t)row->totals.acted);
    print_fixed(&row->totals);
    puts("}");
  }
}

static void print_row(const char *name, uint64_t ns, uint64_t best_ns) {
  printf("%-18s %14.3f", name, (double)ns / 1e6);
  if (best_ns)
    printf(" %14.3f", (double)ns / (double)best_ns);
  putchar('\n');
}

static void print_table(const struct policy_totals *totals) {
  uint64_t best_ns = totals->fixed[policy_best_fixed(totals->fixed)];
  printf("%ju events of large blocks in %.3f s\n", (uintmax_t)run.events, (double)run.ms / 1000);
  printf(
      "a fault %u ns, a page given back %u ns, a call %u ns, with a mapping %u ns; as much as a fault: %u ms idle\n\n",
      run.fault_ns, PURGE_PAGE_NS, PURGE_CALL_NS, PURGE_CALL_NS + MAP_NS, run.delay_ms);
  printf("%-18s %14s %14s\n", "given back", "cost, ms", "of best fixed");
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    print_row(strategy_words[strategy].action, totals->fixed[strategy], best_ns);
  print_row("evolving", totals->acted, best_ns);
  print_row("best of each arm", totals->best_of_arm, best_ns);
  double regret_ns = (double)totals->acted - (double)totals->best_of_arm;
  printf("\nregret %.3f ms", regret_ns / 1e6);
  if (totals->best_of_arm)
    printf(", %.1f %% of the best of each arm", 100 * regret_ns / (double)totals->best_of_arm);
  printf("; %u arms, %ju matches, %ju switches\n", run.table.taken_count, (uintmax_t)totals->epochs,
         (uintmax_t)totals->switches);
}

/* --- arguments --- */

static bool read_number(const char *text, uint64_t least, uint64_t most, uint64_t *value) {
  char *end = NULL;
  if (text == NULL || *text < '0' || *text > '9' || strlen(text) > 18)
    return false;
  *value = strtoull(text, &end, 10);
  return *end == 0 && *value >= least && *value <= most;
}

static bool load(const char *path) {
  struct policy_file file;
  void *bytes;
  const char *problem = policy_disk_read(path, &file, &bytes);
  if (problem) {
    refuse("--load: %s: %s", path, problem);
    return false;
  }
  for (uint32_t i = 0; i < file.module_count; i++) {
    struct policy_module module = policy_file_module(&file, i);
    policy_note_module(run.modules, module.tag, module.name);
  }
  policy_file_merge(&file, &run.table);
  free(bytes);
  return true;
}

static bool save(const char *path) {
  size_t capacity = policy_file_bytes(POLICY_MODULES, POLICY_ARMS + 2 * POLICY_RANGES);
  void *bytes = malloc(capacity);
  if (bytes == NULL) {
    refuse("--save: no memory");
    return false;
  }
  struct policy_file_writer writer;
  policy_file_begin(&writer, bytes, capacity, &run.table.costs, WRITER);
  for (unsigned i = 0; i < POLICY_MODULES && run.modules[i].tag; i++)
    policy_file_add_module(&writer, run.modules[i].tag, run.modules[i].name);
  policy_file_add_table(&writer, &run.table, policy_site_of(1, 0)); /* sites of no module mean nothing elsewhere */
  size_t length = policy_file_end(&writer);
  enum os_file_error error = os_file_replace(path, bytes, length);
  free(bytes);
  if (error)
    refuse("--save: %s: %s", path, os_file_words(error));
  return error == OS_FILE_OK;
}

static int simulate(const char *path) {
  char problem[STREAM_SENTENCE];
  begin();
  if (run.load && !load(run.load))
    return 2;
  const char *reason = run.save ? policy_disk_reason_to_keep(run.save, WRITER) : NULL;
  if (reason)
    return refuse("--save: %s: %s, so it is not overwritten", run.save, reason);
  if (!stream_read(path, happened, NULL, problem))
    return refuse("%s: %s", path, problem);
  struct policy_totals totals = totals_now();
  policy_table_conclude(&run.table, (uint32_t)run.ms);
  if (run.save && !save(run.save))
    return 1;
  if (run.is_json)
    print_json(&totals);
  else
    print_table(&totals);
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout))
    return 0;
  refuse("stdout: %s", strerror(errno != 0 ? errno : EIO)); // NOLINT(concurrency-mt-unsafe): one thread
  return 1;
}

int main(int argc, char **argv) {
  const char *path = NULL;
  uint64_t value = 0;
  for (int i = 1; i < argc; i++) {
    const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
    bool is_option = true;
    if (strcmp(word, "--help") == 0) {
      printf("%s%s", usage, help);
      return 0;
    }
    if (strcmp(word, "--json") == 0) {
      run.is_json = true;
      continue;
    }
    if (strcmp(word, "--delay") == 0) {
      if (!read_number(next, 0, DELAY_MS_MAX, &value))
        return refuse("--delay takes milliseconds, 0 to %u", DELAY_MS_MAX);
      run.delay_ms = (uint32_t)value;
    } else if (strcmp(word, "--fault") == 0) {
      if (!read_number(next, 1, FAULT_NS_MAX, &value))
        return refuse("--fault takes nanoseconds, 1 to %u", FAULT_NS_MAX);
      run.fault_ns = (uint32_t)value;
    } else if (strcmp(word, "--each") == 0) {
      if (!read_number(next, 1, UINT32_MAX, &run.each))
        return refuse("--each takes a number of events");
    } else if (strcmp(word, "--load") == 0 || strcmp(word, "--save") == 0) {
      if (next == NULL)
        return refuse("%s takes a file", word);
      *(word[2] == 'l' ? &run.load : &run.save) = next;
    } else
      is_option = false;
    if (is_option)
      i++;
    else if (word[0] == '-' && word[1])
      return refuse("unknown option %s; see policy_simulate --help", word);
    else if (path)
      return refuse("one argument too many: %s", word);
    else
      path = word;
  }
  if (path == NULL) {
    fputs(usage, stderr);
    return 2;
  }
  if (run.each && !run.is_json)
    return refuse("--each needs --json");
  return simulate(path);
}
