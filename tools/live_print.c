#include "tools/live_print.h"

#include "os/os.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_SHOWN 8u

/* --- tables --- */

/* clang-format off */
const struct live_form live_classes = {"classes", {
    {"blocks of", LIVE_BYTES, 10, "block_bytes", NULL},
    {"slabs", LIVE_BYTES, 11, "slab_bytes", NULL},
    {"live", LIVE_BYTES, 11, "taken_bytes", "bin_bytes"},
    {"in bins", LIVE_BYTES, 11, "bin_bytes", NULL},
    {"free", LIVE_BYTES, 11, "slab_bytes", "taken_bytes"},
    {"used", LIVE_SHARE, 7, "taken_bytes", "slab_bytes"}}, 2};
const struct live_form live_sites = {"sites", {
    {"large objects of", LIVE_SITE, -36, "address", NULL},
    {"live", LIVE_COUNT, 7, "live_count", NULL},
    {"bytes", LIVE_BYTES, 10, "live_bytes", NULL},
    {"so far", LIVE_COUNT, 9, "taken_count", NULL},
    {"bytes", LIVE_BYTES, 10, "taken_bytes", NULL}}, 2};
const struct live_form live_heaps = {"heaps", {
    {"heap", LIVE_COUNT, 5, "id", NULL},
    {"thread", LIVE_THREAD, -20, "thread_id", NULL},
    {"pool", LIVE_COUNT, 6, "pool", NULL},
    {"in bins", LIVE_BYTES, 10, "bin_bytes", NULL},
    {"refills", LIVE_COUNT, 9, "refills", NULL},
    {"flushes", LIVE_COUNT, 9, "flushes", NULL}}, 3};
/* clang-format on */

unsigned live_column_count(const struct live_form *form) {
  unsigned count = 0;
  while (count < LIVE_COLUMNS && form->columns[count].title)
    count++;
  return count;
}

unsigned live_rows_make(const struct live_process *process, const struct live_form *form,
                        struct live_row rows[LIVE_ROWS_MAX]) {
  struct live_rows table = live_table(process, form->table);
  uint32_t row = 0;
  for (; row < table.count && row < LIVE_ROWS_MAX; row++) {
    rows[row].row = row;
    for (unsigned i = 0; i < live_column_count(form); i++) {
      const struct live_column *column = &form->columns[i];
      double value = (double)live_value(process, &table, row, column->column);
      double other = column->minus ? (double)live_value(process, &table, row, column->minus) : 0;
      if (column->kind == LIVE_SHARE)
        rows[row].value[i] = other > 0 ? 100 * value / other : 0;
      else
        rows[row].value[i] = value > other ? value - other : 0;
    }
  }
  return row;
}

/* What by_value sorts by. */
static unsigned order_column;
static bool order_is_ascending;

static int by_value(const void *left, const void *right) {
  const struct live_row *a = left, *b = right;
  double difference = b->value[order_column] - a->value[order_column];
  if (order_is_ascending)
    difference = -difference;
  return difference != 0 ? (difference > 0 ? 1 : -1) : (int)a->row - (int)b->row;
}

void live_rows_sort(struct live_row *rows, unsigned count, unsigned column, bool is_ascending) {
  order_column = column;
  order_is_ascending = is_ascending;
  qsort(rows, count, sizeof *rows, by_value);
}

void live_cell(const struct live_process *process, enum live_kind kind, double value, char text[LIVE_CELL]) {
  char name[LIVE_COMMAND], place[LIVE_PLACE];
  size_t length;
  switch (kind) {
  case LIVE_BYTES:
    snprintf(text, LIVE_CELL, "%s", tool_size((uint64_t)value));
    break;
  case LIVE_SHARE:
    snprintf(text, LIVE_CELL, "%.0f %%", value);
    break;
  case LIVE_SITE: /* the end of a long place */
    live_place(process, (uint64_t)value, place);
    length = strlen(place);
    snprintf(text, LIVE_CELL, "%.35s", value == 0 ? "other sites" : length > 35 ? place + length - 35 : place);
    break;
  case LIVE_THREAD:
    live_thread_name(process, (uint64_t)value, name);
    snprintf(text, LIVE_CELL, *name ? "%.11s %.0f" : "none", name, value);
    break;
  default:
    snprintf(text, LIVE_CELL, "%.0f", value);
  }
}

/* --- for people --- */

const char *live_line(const struct live_process *process, char line[LIVE_LINE]) {
  snprintf(line, LIVE_LINE, "%8ld %7u %10s %10s %10s %12s  %s", process->pid, process->threads,
           tool_size(live_total(process, "live_bytes")), tool_size(live_total(process, "heap_bytes")),
           tool_size(process->resident_bytes), tool_duration(live_age_s(process)), process->command);
  return line;
}

