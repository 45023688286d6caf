#include "telemetry/report.h"

#include "base/text.h"
#include "os/lock.h"
#include "os/os.h"
#include "telemetry/format.h"

/* Too long for a stack, and memory may be out. */
static struct {
  struct lock lock;
  struct stats_snapshot snapshot;
  char bytes[STATS_FORMAT_BYTES_MAX];
} report;

static struct text report_made(enum stats_mode mode) {
  struct text text = TEXT_IN(report.bytes);
  stats_snapshot_take(&report.snapshot);
  stats_format(&text, mode, &report.snapshot);
  return text;
}

void stats_report(int fd, enum stats_mode mode) {
  lock_take(&report.lock);
  struct text text = report_made(mode);
  os_write(fd, text.bytes, text.length);
  lock_give(&report.lock);
}

enum os_file_error stats_report_file(const char *path, enum stats_mode mode) {
  lock_take(&report.lock);
  struct text text = report_made(mode);
  enum os_file_error error = os_file_replace(path, text.bytes, text.length);
  lock_give(&report.lock);
  return error;
}

bool stats_path(const char *pattern, uint64_t pid, char *out, size_t out_bytes) {
  struct text path = {.bytes = out, .capacity = out_bytes};
  out[0] = 0;
  for (const char *c = pattern; *c; c++) {
    if (c[0] == '%' && c[1] == 'p') {
      text_decimal(&path, pid);
      c++;
    } else {
      c += c[0] == '%' && c[1] == '%';
      text_string(&path, (const char[]){*c, 0});
    }
  }
  return path.length + 1 < out_bytes;
}

void stats_lock_for_fork(void) { lock_take(&report.lock); }

void stats_unlock_after_fork(bool child) {
  if (child)
    lock_reset(&report.lock);
  else
    lock_give(&report.lock);
}
