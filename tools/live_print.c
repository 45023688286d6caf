#include "tools/live_print.h"

#include "os/os.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_SHOWN 8u

const char *live_size(uint64_t bytes, char text[LIVE_SIZE]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  unsigned unit = 0;
  double value = (double)bytes;
  for (; value >= 1023.95 && unit + 1 < sizeof units / sizeof *units; unit++)
    value /= 1024;
  snprintf(text, LIVE_SIZE, unit && value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

const char *live_duration(double seconds, char text[LIVE_SIZE]) {
  uint64_t whole = (uint64_t)seconds;
  if (seconds < 60)
    snprintf(text, LIVE_SIZE, "%.1f s", seconds);
  else if (whole < 3600)
    snprintf(text, LIVE_SIZE, "%ju min %ju s", (uintmax_t)(whole / 60), (uintmax_t)(whole % 60));
  else if (whole < 86400)
    snprintf(text, LIVE_SIZE, "%ju h %ju min", (uintmax_t)(whole / 3600), (uintmax_t)(whole / 60 % 60));
  else
    snprintf(text, LIVE_SIZE, "%ju d %ju h", (uintmax_t)(whole / 86400), (uintmax_t)(whole / 3600 % 24));
  return text;
}

/* --- for people --- */

static void print_size(const char *label, uint64_t bytes, const char *more) {
  char text[LIVE_SIZE];
  printf("  %-22s %10s%s%s\n", label, live_size(bytes, text), *more ? "  " : "", more);
}

static void print_totals(const struct live_process *process, const struct live_kernel *kernel) {
  char peak[LIVE_SIZE], more[64];
  snprintf(more, sizeof more, "at most %s", live_size(live_total(process, "heap_peak_bytes"), peak));
  print_size("live", live_total(process, "live_bytes"), "blocks that the program has");
  print_size("heap", live_total(process, "heap_bytes"), more);
  print_size("resident", kernel->resident_bytes, "the whole process, as the kernel sees it");
  print_size("ready in bins", live_total(process, "bin_bytes"), "");
  print_size("remote frees", live_total(process, "in_flight_bytes"), "not yet back in their slabs");
  print_size("free in slabs", live_total(process, "slab_free_bytes"), "");
  print_size("free extents", live_total(process, "extent_free_bytes"), "resident");
  print_size("large, cached", live_total(process, "large_cached_bytes"), "");
  print_size("hakmem's own tables", live_total(process, "metadata_bytes"), "mapped");
  print_size("given back so far", live_total(process, "purged_bytes"), "");
  printf("  refills %ju, flushes %ju, remote frees %ju; heaps %ju, large objects %ju\n",
         (uintmax_t)live_total(process, "refills"), (uintmax_t)live_total(process, "flushes"),
         (uintmax_t)live_total(process, "remote_frees"), (uintmax_t)live_total(process, "heap_count"),
         (uintmax_t)live_total(process, "large_count"));
}

struct ranked {
  uint64_t value;
  uint32_t row;
};

static int by_value(const void *left, const void *right) {
  const struct ranked *a = left, *b = right;
  return a->value != b->value ? (a->value < b->value ? 1 : -1) : (int)a->row - (int)b->row;
}

/* Returns the rows of a table sorted by a column, largest first. NULL if there is no memory or no row. */
static struct ranked *rank_rows(const struct live_process *process, const struct live_rows *rows, const char *column) {
  struct ranked *ranked = rows->count ? calloc(rows->count, sizeof *ranked) : NULL;
  for (uint32_t row = 0; ranked && row < rows->count; row++)
    ranked[row] = (struct ranked){.value = live_value(process, rows, row, column), .row = row};
  if (ranked)
    qsort(ranked, rows->count, sizeof *ranked, by_value);
  return ranked;
}

static void print_classes(const struct live_process *process) {
  struct live_rows rows = live_table(process, "classes");
  struct ranked *ranked = rank_rows(process, &rows, "taken_bytes");
  if (ranked == NULL)
    return;
  printf("\n  %10s %12s %12s %12s %12s\n", "blocks of", "slabs", "live", "in bins", "free");
  for (uint32_t i = 0; i < rows.count && i < ROWS_SHOWN; i++) {
    char block[LIVE_SIZE], slabs[LIVE_SIZE], live[LIVE_SIZE], bins[LIVE_SIZE], free_bytes[LIVE_SIZE];
    uint32_t row = ranked[i].row;
    uint64_t slab = live_value(process, &rows, row, "slab_bytes"),
             taken = live_value(process, &rows, row, "taken_bytes"), bin = live_value(process, &rows, row, "bin_bytes");
    printf("  %10s %12s %12s %12s %12s\n", live_size(live_value(process, &rows, row, "block_bytes"), block),
           live_size(slab, slabs), live_size(less(taken, bin), live), live_size(bin, bins),
           live_size(less(slab, taken), free_bytes));
  }
  if (rows.count > ROWS_SHOWN)
    printf("  and %u classes more (--json has all)\n", rows.count - ROWS_SHOWN);
  free(ranked);
}

static void print_sites(const struct live_process *process) {
  struct live_rows rows = live_table(process, "sites");
  struct ranked *ranked = rank_rows(process, &rows, "live_bytes");
  if (ranked == NULL)
    return;
  printf("\n  %-40s %8s %10s %8s %10s\n", "large objects, by call site", "live", "bytes", "so far", "bytes");
  for (uint32_t i = 0; i < rows.count && i < ROWS_SHOWN; i++) {
    char place[LIVE_PLACE], live[LIVE_SIZE], taken[LIVE_SIZE];
    uint32_t row = ranked[i].row;
    uint64_t address = live_value(process, &rows, row, "address");
    if (address)
      live_place(process, address, place);
    else
      snprintf(place, sizeof place, "other sites");
    printf("  %-40.40s %8ju %10s %8ju %10s\n", place, (uintmax_t)live_value(process, &rows, row, "live_count"),
           live_size(live_value(process, &rows, row, "live_bytes"), live),
           (uintmax_t)live_value(process, &rows, row, "taken_count"),
           live_size(live_value(process, &rows, row, "taken_bytes"), taken));
  }
  free(ranked);
}

void live_print(const struct live_process *process) {
  struct live_kernel kernel;
  char up[LIVE_SIZE], age[LIVE_SIZE];
  live_kernel(process, &kernel);
  printf("process %ld, %s, %u threads, for %s on %s; figures of %s ago\n", process->pid, kernel.command, kernel.threads,
         live_duration((double)(os_nanoseconds() - process->head.made_ns) / 1e9, up), process->head.version,
         live_duration(live_age_s(process), age));
  print_totals(process, &kernel);
  print_classes(process);
  print_sites(process);
}

/* --- for programs --- */

static void print_row(const struct live_process *process, const struct live_rows *rows, uint32_t row) {
  for (uint32_t column = 0; column < rows->columns; column++) {
    putchar(column ? ',' : '{');
    tool_print_json(live_column_name(process, rows->table, column));
    printf(":%ju", (uintmax_t)rows->words[(size_t)row * rows->columns + column]);
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
  struct live_kernel kernel;
  live_kernel(process, &kernel);
  printf("{\"layout\":%u,\"hakmem\":", process->head.layout);
  tool_print_json(process->head.version);
  printf(",\"pid\":%ld,\"command\":", process->pid);
  tool_print_json(kernel.command);
  printf(",\"threads\":%u,\"resident_bytes\":%ju,\"made_ns\":%ju,\"snapshot\":%ju,\"age_ms\":%.1f", kernel.threads,
         (uintmax_t)kernel.resident_bytes, (uintmax_t)process->head.made_ns, (uintmax_t)process->words[LIVE_NUMBER],
         live_age_s(process) * 1e3);
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
