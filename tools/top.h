/* top.h: hakmem-top. top_data.c: the process's snapshots so far, rates of change, and the sorted rows of the table on
 * the screen. top_screen.c: the screen, for any terminal from 40 by 10 on; designed for 80 by 24. */
#pragma once

#include "tools/live_print.h"

enum { TOP_SAMPLES = 1024 };

enum top_view { TOP_CLASSES, TOP_SITES, TOP_THREADS, TOP_PURGE, TOP_VIEWS };

struct top_form {
  char key;
  const char *name;
  const struct live_form *form; /* without a table: rows are some of the totals, by name */
};
extern const struct top_form top_forms[TOP_VIEWS];

struct top_sample {
  uint64_t live_bytes, heap_bytes;
};

struct top_data {
  struct live_process process;
  struct top_sample samples[TOP_SAMPLES]; /* the newest first */
  unsigned sample_count;                  /* 0: there was no snapshot yet */
  enum top_view view;
  unsigned sorted_by[TOP_VIEWS];
  bool is_ascending[TOP_VIEWS];
  struct live_row rows[LIVE_ROWS_MAX];
  unsigned row_count;
  double read_ms; /* what the last refresh took */
};

bool top_open(struct top_data *data, long pid);

/* Takes a snapshot. If the process has ended, the last one stays. */
void top_refresh(struct top_data *data);

/* Makes and sorts the rows of the view. */
void top_arrange(struct top_data *data);
/* Formats a cell. */
void top_cell(const struct top_data *data, const struct live_row *row, unsigned column, char text[LIVE_CELL]);

/* Returns the growth of a total per second. */
double top_rate(const struct top_data *data, const char *total);

/* --- the screen --- */

struct top_screen {
  unsigned first_row; /* of the table, on the screen */
  bool shows_help;
  unsigned interval_ms;
  bool has_blocks; /* the terminal can draw parts of a cell */
};

void top_draw(const struct top_screen *screen, const struct top_data *data);

/* The list of processes that can be read, to choose one. */
enum { TOP_LISTED = 256 };
struct top_listed {
  long pid;
  char line[LIVE_LINE];
};
void top_draw_list(const struct top_listed *listed, unsigned count, unsigned chosen);
