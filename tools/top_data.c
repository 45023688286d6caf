#include "tools/top.h"

#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_WAIT_MS 25u

/* clang-format off */
const struct top_form top_forms[TOP_VIEWS] = {
    [TOP_CLASSES] = {'c', "classes", "classes", {
        {"blocks of", TOP_SIZE, 10, "block_bytes", NULL},
        {"slabs", TOP_SIZE, 11, "slab_bytes", NULL},
        {"live", TOP_SIZE, 11, "taken_bytes", "bin_bytes"},
        {"in bins", TOP_SIZE, 11, "bin_bytes", NULL},
        {"free", TOP_SIZE, 11, "slab_bytes", "taken_bytes"},
        {"used", TOP_SHARE, 7, "taken_bytes", "slab_bytes"}}, 2},
    [TOP_SITES] = {'s', "sites", "sites", {
        {"large objects of", TOP_PLACE, -36, "address", NULL},
        {"live", TOP_NUMBER, 7, "live_count", NULL},
        {"bytes", TOP_SIZE, 10, "live_bytes", NULL},
        {"so far", TOP_NUMBER, 9, "taken_count", NULL},
        {"bytes", TOP_SIZE, 10, "taken_bytes", NULL}}, 2},
    [TOP_THREADS] = {'t', "threads", "heaps", {
        {"heap", TOP_NUMBER, 5, "id", NULL},
        {"thread", TOP_THREAD, -20, "thread_id", NULL},
        {"pool", TOP_NUMBER, 6, "pool", NULL},
        {"in bins", TOP_SIZE, 10, "bin_bytes", NULL},
        {"refills", TOP_NUMBER, 9, "refills", NULL},
        {"flushes", TOP_NUMBER, 9, "flushes", NULL}}, 3},
    [TOP_PURGE] = {'p', "purge", NULL, {
        {"what was done", TOP_NAME, -24, NULL, NULL},
        {"so far", TOP_SIZE, 14, "value", NULL},
        {"in a second", TOP_RATE, 14, "rate", NULL}}, 2},
};
/* clang-format on */

/* The totals of the view `purge`: how memory goes back, and the system calls. */
static const char *const purge_names[] = {
    "purges",       "purged_bytes", "reclaim_rounds", "cache_evictions", "cache_hits",  "cache_misses",
    "calls_advise", "calls_map",    "calls_unmap",    "calls_protect",   "calls_remap", "calls_futex",
    "refills",      "flushes",      "envelopes_sent", "remote_frees",    "bin_growths", "bin_shrinks",
};
#define PURGE_NAMES (sizeof purge_names / sizeof *purge_names)
_Static_assert(PURGE_NAMES <= TOP_ROWS_MAX, "a row for each");

unsigned top_column_count(const struct top_form *form) {
  unsigned count = 0;
  while (count < TOP_COLUMNS && form->columns[count].title)
    count++;
  return count;
}

/* --- snapshots --- */

bool top_open(struct top_data *data, long pid) {
  *data = (struct top_data){.view = TOP_CLASSES};
  for (unsigned view = 0; view < TOP_VIEWS; view++)
    data->sorted_by[view] = top_forms[view].sorted_by;
  if (!live_open(&data->process, pid))
    return false;
  data->previous = calloc(data->process.head.slot_words, sizeof *data->previous);
  return data->previous || live_unreadable(&data->process, "no memory for the live page of process %ld");
}

void top_close(struct top_data *data) {
  live_close(&data->process);
  free(data->previous);
  data->previous = NULL;
}

static uint64_t snapshot_ns(const struct top_data *data) {
  struct live_rows moment = live_table(&data->process, "moment");
  return live_value(&data->process, &moment, 0, "time_ns");
}

/* The former snapshot stays until there is a newer one. */
static bool take_snapshot(struct top_data *data) {
  live_ask(&data->process, FRESH_WAIT_MS);
  if (!live_take(&data->process))
    return false;
  uint64_t now_ns = snapshot_ns(data);
  if (now_ns != data->snapshot_ns) {
    memcpy(data->previous, data->process.spare, data->process.head.slot_words * sizeof *data->previous);
    data->previous_ns = data->snapshot_ns;
    data->snapshot_ns = now_ns;
  }
  return true;
}

void top_refresh(struct top_data *data) {
  uint64_t begun_ns = os_nanoseconds();
  if (data->process.problem == LIVE_ENDED || !take_snapshot(data))
    return;
  live_kernel(&data->process, &data->kernel);
  data->samples[data->sample_count++ % TOP_SAMPLES] =
      (struct top_sample){live_total(&data->process, "live_bytes"), live_total(&data->process, "heap_bytes")};
  top_arrange(data);
  data->read_ms = (double)(os_nanoseconds() - begun_ns) / 1e6;
}

