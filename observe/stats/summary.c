#include "stats/summary.h"

#include "base/text.h"
#include "heap/slow_path.h"
#include "inspect/figures.h"
#include "inspect/file.h"
#include "os/os.h"
#include "os/say.h"
#include "stats/format.h"

/* --- one report --- */

/* Too long for a stack. The first one is ready, so it is written also where memory is out, and its figures count no
 * calls of its own. While it is in use each other one is mapped, so no thread waits for one whose reader does not
 * read. */
struct report {
  struct stats_snapshot snapshot;
  char bytes[STATS_FORMAT_BYTES_MAX];
};
static SPARSE struct report first_report;
static atomic_bool first_is_in_use;

static size_t report_bytes(void) { return round_up(sizeof(struct report), os_page_bytes()); }

static struct report *report_begin(void) {
  return atomic_exchange(&first_is_in_use, true) ? os_map(report_bytes(), os_page_bytes()) : &first_report;
}

static void report_end(struct report *report) {
  if (report == &first_report)
    atomic_store(&first_is_in_use, false);
  else if (report)
    os_unmap(report, report_bytes());
}

/* Replaces the file at path; NULL: writes to fd. */
static enum os_file_error report_write(const char *path, int fd, enum stats_mode mode) {
  static const char no_memory[] = "hakmem: no summary: no memory for it, or the program ended inside malloc\n";
  struct report *report = report_begin();
  enum os_file_error error = OS_FILE_OK;
  if (report && stats_snapshot_take(&report->snapshot)) {
    struct text text = TEXT_IN(report->bytes);
    stats_format(&text, mode, &report->snapshot);
    if (path)
      error = os_file_replace(path, text.bytes, text.length);
    else
      os_write(fd, text.bytes, text.length);
  } else {
    error = OS_FILE_NO_MEMORY;
    if (path == NULL)
      os_write(fd, no_memory, sizeof no_memory - 1);
  }
  report_end(report);
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
