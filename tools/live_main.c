/* hakmem-live: prints what a process with HAKMEM_LIVE=1 holds, while it runs. */
#include "hakmem/hakmem.h"
#include "tools/live_print.h"
#include "tools/tool.h"

#include <stdio.h>

#define FRESH_WAIT_MS 300u
#define FRESH_WAIT_OF_MANY_MS 20u

static const char usage[] =
    "hakmem-live [--json] [PID]\n"
    "\n"
    "Prints what a process that was started with HAKMEM_LIVE=1 holds. It is not stopped, and cannot be changed.\n"
    "Without PID: the processes that can be looked at.\n"
    "  --json   for programs: one object, without PID a list of objects\n"
    "Exit status: 2 if the process cannot be looked at, 1 if it has ended.\n";

static int show_process(long pid, bool is_json) {
  struct live_process process;
  if (!live_open(&process, pid))
    return tool_complain((int)process.problem, "%s", process.sentence);
  live_ask(&process, FRESH_WAIT_MS);
  int status = 0;
  if (!live_take(&process))
    status = tool_complain((int)process.problem, "%s", process.sentence);
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
  const char *word;
  long pid;
  if (tool_begin("hakmem-live", usage, count, arguments))
    return tool_end(0);
  int words = tool_words(count, arguments, &word, 1, &is_json);
  if (words < 0 || (words > 0 && !tool_pid(word, &pid)))
    return 2;
  return tool_end(words > 0 ? show_process(pid, is_json) : list_processes(is_json));
}
