/* live_print.h: a snapshot of a live page as text for people, or as one JSON object; its tables as they are shown. */
#pragma once

#include "tools/live_read.h"

/* --- tables --- */

enum { LIVE_COLUMNS = 8, LIVE_ROWS_MAX = 512, LIVE_CELL = 64 };
enum live_kind { LIVE_BYTES, LIVE_COUNT, LIVE_SHARE, LIVE_SITE, LIVE_THREAD };

/* A column: `column` of the page's table, less `minus` if there is one; a share is of `minus`. */
struct live_column {
  const char *title;
  enum live_kind kind;
  int width;
  const char *column, *minus;
};

struct live_form {
  const char *table;
  struct live_column columns[LIVE_COLUMNS];
  unsigned sorted_by; /* at first */
};
extern const struct live_form live_classes, live_sites, live_heaps;

struct live_row {
  uint32_t row;
  double value[LIVE_COLUMNS];
};

unsigned live_column_count(const struct live_form *form);
/* Makes the rows of a table. Returns how many. */
unsigned live_rows_make(const struct live_process *process, const struct live_form *form,
                        struct live_row rows[LIVE_ROWS_MAX]);
/* Sorts by a column, the largest first unless ascending; equal ones stay in the table's order. */
void live_rows_sort(struct live_row *rows, unsigned count, unsigned column, bool is_ascending);
void live_cell(const struct live_process *process, enum live_kind kind, double value, char text[LIVE_CELL]);

/* --- all of it --- */

/* Writes a line of a list of processes, and returns it. */
enum { LIVE_LINE = 128 };
#define LIVE_TITLES "     pid threads       live       heap   resident          age  command"
const char *live_line(const struct live_process *process, char line[LIVE_LINE]);

void live_print(const struct live_process *process);
void live_print_json(const struct live_process *process);
