/* hakmem-live: prints what a process with HAKMEM_LIVE=1 holds, while it runs. */
#include "hakmem/hakmem.h"
#include "tools/live_print.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_WAIT_MS 300u
#define FRESH_WAIT_OF_MANY_MS 20u

static const char usage[] =
    "hakmem-live [--json] [PID]\n"
    "\n"
    "Prints what a process that was started with HAKMEM_LIVE=1 holds. It is not stopped, and cannot be changed.\n"
    "Without PID: the processes that can be looked at.\n"
    "  --json   for programs: one object, without PID a list of objects\n"
    "Exit status: 2 if the process cannot be looked at, 1 if it has ended.\n";

__attribute__((format(printf, 2, 3))) static int complain(int status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  fputs("hakmem-live: ", stderr);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  return status;
}

static int show_process(const char *word, bool is_json) {
  char *end;
  errno = 0;
  long pid = strtol(word, &end, 10);
  if (*word < '0' || *word > '9' || *end != 0)
    return complain(2, "'%s' is no process id; see: hakmem-live --help", word);
  if (errno != 0)
    return complain(2, "there is no process %s", word);
  struct live_process process;
  if (!live_open(&process, pid))
    return complain((int)process.problem, "%s", process.sentence);
  live_ask(&process, FRESH_WAIT_MS);
  int status = 0;
  if (!live_take(&process))
    status = complain((int)process.problem, "%s", process.sentence);
  else if (is_json)
    live_print_json(&process);
  else
    live_print(&process);
  live_close(&process);
  return status;
}

static void list_json(struct live_process *process, void *context) {
  bool *is_first = context;
  putchar(*is_first ? '[' : ',');
  *is_first = false;
  live_print_json(process);
}

static void list_line(struct live_process *process, void *context) {
  bool *is_first = context;
  struct live_kernel kernel;
  char live[LIVE_SIZE], heap[LIVE_SIZE], resident[LIVE_SIZE], age[LIVE_SIZE];
  live_kernel(process, &kernel);
  if (*is_first)
    printf("%8s %7s %10s %10s %10s %14s  %s\n", "pid", "threads", "live", "heap", "resident", "age", "command");
  *is_first = false;
  printf("%8ld %7u %10s %10s %10s %14s  %s\n", process->pid, kernel.threads,
         live_size(live_total(process, "live_bytes"), live), live_size(live_total(process, "heap_bytes"), heap),
         live_size(kernel.resident_bytes, resident), live_duration(live_age_s(process), age), kernel.command);
}

static int list_processes(bool is_json) {
  bool is_first = true;
  size_t count = live_list(FRESH_WAIT_OF_MANY_MS, is_json ? list_json : list_line, &is_first);
  if (is_json)
    puts(count ? "]" : "[]");
  else if (count == 0)
    puts("no process can be looked at: none of yours runs on hakmem with HAKMEM_LIVE=1");
  return 0;
}

int main(int count, char **arguments) {
  hak_option_set("stats", "off"); /* a summary of this program would be in the way */
  bool is_json = false;
  const char *pid = NULL;
  for (int i = 1; i < count; i++) {
    if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
      fputs(usage, stdout);
      return fflush(stdout) != 0;
    }
    if (strcmp(arguments[i], "--json") == 0)
      is_json = true;
    else if (arguments[i][0] == '-')
      return complain(2, "unknown option '%s'; see: hakmem-live --help", arguments[i]);
    else if (pid != NULL)
      return complain(2, "one argument too many: '%s'; see: hakmem-live --help", arguments[i]);
    else
      pid = arguments[i];
  }
  int status = pid ? show_process(pid, is_json) : list_processes(is_json);
  return status == 0 && fflush(stdout) != 0 ? 1 : status;
}
