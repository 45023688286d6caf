#include "stats/summary.h"

#include "base/text.h"
#include "heap/slow_path.h"
#include "inspect/figures.h"
#include "inspect/file.h"
#include "os/os.h"
#include "os/say.h"
#include "stats/format.h"

/* --- one report --- */

/* Replaces the file at path; NULL: writes to fd. Each report has its own text, so no thread waits for one whose reader
 * does not read. The snapshot comes first, so the figures leave out the mapping of the text. */
static enum os_file_error report_write(const char *path, int fd, enum stats_mode mode) {
  static const char no_memory[] = "hakmem: no summary: no memory for it, or the program ended inside malloc\n";
  const size_t capacity = round_up(STATS_FORMAT_BYTES_MAX, os_page_bytes());
  struct stats_snapshot snapshot;
  char *bytes = stats_snapshot_take(&snapshot) ? os_map(capacity, os_page_bytes()) : NULL;
  if (bytes == NULL) {
    if (path == NULL)
      os_write(fd, no_memory, sizeof no_memory - 1);
    return OS_FILE_NO_MEMORY;
  }
  enum os_file_error error = OS_FILE_OK;
  struct text text = {.bytes = bytes, .capacity = capacity};
  stats_format(&text, mode, &snapshot);
  if (path)
    error = os_file_replace(path, text.bytes, text.length);
  else
    os_write(fd, text.bytes, text.length);
  os_unmap(bytes, capacity);
  return error;
}

void stats_report(int fd, enum stats_mode mode) { report_write(NULL, fd, mode); }

/* --- at the program's end --- */

/* The descriptor stays open from the first time a summary is wanted. Only summary_open writes it. */
enum report_state { REPORT_NONE, REPORT_OPENING, REPORT_OPEN };
static _Atomic int report_state;
static int report_fd = -1;
static struct os_file report_file;

static SPARSE char report_pattern[OPTION_TEXT_BYTES]; /* of the file's path; "": no file is wanted */

static enum stats_mode report_mode(void) {
  return report_pattern[0] && !option_is_set(OPTION_STATS) ? STATS_OPENMETRICS
                                                           : (enum stats_mode)option_value(OPTION_STATS);
}

static bool report_is_wanted(void) {
  long pid = option_value(OPTION_STATS_PID);
  return report_mode() != STATS_OFF && (pid == 0 || pid == os_process_id());
}

static void report_complain(const char *path, const char *reason) {
  char bytes[OPTION_TEXT_BYTES + 128];
  struct text text = TEXT_IN(bytes);
  text_format(&text, "hakmem: %s: %s; no summary is written\n", path, reason);
  os_say(bytes);
}

/* Makes the path absolute now, because the program may change its folder later. */
static void summary_file_find(void) {
  const char *path = option_string(OPTION_STATS_FILE);
  if (*path == 0 || os_pattern_absolute(path, report_pattern, sizeof report_pattern))
    return;
  report_pattern[0] = 0;
  report_complain(path, "there is no such folder, or the name is too long");
}

static void report_write_file(void) {
  char path[OPTION_TEXT_BYTES];
  bool has_id, fits = text_path(report_pattern, (uint64_t)os_process_id(), path, sizeof path, &has_id);
  enum os_file_error error = fits ? report_write(path, -1, report_mode()) : OS_FILE_NAME_TOO_LONG;
  if (error)
    report_complain(path, os_file_words(error));
}

void summary_open(void) {
  int none = REPORT_NONE;
  if (!report_is_wanted() || report_pattern[0] || !atomic_compare_exchange_strong(&report_state, &none, REPORT_OPENING))
    return;
  report_fd = os_duplicate_high(2); /* programs may close stderr before the summary */
  if (report_fd >= 0)
    report_file = os_file_identity(report_fd);
  atomic_store_explicit(&report_state, report_fd >= 0 ? REPORT_OPEN : REPORT_NONE, memory_order_release);
}

/* Tells whether the descriptor is still the one that was opened. The program may have closed it and got its number for
 * a file of its own. */
static bool report_is_open(void) {
  return atomic_load_explicit(&report_state, memory_order_acquire) == REPORT_OPEN && os_file_is(report_fd, report_file);
}

void summary_write(void) {
  if (!report_is_wanted() || (report_pattern[0] == 0 && !report_is_open()))
    return;
  if (thread_is_busy()) /* a signal handler that interrupted a slow path called exit */
    os_say("hakmem: no summary, the program ended inside malloc\n");
  else if (report_pattern[0])
    report_write_file();
  else
    stats_report(report_fd, report_mode());
}

void summary_begin(void) {
  summary_file_find();
  summary_open();
}
