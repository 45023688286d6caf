/* hakmem-top: shows a process with HAKMEM_LIVE=1 in a terminal, while it runs. */
#include "os/os.h"
#include "tools/tool.h"
#include "tools/top.h"

#include <curses.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MS 1000u
#define INTERVAL_MS_MIN 100u
#define INTERVAL_MS_MAX 60000u
#define LIST_WAIT_MS 20u

static const char usage[] =
    "hakmem-top [PID]\n"
    "\n"
    "Shows what a process that was started with HAKMEM_LIVE=1 holds, while it runs: the heap over time, size classes,\n"
    "call sites of large objects, threads, purge activity. h shows the keys. Without PID: a list to choose from.\n";

enum next { NEXT_QUIT, NEXT_LIST, NEXT_PROCESS };

/* --- one process --- */

static void sort_by(struct top_data *data, int step) {
  unsigned count = live_column_count(top_forms[data->view].form);
  data->sorted_by[data->view] = (data->sorted_by[data->view] + count + (unsigned)step) % count;
}

static bool key_of_view(struct top_screen *screen, struct top_data *data, int key) {
  for (unsigned view = 0; view < TOP_VIEWS; view++)
    if (key == top_forms[view].key || (key == '\t' && view == ((unsigned)data->view + 1) % TOP_VIEWS)) {
      data->view = (enum top_view)view;
      screen->first_row = 0;
      return true;
    }
  return false;
}

static void key_scrolls(struct top_screen *screen, const struct top_data *data, int key) {
  long page = LINES / 2, most = data->row_count ? (long)data->row_count - 1 : 0;
  long row = (long)screen->first_row;
  row += key == KEY_UP ? -1 : key == KEY_DOWN ? 1 : key == KEY_PPAGE ? -page : key == KEY_NPAGE ? page : 0;
  screen->first_row = row < 0 || key == KEY_HOME ? 0 : row > most ? (unsigned)most : (unsigned)row;
}

static void key_pressed(struct top_screen *screen, struct top_data *data, int key) {
  if (screen->shows_help || key == 'h' || key == '?')
    screen->shows_help = !screen->shows_help;
  else if (key == '<' || key == '>')
    sort_by(data, key == '<' ? -1 : 1);
  else if (key == 'r')
    data->is_ascending[data->view] = !data->is_ascending[data->view];
  else if (key == '+' && screen->interval_ms > INTERVAL_MS_MIN)
    screen->interval_ms /= 2;
  else if (key == '-' && screen->interval_ms < INTERVAL_MS_MAX)
    screen->interval_ms *= 2;
  else if (!key_of_view(screen, data, key))
    key_scrolls(screen, data, key);
}

/* Waits until the next refresh is due, or a key is pressed. */
static int wait_key(uint64_t until_ms) {
  uint64_t now_ms = os_milliseconds();
  timeout(until_ms > now_ms ? (int)(until_ms - now_ms) : 0);
  return getch();
}

static enum next show_process(struct top_screen *screen, struct top_data *data) {
  uint64_t next_ms = 0;
  for (;;) {
    if (os_milliseconds() >= next_ms) {
      top_refresh(data);
      next_ms = os_milliseconds() + screen->interval_ms;
    }
    top_draw(screen, data);
    int key = wait_key(next_ms);
    if (key == 'q' && !screen->shows_help)
      return NEXT_QUIT;
    if (key == 'l' && !screen->shows_help)
      return NEXT_LIST;
    if (key == ERR || key == KEY_RESIZE)
      continue;
    key_pressed(screen, data, key);
    if (data->sample_count > 0)
      top_arrange(data);
  }
}

/* --- the list --- */

struct list {
  struct top_listed listed[TOP_LISTED];
  unsigned count;
};

static void add_listed(struct live_process *process, void *context) {
  struct list *list = context;
  if (list->count == TOP_LISTED)
    return;
  struct top_listed *listed = &list->listed[list->count++];
  listed->pid = process->pid;
  live_line(process, listed->line);
}

static enum next choose_process(long *pid) {
  static struct list list;
  unsigned chosen = 0;
  uint64_t next_ms = 0;
  for (;;) {
    if (os_milliseconds() >= next_ms) {
      list.count = 0;
      live_list(LIST_WAIT_MS, add_listed, &list);
      next_ms = os_milliseconds() + INTERVAL_MS;
    }
    if (chosen >= list.count)
      chosen = list.count ? list.count - 1 : 0;
    top_draw_list(list.listed, list.count, chosen);
    int key = wait_key(next_ms);
    if (key == 'q')
      return NEXT_QUIT;
    if (key == KEY_UP && chosen > 0)
      chosen--;
    if (key == KEY_DOWN && chosen + 1 < list.count)
      chosen++;
    if ((key == '\n' || key == KEY_ENTER) && list.count) {
      *pid = list.listed[chosen].pid;
      return NEXT_PROCESS;
    }
  }
}

/* --- all --- */

static SCREEN *terminal;

static bool terminal_begin(void) {
  terminal = newterm(NULL, stdout, stdin);
  if (terminal == NULL)
    return false;
  (void)cbreak();
  (void)noecho();
  (void)keypad(stdscr, TRUE);
  (void)curs_set(0);
  return true;
}

static void terminal_end(void) {
  (void)endwin();
  delscreen(terminal);
}

/* Shows a process. If it has ended since it was listed, the list comes again. */
static enum next look_at(struct top_screen *screen, struct top_data *data, long pid) {
  enum next next = NEXT_LIST;
  if (top_open(data, pid)) {
    screen->first_row = 0;
    next = show_process(screen, data);
  }
  live_close(&data->process);
  return next;
}

static void run_view(long pid) {
  static struct top_data data;
  const char *characters = nl_langinfo(CODESET); // NOLINT(concurrency-mt-unsafe): one thread
  struct top_screen screen = {.interval_ms = INTERVAL_MS, .has_blocks = strcmp(characters, "UTF-8") == 0};
  if (pid != 0) { /* print an error before the screen changes */
    if (!top_open(&data, pid))
      tool_fail((int)data.process.problem, "%s", data.process.sentence);
    live_close(&data.process);
  }
  if (!live_is_possible())
    tool_fail(2, LIVE_IMPOSSIBLE);
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
    tool_fail(2, "it needs a terminal; hakmem-live PID prints the figures once");
  if (!terminal_begin())
    tool_fail(2, "this terminal is not known (TERM)");
  enum next next = pid ? NEXT_PROCESS : NEXT_LIST;
  while (next != NEXT_QUIT)
    next = next == NEXT_LIST ? choose_process(&pid) : look_at(&screen, &data, pid);
  terminal_end();
}

int main(int count, char **arguments) {
  (void)setlocale(LC_ALL, ""); // NOLINT(concurrency-mt-unsafe): one thread
  const char *word;
  tool_begin("hakmem-top", usage, count, arguments);
  run_view(tool_words(arguments, NULL, &word, 1) ? tool_pid(word) : 0);
  return tool_end(0);
}
