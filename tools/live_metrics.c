#include "tools/live_metrics.h"

#include "stats/format.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void live_metrics_add(struct live_process *process, void *context) {
  (void)context;
  struct live_kernel kernel;
  char command[2 * LIVE_COMMAND], *to = command;
  struct figures *figures = malloc(sizeof *figures + (1 + stats_field_count) * sizeof *figures->values);
  if (figures == NULL) {
    is_short = true;
    return;
  }
  live_kernel(process, &kernel);
  for (const char *from = kernel.command; *from; from++) {
    if (*from == '"' || *from == '\\')
      *to++ = '\\';
    *to++ = *from;
  }
  *to = 0;
  snprintf(figures->labels, sizeof figures->labels, "{pid=\"%ld\",command=\"%s\"}", process->pid, command);
  figures->values[0] = kernel.resident_bytes;
  for (size_t i = 0; i < stats_field_count; i++)
    figures->values[i + 1] = live_total(process, stats_fields[i].name);
  figures->next = NULL;
  *last = figures;
  last = &figures->next;
}

static void print_family(const struct stats_field *field, size_t column) {
  bool is_counter = field->kind == STATS_COUNTER;
  printf("# TYPE " STATS_PREFIX "%s %s\n", field->name, is_counter ? "counter" : "gauge");
  if (strcmp(field->unit, "bytes") == 0)
    printf("# UNIT " STATS_PREFIX "%s bytes\n", field->name);
  printf("# HELP " STATS_PREFIX "%s %s\n", field->name, field->sentence);
  for (const struct figures *figures = first; figures; figures = figures->next)
    printf(STATS_PREFIX "%s%s%s %" PRIu64 "\n", field->name, is_counter ? "_total" : "", figures->labels,
           figures->values[column]);
}

int live_metrics_print(void) {
  print_family(&resident, 0);
  for (size_t i = 0; i < stats_field_count; i++)
    print_family(&stats_fields[i], i + 1);
  puts("# EOF");
  return is_short ? tool_complain(1, "no memory for all processes") : 0;
}
