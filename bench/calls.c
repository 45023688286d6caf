#include "calls.h"

#include "bench.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<linux/perf_event.h>)
#include <linux/perf_event.h>

int calls_open(enum calls_from from, const char **why) {
  static const char *const paths[] = {"/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
                                      "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id"};
  uint64_t id = 0;
  for (size_t i = 0; !id && i < sizeof paths / sizeof *paths; i++)
    id = bench_file_number(paths[i], "");
  if (!id) {
    *why = "no tracepoint raw_syscalls:sys_enter here (root and tracefs?)";
    return -1;
  }
  struct perf_event_attr wanted = {
      .type = PERF_TYPE_TRACEPOINT,
      .size = sizeof wanted,
      .config = id,
      .inherit = 1,
      .disabled = from == CALLS_FROM_EXEC,
      .enable_on_exec = from == CALLS_FROM_EXEC,
  };
  int fd = (int)syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0)
    *why = strerror(errno);
  return fd;
}
#else
int calls_open(enum calls_from from, const char **why) {
  (void)from;
  *why = "built without the kernel's headers";
  return -1;
}
#endif

bool calls_read(int fd, uint64_t *count) { return fd >= 0 && read(fd, count, sizeof *count) == (ssize_t)sizeof *count; }
