#include "stats/report.h"

#include "inspect/figures.h"
#include "os/os.h"
#include "os/say.h"
#include "stats/format.h"

/* Too long for a stack. Each report has its own, so no thread waits for one whose reader does not read. */
struct report {
  struct stats_snapshot snapshot;
  char bytes[STATS_FORMAT_BYTES_MAX];
};

static size_t report_bytes(void) { return round_up(sizeof(struct report), os_page_bytes()); }

/* Returns NULL if there is no memory, or in a signal handler that interrupted a slow path. */
static struct report *report_make(enum stats_mode mode, struct text *text) {
  struct report *report = os_map(report_bytes(), os_page_bytes());
  if (report == NULL)
    return NULL;
  if (!stats_snapshot_take(&report->snapshot)) {
    os_unmap(report, report_bytes());
    return NULL;
  }
  *text = TEXT_IN(report->bytes);
  stats_format(text, mode, &report->snapshot);
  return report;
}

void stats_report(int fd, enum stats_mode mode) {
  static const char no_memory[] = "hakmem: no summary: no memory for it, or the program ended inside malloc\n";
  struct text text;
  struct report *report = report_make(mode, &text);
  if (report == NULL) {
    os_write(fd, no_memory, sizeof no_memory - 1);
    return;
  }
  os_write(fd, text.bytes, text.length);
  os_unmap(report, report_bytes());
}

enum os_file_error stats_report_file(const char *path, enum stats_mode mode) {
  struct text text;
  struct report *report = report_make(mode, &text);
  if (report == NULL)
    return OS_FILE_NO_MEMORY;
  enum os_file_error error = os_file_replace(path, text.bytes, text.length);
  os_unmap(report, report_bytes());
  return error;
}

bool stats_path(const char *pattern, uint64_t pid, char *out, size_t out_bytes) {
  struct text path = {.bytes = out, .capacity = out_bytes};
  out[0] = 0;
  text_path(&path, pattern, pid);
  return path.length + 1 < out_bytes;
}
