#include "tools/top.h"

#include "os/os.h"
#include "tools/tool.h"

#include <curses.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE = 512, GRAPH_AT = 4, GRAPH_ROWS = 5, EIGHTHS = 8, LABEL = 11 };

/* Draws one line, cut to the terminal's width and filled with spaces. */
static void draw_line(int row, chtype look, const char *text) {
  char filled[LINE];
  int width = COLS < LINE ? COLS : LINE - 1;
  if (row < 0 || row >= LINES)
    return;
  snprintf(filled, sizeof filled, "%-*.*s", width, width, text);
  (void)attrset(look);
  (void)mvaddstr(row, 0, filled);
  (void)attrset(A_NORMAL);
}

static void draw_title(const struct top_data *data) {
  char text[LINE];
  const struct live_process *process = &data->process;
  snprintf(text, sizeof text, " hakmem top  %ld %s  up %s, %u threads, figures of %s ago", process->pid,
           process->command, tool_duration((double)(os_nanoseconds() - process->head.made_ns) / 1e9), process->threads,
           tool_duration(live_age_s(process)));
  draw_line(0, A_REVERSE, text);
}

static void draw_sums(const struct top_data *data) {
  char text[LINE];
  const struct live_process *process = &data->process;
  snprintf(text, sizeof text, " live %s  heap %s (most %s)  RSS %s  cached %s",
           tool_size(live_total(process, "live_bytes")), tool_size(live_total(process, "heap_bytes")),
           tool_size(live_total(process, "heap_peak_bytes")), tool_size(process->resident_bytes),
           tool_size(live_total(process, "large_cached_bytes")));
  draw_line(1, A_BOLD, text);
  snprintf(text, sizeof text, " in a second: %.0f refills, %.0f flushes, %.0f remote frees, %s given back",
           top_rate(data, "refills"), top_rate(data, "flushes"), top_rate(data, "remote_frees"),
           tool_size((uint64_t)top_rate(data, "purged_bytes")));
  draw_line(2, A_NORMAL, text);
}

/* --- the heap over time --- */

/* Returns the rows for the graph; with little room the table comes first. */
static int graph_rows(void) {
  if (LINES < 16)
    return LINES > 11 ? LINES - 11 : 0;
  return LINES > 30 ? GRAPH_ROWS + (LINES - 30) / 3 : GRAPH_ROWS;
}

static uint64_t graph_top(const struct top_data *data, unsigned columns) {
  uint64_t most = 1;
  for (unsigned back = 0; back < columns && back < data->sample_count; back++)
    most = max_size(most, data->samples[back].heap_bytes);
  return most;
}

/* Returns the character for a cell of the graph. Live and heap bytes are in eighths of a cell's height; the cell begins
 * at `below` eighths. */
static const char *cell_text(bool has_blocks, uint64_t live_eighths, uint64_t heap_eighths, uint64_t below) {
  static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  uint64_t live = sub_sat(live_eighths, below);
  if (live > 0)
    return has_blocks ? blocks[live < EIGHTHS ? live : EIGHTHS] : "#";
  return heap_eighths > below ? (has_blocks ? "░" : ":") : " ";
}

static void draw_graph(const struct top_screen *screen, const struct top_data *data) {
  int rows = graph_rows(), columns = COLS - LABEL - 1;
  char text[LINE];
  if (columns <= 0 || rows == 0)
    return;
  uint64_t top = graph_top(data, (unsigned)columns);
  snprintf(text, sizeof text, " heap over the last %s: %s live, %s held beyond",
           tool_duration((double)columns * screen->interval_ms / 1e3), screen->has_blocks ? "█" : "#",
           screen->has_blocks ? "░" : ":");
  (void)mvaddstr(GRAPH_AT - 1, 0, text);
  for (int row = 0; row < rows; row++) {
    uint64_t below = (uint64_t)(rows - 1 - row) * EIGHTHS;
    if (row == 0 || row == rows - 1)
      mvprintw(GRAPH_AT + row, 0, "%*s", LABEL - 1, tool_size(row ? 0 : top));
    for (int column = 0; column < columns; column++) {
      unsigned back = (unsigned)(columns - 1 - column);
      if (back >= data->sample_count)
        continue;
      const struct top_sample *sample = &data->samples[back];
      double scale = (double)rows * EIGHTHS / (double)top;
      (void)mvaddstr(GRAPH_AT + row, LABEL + column,
                     cell_text(screen->has_blocks, (uint64_t)((double)sample->live_bytes * scale + 0.5),
                               (uint64_t)((double)sample->heap_bytes * scale + 0.5), below));
    }
  }
}

