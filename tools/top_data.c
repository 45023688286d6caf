#include "tools/top.h"

#include "os/os.h"

#include <stdio.h>
#include <string.h>

#define FRESH_WAIT_MS 25u

static const struct live_form purge_form = {NULL,
                                            {{"what was done", LIVE_COUNT, -24, NULL, NULL},
                                             {"so far", LIVE_COUNT, 14, NULL, NULL},
                                             {"in a second", LIVE_COUNT, 14, NULL, NULL}},
                                            2};
const struct top_form top_forms[TOP_VIEWS] = {
    [TOP_CLASSES] = {'c', "classes", &live_classes},
    [TOP_SITES] = {'s', "sites", &live_sites},
    [TOP_THREADS] = {'t', "threads", &live_heaps},
    [TOP_PURGE] = {'p', "purge", &purge_form},
};

/* The totals of the view `purge`: how memory goes back, and the system calls. */
static const char *const purge_names[] = {
    "purges",       "purged_bytes", "reclaim_rounds", "cache_evictions", "cache_hits",  "cache_misses",
    "calls_advise", "calls_map",    "calls_unmap",    "calls_protect",   "calls_remap", "calls_futex",
    "refills",      "flushes",      "envelopes_sent", "remote_frees",    "bin_growths", "bin_shrinks",
};
#define PURGE_NAMES (sizeof purge_names / sizeof *purge_names)
_Static_assert(PURGE_NAMES <= LIVE_ROWS_MAX, "a row for each");

/* --- snapshots --- */

bool top_open(struct top_data *data, long pid) {
  *data = (struct top_data){.view = TOP_CLASSES};
  for (unsigned view = 0; view < TOP_VIEWS; view++)
    data->sorted_by[view] = top_forms[view].form->sorted_by;
  return live_open(&data->process, pid);
}

void top_refresh(struct top_data *data) {
  uint64_t begun_ns = os_nanoseconds();
  if (data->process.problem == LIVE_ENDED || !live_take(&data->process, FRESH_WAIT_MS))
    return;
  memmove(data->samples + 1, data->samples, (TOP_SAMPLES - 1) * sizeof *data->samples);
  data->samples[0] =
      (struct top_sample){live_total(&data->process, "live_bytes"), live_total(&data->process, "heap_bytes")};
  data->sample_count += data->sample_count < TOP_SAMPLES;
  top_arrange(data);
  data->read_ms = (double)(os_nanoseconds() - begun_ns) / 1e6;
}

/* Returns by how much a figure of a table with one row has grown since the snapshot before. */
static uint64_t growth_of(const struct live_process *process, const char *table, const char *column) {
  struct live_rows rows = live_table(process, table);
  uint64_t now = live_value(process, &rows, 0, column);
  if (rows.table)
    rows.words = process->spare + rows.table->words_at + 1;
  return sub_sat(now, live_value(process, &rows, 0, column));
}

double top_rate(const struct top_data *data, const char *total) {
  uint64_t ns = growth_of(&data->process, "moment", "time_ns");
  bool has_two = data->process.spare[LIVE_NUMBER] > 0 && ns > 0;
  return has_two ? (double)growth_of(&data->process, "totals", total) * 1e9 / (double)ns : 0;
}

/* --- rows --- */

static void add_purge(struct top_data *data) {
  for (uint32_t i = 0; i < PURGE_NAMES; i++) {
    struct live_row *row = &data->rows[i];
    row->row = i;
    row->value[0] = -(double)i; /* by name: in the order of the list */
    row->value[1] = (double)live_total(&data->process, purge_names[i]);
    row->value[2] = top_rate(data, purge_names[i]);
  }
  data->row_count = PURGE_NAMES;
}

void top_arrange(struct top_data *data) {
  if (data->view == TOP_PURGE)
    add_purge(data);
  else
    data->row_count = live_rows_make(&data->process, top_forms[data->view].form, data->rows);
  live_rows_sort(data->rows, data->row_count, data->sorted_by[data->view], data->is_ascending[data->view]);
}

void top_cell(const struct top_data *data, const struct live_row *row, unsigned column, char text[LIVE_CELL]) {
  double value = row->value[column];
  bool is_size = data->view == TOP_PURGE && strcmp(purge_names[row->row], "purged_bytes") == 0;
  if (data->view == TOP_PURGE && column == 0)
    snprintf(text, LIVE_CELL, "%s", purge_names[row->row]);
  else if (data->view == TOP_PURGE && column == 2 && !is_size && value > 0 && value < 10)
    snprintf(text, LIVE_CELL, "%.1f", value);
  else
    live_cell(&data->process, is_size ? LIVE_BYTES : top_forms[data->view].form->columns[column].kind, value, text);
}
