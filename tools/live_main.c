/* hakmem-live: prints what a process with HAKMEM_LIVE=1 holds, while it runs. */
#include "stats/format.h"
#include "tools/live_print.h"
#include "tools/live_read.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_WAIT_MS 300u
#define FRESH_WAIT_OF_MANY_MS 20u

static const char usage[] =
    "hakmem-live [--json | --openmetrics] [PID]\n"
    "\n"
    "Prints what a process that was started with HAKMEM_LIVE=1 holds. It is not stopped, and cannot be changed.\n"
    "Without PID: the processes that can be looked at.\n"
    "  --json         for programs: one object, without PID a list of objects\n"
    "  --openmetrics  for Prometheus and its like, with the labels pid and command\n"
    "Exit status: 2 if the process cannot be looked at, 1 if it has ended.\n";

enum form { FORM_TEXT, FORM_JSON, FORM_METRICS };

/* --- OpenMetrics, which wants all processes of a figure together --- */

/* The first figure is the kernel's, the others are those of stats_fields. */
static const struct stats_field resident = {
    .name = "rss_bytes", .kind = STATS_GAUGE, .unit = "bytes", .sentence = "Resident memory of the whole process."};

struct figures {
  struct figures *next;
  char labels[2 * LIVE_COMMAND + 48];
  uint64_t values[];
};
static struct figures *first, **last = &first;
static bool is_short; /* of memory */

/* Keeps a process's figures. */
static void metrics_add(const struct live_process *process) {
  char command[2 * LIVE_COMMAND], *to = command;
  struct figures *figures = malloc(sizeof *figures + (1 + STATS_FIELDS) * sizeof *figures->values);
  if (figures == NULL) {
    is_short = true;
    return;
  }
  for (const char *from = process->command; *from; from++) {
    if (*from == '"' || *from == '\\')
      *to++ = '\\';
    *to++ = *from;
  }
  *to = 0;
  snprintf(figures->labels, sizeof figures->labels, "{pid=\"%ld\",command=\"%s\"}", process->pid, command);
  figures->values[0] = process->resident_bytes;
  for (size_t i = 0; i < STATS_FIELDS; i++)
    figures->values[i + 1] = live_total(process, stats_fields[i].name);
  figures->next = NULL;
  *last = figures;
  last = &figures->next;
}

static void print_family(const struct stats_field *field, size_t column) {
  char head[512];
  struct text text = TEXT_IN(head);
  stats_metric_head(&text, "", field);
  fputs(head, stdout);
  for (const struct figures *figures = first; figures; figures = figures->next)
    printf(STATS_PREFIX "%s%s%s %lu\n", field->name, field->kind == STATS_COUNTER ? "_total" : "", figures->labels,
           figures->values[column]);
}

/* Prints what was kept. */
static void metrics_print(void) {
  print_family(&resident, 0);
  for (size_t i = 0; i < STATS_FIELDS; i++)
    print_family(&stats_fields[i], i + 1);
  puts("# EOF");
}

/* --- one process, or all --- */

static enum form form;

/* Prints a process, or keeps its figures. shown: how many of a list came before; NULL: it stands alone. */
static void show_figures(struct live_process *process, void *shown) {
  size_t *before = shown;
  char line[LIVE_LINE];
  if (form == FORM_METRICS) {
    metrics_add(process);
  } else if (form == FORM_JSON) {
    if (before)
      putchar(*before ? ',' : '[');
    live_print_json(process);
  } else if (before) {
    if (*before == 0)
      puts(LIVE_TITLES);
    puts(live_line(process, line));
  } else {
    live_print(process);
  }
  if (before)
    ++*before;
}

static void show_process(long pid) {
  struct live_process process;
  if (!live_open(&process, pid) || !live_take(&process, FRESH_WAIT_MS))
    tool_fail((int)process.problem, "%s", process.sentence);
  show_figures(&process, NULL);
  live_close(&process);
}

static void list_processes(void) {
  size_t shown = 0;
  if (!live_is_possible())
    tool_fail(2, LIVE_IMPOSSIBLE);
  live_list(FRESH_WAIT_OF_MANY_MS, show_figures, &shown);
  if (form == FORM_JSON)
    puts(shown ? "]" : "[]");
  else if (form == FORM_TEXT && shown == 0)
    puts("no process can be looked at: none of yours runs on hakmem with HAKMEM_LIVE=1");
}

int main(int count, char **arguments) {
  bool is_json = false, is_metrics = false;
  const struct tool_option options[] = {
      {"--json", &is_json, NULL}, {"--openmetrics", &is_metrics, NULL}, {NULL, NULL, NULL}};
  const char *word;
  tool_begin("hakmem-live", usage, count, arguments);
  int words = tool_words(arguments, options, &word, 1);
  if (is_json && is_metrics)
    tool_refuse("--json and --openmetrics exclude each other");
  form = is_metrics ? FORM_METRICS : is_json ? FORM_JSON : FORM_TEXT;
  if (words > 0)
    show_process(tool_pid(word));
  else
    list_processes();
  if (form == FORM_METRICS)
    metrics_print();
  return tool_end(is_short ? tool_complain(1, "no memory for all processes") : 0);
}