/* --- the table --- */

static int draw_tabs(const struct top_data *data, int row) {
  (void)move(row, 1);
  for (unsigned view = 0; view < TOP_VIEWS; view++) {
    if (view == data->view)
      (void)attrset(A_REVERSE);
    printw(" %c %s ", top_forms[view].key, top_forms[view].name);
    (void)attrset(A_NORMAL);
    (void)addstr(" ");
  }
  return row + 1;
}

static void draw_cells(const struct top_data *data, int row, const struct live_row *values) {
  const struct live_form *form = top_forms[data->view].form;
  int at = 1;
  for (unsigned column = 0; column < live_column_count(form); column++) {
    char text[LIVE_CELL];
    int width = form->columns[column].width, places = abs(width);
    if (values)
      top_cell(data, values, column, text);
    else
      snprintf(text, sizeof text, "%s", form->columns[column].title);
    if (at + places > COLS)
      break;
    if (values == NULL && column == data->sorted_by[data->view])
      (void)attrset(A_REVERSE);
    mvprintw(row, at, "%*.*s", width, places, text);
    (void)attrset(A_NORMAL);
    at += places + 1;
  }
}

static void draw_table(const struct top_screen *screen, const struct top_data *data) {
  int row = draw_tabs(data, GRAPH_AT + graph_rows() + 1);
  draw_cells(data, row++, NULL);
  for (unsigned i = screen->first_row; i < data->row_count && row < LINES - 1; i++)
    draw_cells(data, row++, &data->rows[i]);
  if (data->row_count == 0)
    (void)mvaddstr(row, 1, "none yet");
}

static void draw_help(const struct top_screen *screen, const struct top_data *data) {
  static const char *const lines[] = {
      "c s t p    classes, call sites of large objects, threads, purge activity",
      "Tab        the next of these",
      "< >        sort by the column to the left, to the right",
      "r          the other way round",
      "up down    scroll; page up, page down, home",
      "+ -        look more often, less often",
      "l          list of the processes that can be looked at",
      "h          this page; any key leaves it",
      "q          quit",
  };
  int row = 3;
  for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++)
    (void)mvaddstr(row++, 2, lines[i]);
  char text[LINE];
  snprintf(text, sizeof text, "looks every %.1f s; the last look took %.2f ms", screen->interval_ms / 1e3,
           data->read_ms);
  (void)mvaddstr(row + 1, 2, text);
}

void top_draw(const struct top_screen *screen, const struct top_data *data) {
  erase();
  draw_title(data);
  if (screen->shows_help) {
    draw_help(screen, data);
  } else {
    draw_sums(data);
    draw_graph(screen, data);
    draw_table(screen, data);
  }
  if (data->process.problem == LIVE_ENDED)
    draw_line(LINES - 1, A_REVERSE, " the process has ended; l list, q quit");
  else
    draw_line(LINES - 1, A_REVERSE, " q quit  h help  < > sort  r reverse  + - speed  l list");
  refresh();
}

void top_draw_list(const struct top_listed *listed, unsigned count, unsigned chosen) {
  unsigned room = LINES > 3 ? (unsigned)LINES - 3 : 1, first = chosen >= room ? chosen - room + 1 : 0;
  erase();
  draw_line(0, A_REVERSE, " hakmem top  processes with HAKMEM_LIVE=1");
  draw_line(1, A_BOLD, LIVE_TITLES);
  if (count == 0)
    draw_line(2, A_NORMAL, " none that can be looked at: none of yours runs on hakmem with HAKMEM_LIVE=1");
  for (unsigned i = first; i < count && i - first < room; i++)
    draw_line(2 + (int)(i - first), i == chosen ? A_REVERSE : A_NORMAL, listed[i].line);
  draw_line(LINES - 1, A_REVERSE, " q quit  up down choose  Enter look");
  refresh();
}