bool top_sample_at(const struct top_data *data, unsigned back, struct top_sample *out) {
  if (back >= data->sample_count || back >= TOP_SAMPLES)
    return false;
  *out = data->samples[(data->sample_count - 1 - back) % TOP_SAMPLES];
  return true;
}

double top_rate(const struct top_data *data, const char *total) {
  struct live_rows now = live_table(&data->process, "totals"), before = now;
  if (data->previous_ns == 0 || now.count == 0 || data->snapshot_ns <= data->previous_ns)
    return 0;
  before.words = data->previous + now.table->words_at + 1;
  uint64_t more = less(live_value(&data->process, &now, 0, total), live_value(&data->process, &before, 0, total));
  return (double)more * 1e9 / (double)(data->snapshot_ns - data->previous_ns);
}

/* --- rows --- */

static double value_of(const struct top_data *data, const struct live_rows *rows, uint32_t row,
                       const struct top_column *column) {
  double value = (double)live_value(&data->process, rows, row, column->column);
  double other = column->minus ? (double)live_value(&data->process, rows, row, column->minus) : 0;
  if (column->kind == TOP_SHARE)
    return other > 0 ? 100 * value / other : 0;
  return value > other ? value - other : 0;
}

static void add_table(struct top_data *data, const struct top_form *form) {
  struct live_rows rows = live_table(&data->process, form->table);
  for (uint32_t i = 0; i < rows.count && data->row_count < TOP_ROWS_MAX; i++) {
    struct top_row *row = &data->rows[data->row_count++];
    row->row = i;
    for (unsigned column = 0; column < top_column_count(form); column++)
      row->value[column] = value_of(data, &rows, i, &form->columns[column]);
  }
}

static void add_purge(struct top_data *data) {
  for (uint32_t i = 0; i < PURGE_NAMES; i++) {
    struct top_row *row = &data->rows[data->row_count++];
    row->row = i;
    row->value[0] = -(double)i; /* by name: in the order of the list */
    row->value[1] = (double)live_total(&data->process, purge_names[i]);
    row->value[2] = top_rate(data, purge_names[i]);
  }
}

static int by_value(const void *left, const void *right, void *context) {
  const struct top_data *data = context;
  const struct top_row *a = left, *b = right;
  unsigned column = data->sorted_by[data->view];
  double difference = b->value[column] - a->value[column];
  if (data->is_ascending[data->view])
    difference = -difference;
  return difference != 0 ? (difference > 0 ? 1 : -1) : (int)a->row - (int)b->row;
}

void top_arrange(struct top_data *data) {
  const struct top_form *form = &top_forms[data->view];
  data->row_count = 0;
  if (form->table)
    add_table(data, form);
  else
    add_purge(data);
  qsort_r(data->rows, data->row_count, sizeof *data->rows, by_value, data);
}

/* The view `purge` counts in all its rows but one. */
static bool is_size(const struct top_data *data, const struct top_row *row) {
  return data->view != TOP_PURGE || strcmp(purge_names[row->row], "purged_bytes") == 0;
}

static void place_text(const struct top_data *data, uint64_t address, char text[TOP_CELL]) {
  char place[LIVE_PLACE];
  if (address == 0) {
    snprintf(text, TOP_CELL, "other sites");
    return;
  }
  live_place(&data->process, address, place);
  size_t length = strlen(place);
  snprintf(text, TOP_CELL, "%.*s", TOP_CELL - 1, length > 35 ? place + length - 35 : place);
}

static void thread_text(const struct top_data *data, uint64_t thread_id, char text[TOP_CELL]) {
  char name[LIVE_COMMAND];
  live_thread_name(&data->process, thread_id, name);
  if (*name == 0)
    snprintf(text, TOP_CELL, "none");
  else
    snprintf(text, TOP_CELL, "%.11s %ju", name, (uintmax_t)thread_id);
}

void top_cell(const struct top_data *data, const struct top_row *row, unsigned column, char text[TOP_CELL]) {
  const struct top_column *form = &top_forms[data->view].columns[column];
  double value = row->value[column];
  switch (form->kind) {
  case TOP_SIZE:
  case TOP_RATE:
    if (is_size(data, row))
      snprintf(text, TOP_CELL, "%s", live_size((uint64_t)value));
    else
      snprintf(text, TOP_CELL, form->kind == TOP_RATE && value > 0 && value < 10 ? "%.1f" : "%.0f", value);
    break;
  case TOP_SHARE:
    snprintf(text, TOP_CELL, "%.0f %%", value);
    break;
  case TOP_PLACE:
    place_text(data, (uint64_t)value, text);
    break;
  case TOP_THREAD:
    thread_text(data, (uint64_t)value, text);
    break;
  case TOP_NAME:
    snprintf(text, TOP_CELL, "%s", purge_names[row->row]);
    break;
  default:
    snprintf(text, TOP_CELL, "%.0f", value);
  }
}
