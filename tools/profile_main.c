/* hakmem-profile: starts, writes and stops a heap profile of a process with HAKMEM_LIVE=1, from outside. */
#include "tools/live_control.h"
#include "tools/tool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KB_DEFAULT 512
#define KB_MAX (1 << 20)
#define WAIT_DEFAULT_S 3
#define WAIT_MAX_S 3600
#define NAMES_MAX 10000

static const char usage[] =
    "hakmem-profile start [--kb N] PID\n"
    "hakmem-profile dump [--out FILE] PID\n"
    "hakmem-profile stop PID\n"
    "\n"
    "A heap profile of a process that was started with HAKMEM_LIVE=1, while it runs.\n"
    "  start   begins one, empty\n"
    "  dump    writes what is in it, as often as you want; also when it was stopped\n"
    "  stop    ends sampling; what was sampled stays, and leaves the profile when it is freed\n"
    "  --kb N      a sample each so many KiB (512); 0: every allocation\n"
    "  --out FILE  the profile (COMMAND.PID.pb.gz, or COMMAND.PID-2.pb.gz if that is there, ...); -: to stdout\n"
    "  --wait S    so many seconds at most for the process to begin (3)\n"
    "Exit status: 2 if it cannot be done, 1 if the process has ended.\n";

struct wish {
  enum control_verb verb;
  long pid, kb;
  const char *out; /* NULL: a name is made from the command's */
};

/* --- the file --- */

/* Creates the file `out`, or one named after the command; never touches an existing file. NULL and errno: it cannot. */
static FILE *create_file(const struct wish *wish, const struct control *control, char *path, size_t path_bytes) {
  if (wish->out) {
    snprintf(path, path_bytes, "%s", wish->out);
    return fopen(path, "wxe");
  }
  char command[LIVE_COMMAND];
  live_thread_name(&control->live, (uint64_t)control->live.pid, command); /* the first thread has the process's name */
  for (char *at = command; *at; at++)
    if (*at == '/' || *at < ' ' || (at == command && (*at == '-' || *at == '.')))
      *at = '_';
  FILE *file = NULL;
  errno = EEXIST;
  for (int number = 1; file == NULL && errno == EEXIST && number <= NAMES_MAX; number++) {
    int length = snprintf(path, path_bytes, "%s.%ld", command, control->live.pid);
    snprintf(path + length, path_bytes - (size_t)length, number > 1 ? "-%d.pb.gz" : ".pb.gz", number);
    file = fopen(path, "wxe");
  }
  return file;
}

/* Creates the file when the whole profile is here, and is not interrupted then: a file that is there is whole. */
static void dump_profile(const struct wish *wish, struct control *control) {
  char path[4096 + 64] = "stdout";
  bool is_stdout = wish->out && strcmp(wish->out, "-") == 0;
  if (wish->out && strlen(wish->out) >= sizeof path)
    tool_fail(2, "--out: the name is too long");
  size_t length;
  void *bytes = control_answer(control, CONTROL_DUMP, &length);
  if (bytes == NULL)
    tool_fail((int)control->live.problem, "%s", control->live.sentence);
  sigset_t all, before;
  sigfillset(&all);
  if (!is_stdout)
    pthread_sigmask(SIG_SETMASK, &all, &before);
  FILE *file = is_stdout ? stdout : create_file(wish, control, path, sizeof path);
  if (file == NULL)
    tool_fail(2, errno == EEXIST ? "%s is there and is not overwritten" : "%s: %m", path);
  bool is_written = fwrite(bytes, 1, length, file) == length && fflush(file) == 0;
  int error = errno;
  if (!is_stdout && fclose(file) != 0 && is_written) {
    error = errno;
    is_written = false;
  }
  if (!is_written && !is_stdout)
    unlink(path);
  if (!is_stdout)
    pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!is_written) {
    clearerr(stdout); /* or the end of the tool would say it once more */
    errno = error;
    tool_fail(2, "%s: %m", path);
  }
  free(bytes);
  if (!is_stdout)
    printf("%s: %s; to look at it: go tool pprof -http=: %s, or hak profile top %s in a checkout\n", path,
           tool_size(length), path, path);
}

/* --- start and stop --- */

static void start_or_stop(const struct wish *wish, struct control *control) {
  uint64_t interval = wish->kb ? (uint64_t)wish->kb << 10 : 1;
  if (!control_ask(control, wish->verb, interval))
    tool_fail((int)control->live.problem, "%s", control->live.sentence);
  if (wish->verb == CONTROL_STOP)
    printf("process %ld: no more samples; hak profile dump %ld still writes the profile\n", wish->pid, wish->pid);
  else if (wish->kb == 0)
    printf("process %ld: a profile begins, of every allocation\n", wish->pid);
  else
    printf("process %ld: a profile begins, a sample each %ld KiB\n", wish->pid, wish->kb);
}

int main(int count, char **arguments) {
  static const char *const verbs[] = {[CONTROL_START] = "start", [CONTROL_DUMP] = "dump", [CONTROL_STOP] = "stop"};
  struct wish wish = {.kb = KB_DEFAULT};
  struct control control;
  const char *word, *kb = NULL, *wait = NULL;
  long wait_s = WAIT_DEFAULT_S;
  tool_begin("hakmem-profile", usage, count, arguments);
  for (enum control_verb verb = CONTROL_START; count > 1 && verb <= CONTROL_STOP; verb++)
    if (strcmp(arguments[1], verbs[verb]) == 0)
      wish.verb = verb;
  if (wish.verb == 0)
    tool_refuse("takes start, dump or stop, and a PID");
  const struct tool_option options[] = {
      {"--wait", NULL, &wait},
      wish.verb == CONTROL_START  ? (struct tool_option){"--kb", NULL, &kb}
      : wish.verb == CONTROL_DUMP ? (struct tool_option){"--out", NULL, &wish.out}
                                  : (struct tool_option){NULL, NULL, NULL},
      {NULL, NULL, NULL},
  };
  int given = tool_words(arguments + 1, options, &word, 1);
  if (kb && !tool_number(kb, KB_MAX, &wish.kb))
    tool_fail(2, "--kb takes 0 to %d, not '%s'", KB_MAX, kb);
  if (wait && !tool_number(wait, WAIT_MAX_S, &wait_s))
    tool_fail(2, "--wait takes 0 to %d seconds, not '%s'", WAIT_MAX_S, wait);
  if (wish.out && *wish.out == 0)
    tool_fail(2, "--out takes the name of a file");
  if (given == 0)
    tool_fail(2, "takes a PID; hak stats lists the processes");
  wish.pid = tool_pid(word);
  if (!control_open(&control, wish.pid, (uint64_t)wait_s * 1000))
    tool_fail((int)control.live.problem, "%s", control.live.sentence);
  if (wish.verb == CONTROL_DUMP)
    dump_profile(&wish, &control);
  else
    start_or_stop(&wish, &control);
  control_close(&control);
  return tool_end(0);
}