static void print_size(const char *label, uint64_t bytes, const char *more) {
  printf("  %-22s %10s%s%s\n", label, tool_size(bytes), *more ? "  " : "", more);
}

static void print_totals(const struct live_process *process) {
  char more[64];
  snprintf(more, sizeof more, "at most %s", tool_size(live_total(process, "heap_peak_bytes")));
  print_size("live", live_total(process, "live_bytes"), "blocks that the program has");
  print_size("heap", live_total(process, "heap_bytes"), more);
  print_size("resident", process->resident_bytes, "the whole process, as the kernel sees it");
  print_size("ready in bins", live_total(process, "bin_bytes"), "");
  print_size("remote frees", live_total(process, "in_flight_bytes"), "not yet back in their slabs");
  print_size("free in slabs", live_total(process, "slab_free_bytes"), "");
  print_size("free extents", live_total(process, "extent_free_bytes"), "resident");
  print_size("large, cached", live_total(process, "large_cached_bytes"), "");
  print_size("hakmem's own tables", live_total(process, "metadata_bytes"), "mapped");
  print_size("given back so far", live_total(process, "purged_bytes"), "");
  printf("  refills %lu, flushes %lu, remote frees %lu; heaps %lu, large objects %lu\n", live_total(process, "refills"),
         live_total(process, "flushes"), live_total(process, "remote_frees"), live_total(process, "heap_count"),
         live_total(process, "large_count"));
}

static void print_table(const struct live_process *process, const struct live_form *form) {
  static struct live_row rows[LIVE_ROWS_MAX];
  unsigned count = live_rows_make(process, form, rows), columns = live_column_count(form);
  live_rows_sort(rows, count, form->sorted_by, false);
  for (unsigned column = 0; count && column < columns; column++)
    printf("%s %*s", column ? "" : "\n ", form->columns[column].width, form->columns[column].title);
  for (unsigned i = 0; i < count && i < ROWS_SHOWN; i++)
    for (unsigned column = 0; column < columns; column++) {
      char text[LIVE_CELL];
      live_cell(process, form->columns[column].kind, rows[i].value[column], text);
      printf("%s %*s", column ? "" : "\n ", form->columns[column].width, text);
    }
  if (count)
    putchar('\n');
  if (count > ROWS_SHOWN)
    printf("  and %u more (--json has all)\n", count - ROWS_SHOWN);
}

void live_print(const struct live_process *process) {
  printf("process %ld, %s, %u threads, for %s on %s; figures of %s ago\n", process->pid, process->command,
         process->threads, tool_duration((double)(os_nanoseconds() - process->head.made_ns) / 1e9),
         process->head.version, tool_duration(live_age_s(process)));
  print_totals(process);
  print_table(process, &live_classes);
  print_table(process, &live_sites);
}

/* --- for programs --- */

static void print_row(const struct live_process *process, const struct live_rows *rows, uint32_t row) {
  for (uint32_t column = 0; column < rows->columns; column++) {
    putchar(column ? ',' : '{');
    tool_print_json(live_column_name(process, rows->table, column));
    printf(":%lu", rows->words[(size_t)row * rows->columns + column]);
  }
  if (strcmp(rows->table->name, "sites") == 0) {
    char place[LIVE_PLACE];
    live_place(process, live_value(process, rows, row, "address"), place);
    printf(",\"place\":");
    tool_print_json(place);
  }
  putchar('}');
}

/* Prints one object with the tables' names as keys. A table of one row is an object, others are lists. */
void live_print_json(const struct live_process *process) {
  printf("{\"layout\":%u,\"hakmem\":", process->head.layout);
  tool_print_json(process->head.version);
  printf(",\"pid\":%ld,\"command\":", process->pid);
  tool_print_json(process->command);
  printf(",\"threads\":%u,\"resident_bytes\":%lu,\"made_ns\":%lu,\"snapshot\":%lu,\"age_ms\":%.1f", process->threads,
         process->resident_bytes, process->head.made_ns, process->words[LIVE_NUMBER], live_age_s(process) * 1e3);
  for (uint32_t i = 0; i < process->head.table_count; i++) {
    struct live_rows rows = live_table(process, process->head.tables[i].name);
    bool is_one = rows.table->rows_max == 1;
    putchar(',');
    tool_print_json(rows.table->name);
    putchar(':');
    if (!is_one)
      putchar('[');
    for (uint32_t row = 0; row < rows.count; row++) {
      if (row)
        putchar(',');
      print_row(process, &rows, row);
    }
    if (!is_one)
      putchar(']');
    else if (rows.count == 0)
      fputs("{}", stdout);
  }
  puts("}");
}
