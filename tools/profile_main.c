/* hakmem-profile: starts, writes and stops a heap profile of a process with HAKMEM_LIVE=1, from outside. */
#include "tools/live_control.h"
#include "tools/live_print.h"
#include "tools/tool.h"

#include <errno.h>
#include <fcntl.h>
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
  long pid, kb, wait_s;
  const char *out; /* NULL: a name is made from the command's */
};

/* --- the file --- */

/* Creates the file `out`, or one named after the command; never touches an existing file. Returns a descriptor, or -1
 * and errno. */
static int create_file(const struct wish *wish, const struct control *control, char *path, size_t path_bytes) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  if (wish->out) {
    snprintf(path, path_bytes, "%s", wish->out);
    return open(path, flags, 0666);
  }
  struct live_kernel kernel;
  live_kernel(&control->live, &kernel);
  for (char *at = kernel.command; *at; at++)
    if (*at == '/' || *at < ' ' || (at == kernel.command && (*at == '-' || *at == '.')))
      *at = '_';
  int fd = -1;
  for (int number = 1; fd < 0 && number <= NAMES_MAX; number++) {
    int length = snprintf(path, path_bytes, "%s.%ld", kernel.command, control->live.pid);
    snprintf(path + length, path_bytes - (size_t)length, number > 1 ? "-%d.pb.gz" : ".pb.gz", number);
    fd = open(path, flags, 0666);
    if (fd < 0 && errno != EEXIST)
      break;
  }
  return fd;
}

/* Creates the file first: if that fails, no command is sent. */
static int dump_profile(const struct wish *wish, struct control *control) {
  char path[4096 + 64] = "stdout", size[LIVE_SIZE];
  bool is_stdout = wish->out && strcmp(wish->out, "-") == 0;
  if (wish->out && strlen(wish->out) >= sizeof path)
    return tool_complain(2, "--out: the name is too long");
  int fd = is_stdout ? STDOUT_FILENO : create_file(wish, control, path, sizeof path);
  if (fd < 0)
    return errno == EEXIST ? tool_complain(2, "%s is there and is not overwritten", path)
                           : tool_complain(2, "%s: %m", path);
  size_t length;
  void *bytes = control_answer(control, CONTROL_DUMP, &length);
  int status = 0;
  if (bytes == NULL)
    status = tool_complain((int)control->live.problem, "%s", control->live.sentence);
  else if (!tool_write(fd, bytes, length) || (!is_stdout && close(fd) != 0))
    status = tool_complain(2, "%s: %m", path);
  free(bytes);
  if (is_stdout)
    return status;
  if (status != 0)
    unlink(path);
  else
    printf("%s: %s; to look at it: go tool pprof -http=: %s, or hak profile top %s in a checkout\n", path,
           live_size(length, size), path, path);
  return status;
}

/* --- start and stop --- */

static int start_or_stop(const struct wish *wish, struct control *control) {
  uint64_t interval = wish->kb ? (uint64_t)wish->kb << 10 : 1;
  if (!control_ask(control, wish->verb, interval))
    return tool_complain((int)control->live.problem, "%s", control->live.sentence);
  if (wish->verb == CONTROL_STOP)
    printf("process %ld: no more samples; hak profile dump %ld still writes the profile\n", wish->pid, wish->pid);
  else if (wish->kb == 0)
    printf("process %ld: a profile begins, of every allocation\n", wish->pid);
  else
    printf("process %ld: a profile begins, a sample each %ld KiB\n", wish->pid, wish->kb);
  return 0;
}

/* --- what is wanted --- */

static int option_taken(struct wish *wish, const char *name, const char *value) {
  if (strcmp(name, "--kb") == 0 && wish->verb == CONTROL_START)
    return tool_number(value, KB_MAX, &wish->kb) ? 0 : tool_complain(2, "--kb takes 0 to %d, not '%s'", KB_MAX, value);
  if (strcmp(name, "--wait") == 0)
    return tool_number(value, WAIT_MAX_S, &wish->wait_s)
               ? 0
               : tool_complain(2, "--wait takes 0 to %d seconds, not '%s'", WAIT_MAX_S, value);
  if (strcmp(name, "--out") == 0 && wish->verb == CONTROL_DUMP) {
    wish->out = value;
    return *value ? 0 : tool_complain(2, "--out takes the name of a file");
  }
  return tool_refuse("unknown option '%s'", name);
}

static bool takes_value(const char *word) {
  return strcmp(word, "--kb") == 0 || strcmp(word, "--wait") == 0 || strcmp(word, "--out") == 0;
}

/* Parses an option, as --name value or --name=value. Returns how many words it took, 0 after an error message. */
static int take_option(struct wish *wish, char **words, int count) {
  char name[16];
  const char *equals = strchr(words[0], '=');
  if (equals && (size_t)(equals - words[0]) < sizeof name) {
    snprintf(name, sizeof name, "%.*s", (int)(equals - words[0]), words[0]);
    return option_taken(wish, name, equals + 1) == 0 ? 1 : 0;
  }
  if (takes_value(words[0]) && count < 2) {
    tool_complain(2, "%s needs a value", words[0]);
    return 0;
  }
  return option_taken(wish, words[0], count > 1 ? words[1] : "") == 0 ? 2 : 0;
}

static bool take_pid(struct wish *wish, const char *word) {
  if (wish->pid >= 0)
    return tool_refuse("one argument too many: '%s'", word) == 0;
  return tool_pid(word, &wish->pid);
}

static bool take_words(struct wish *wish, char **words, int count) {
  static const char *const verbs[] = {[CONTROL_START] = "start", [CONTROL_DUMP] = "dump", [CONTROL_STOP] = "stop"};
  for (enum control_verb verb = CONTROL_START; count > 0 && verb <= CONTROL_STOP; verb++)
    if (strcmp(words[0], verbs[verb]) == 0)
      wish->verb = verb;
  if (wish->verb == 0)
    return tool_refuse("takes start, dump or stop, and a PID") == 0;
  for (int i = 1; i < count;) {
    int used = 1;
    if (words[i][0] == '-' && (used = take_option(wish, words + i, count - i)) == 0)
      return false;
    if (words[i][0] != '-' && !take_pid(wish, words[i]))
      return false;
    i += used;
  }
  return wish->pid >= 0 || tool_complain(2, "takes a PID; hak stats lists the processes") == 0;
}

int main(int count, char **arguments) {
  if (tool_begin("hakmem-profile", usage, count, arguments))
    return tool_end(0);
  struct wish wish = {.pid = -1, .kb = KB_DEFAULT, .wait_s = WAIT_DEFAULT_S};
  if (!take_words(&wish, arguments + 1, count - 1))
    return 2;
  struct control control;
  if (!control_open(&control, wish.pid, (uint64_t)wish.wait_s * 1000))
    return tool_complain((int)control.live.problem, "%s", control.live.sentence);
  int status = wish.verb == CONTROL_DUMP ? dump_profile(&wish, &control) : start_or_stop(&wish, &control);
  control_close(&control);
  return tool_end(status);
}
