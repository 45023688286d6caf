/* hakmem-doctor: finds what keeps a program from running well, or at all, on hakmem. */
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "hakmem-doctor [--all] [--json] [--library LIBRARY] [PID | -- CMD [ARGUMENT...]]\n"
    "hakmem-doctor --checks\n"
    "hakmem-doctor --crash FILE\n"
    "\n"
    "Looks for what keeps a program from running well, or at all, on hakmem: of the machine, of process PID, or of\n"
    "CMD as it would be started from here. CMD is not run, and PID is not stopped.\n"
    "  --all      also prints what is in order\n"
    "  --json     one object for programs\n"
    "  --library  the libhakmem.so that CMD is to run on\n"
    "  --checks   prints what is looked at\n"
    "  --crash    prints a report of HAKMEM_GUARD or of leaks, from FILE (-: stdin), with the names of functions\n"
    "A line is a finding: problem, warning or note, the check's name, what is so, what to do.\n"
    "Exit status: 0 no problem, 1 a problem, 2 wrong usage.\n";

static void subject_diagnose(struct doctor *doctor) {
  doctor->environment = environ;
  snprintf(doctor->proc, sizeof doctor->proc, doctor->pid ? "/proc/%ld" : "/proc/self", doctor->pid);
  if (strlen(doctor->root) > PATH_MAX / 4)
    tool_fail(2, "the root's path is too long");
  if (doctor->pid)
    doctor_of_process(doctor);
  else if (doctor->command)
    doctor_of_command(doctor);
  doctor_take_options(doctor);
  doctor_find_group(doctor);
  doctor_run(doctor);
}

/* Cuts the arguments at "--". Returns what follows it, NULL if there is none. */
static char **command_cut(char **arguments) {
  for (; *arguments; arguments++)
    if (strcmp(*arguments, "--") == 0) {
      *arguments = NULL;
      return arguments + 1;
    }
  return NULL;
}

int main(int count, char **arguments) {
  static struct doctor doctor = {.root = ""};
  bool all = false, json = false, checks = false;
  const char *crash = NULL, *words[2];
  const struct tool_option options[] = {
      {"--all", &all, NULL},
      {"--json", &json, NULL},
      {"--checks", &checks, NULL},
      {"--crash", NULL, &crash},
      {"--library", NULL, &doctor.library},
      {"--root", NULL, &doctor.root}, /* for tests: the folder that contains /proc, /sys and /etc */
      {NULL, NULL, NULL},
  };
  tool_begin("hakmem-doctor", usage, count, arguments);
  doctor.command = command_cut(arguments);
  int given = tool_words(arguments, options, words, 2);
  if (doctor.command && *doctor.command == NULL)
    tool_fail(2, "-- needs a CMD");
  if (doctor.command && **doctor.command == 0)
    tool_fail(2, "CMD is empty");
  if ((crash || checks) && (given || doctor.command || all || json || (crash && checks)))
    tool_refuse("%s goes with no other argument", crash ? "--crash FILE" : "--checks");
  if (given > (doctor.command ? 0 : 1))
    tool_refuse("takes one PID, or -- CMD");
  if (given && (!tool_number(words[0], INT_MAX, &doctor.pid) || doctor.pid == 0))
    tool_fail(2, "'%s' is no process's number; for a program: hakmem-doctor -- %s", words[0], words[0]);
  if (crash)
    doctor_print_crash(crash);
  else if (checks)
    doctor_print_checks();
  else {
    subject_diagnose(&doctor);
    if (json)
      doctor_print_json(&doctor);
    else
      doctor_print(all);
  }
  return tool_end(doctor_found_problem());
}
