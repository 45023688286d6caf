/* hakmem-policy: shows what hakmem has learned about a program's call sites, from a process or a file. */
#include "adapt/strategy_words.h"
#include "tools/policy_view.h"
#include "tools/tool.h"

#include <string.h>

static const char usage[] =
    "hakmem-policy show [--json] PID|FILE\n"
    "hakmem-policy fixed STRATEGY FILE\n"
    "\n"
    "show prints what was learned (HAKMEM_POLICY=evolving) of each call site and range of sizes: what is done with "
    "what\n"
    "it frees, the ratings, the cost in milliseconds by the engine's own reckoning, and the regret, which is that "
    "cost\n"
    "less that of the strategy that would have been best for this site.\n"
    "  PID      digits: a process that was started with HAKMEM_LIVE=1\n"
    "  FILE     what HAKMEM_POLICY_FILE wrote; ./123 is a file\n"
    "  --json   one object for programs\n"
    "fixed writes a FILE by which one strategy decides everywhere, with HAKMEM_POLICY=frozen.\n"
    "  STRATEGY at_once, 10ms, 100ms, 1s, 10s or warm: how long what is free stays resident\n"
    "Exit status: 2 if the process cannot be looked at, 1 if it has ended or FILE cannot be read or written.\n";

static void show_policy(const char *name, bool is_json) {
  struct policy_view view;
  if (*name != 0 && name[strspn(name, "0123456789")] == 0)
    policy_view_of_process(&view, tool_pid(name));
  else
    policy_view_of_file(&view, name);
  if (is_json)
    policy_view_print_json(&view);
  else
    policy_view_print(&view);
  policy_view_end(&view);
}

/* What the file says about costs is not used when it is read. */
static void write_fixed(const char *strategy_name, const char *path) {
  unsigned strategy = 0;
  while (strategy < KEEP_STRATEGIES && strcmp(strategy_words[strategy].name, strategy_name) != 0)
    strategy++;
  if (strategy == KEEP_STRATEGIES)
    tool_fail(2, "unknown strategy '%s' (at_once, 10ms, 100ms, 1s, 10s or warm)", strategy_name);
  static const char writer_name[] = "hakmem-policy fixed";
  char problem[POLICY_DISK_SENTENCE];
  if (!policy_disk_may_write(path, writer_name, problem))
    tool_fail(1, "%s", problem);
  static unsigned char bytes[16384];
  struct policy_file_writer writer;
  policy_file_begin(&writer, bytes, sizeof bytes, &(struct policy_table_costs){0}, writer_name);
  policy_file_add_fixed(&writer, (enum keep)strategy);
  size_t length = policy_file_end(&writer);
  if (length == 0)
    tool_fail(1, "the file does not fit");
  if (!policy_disk_write(path, bytes, length, problem))
    tool_fail(1, "%s", problem);
}

int main(int count, char **arguments) {
  bool is_json = false;
  const char *words[3];
  const struct tool_option options[] = {{"--json", &is_json, NULL}, {NULL, NULL, NULL}};
  tool_begin("hakmem-policy", usage, count, arguments);
  int given = tool_words(arguments, options, words, 3);
  if (given == 2 && strcmp(words[0], "show") == 0)
    show_policy(words[1], is_json);
  else if (given == 3 && strcmp(words[0], "fixed") == 0 && !is_json)
    write_fixed(words[1], words[2]);
  else
    tool_refuse("takes show PID, show FILE or fixed STRATEGY FILE");
  return tool_end(0);
}
