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

struct choices {
  bool all, json, checks;
  const char *crash; /* NULL, or a report's file */
};

/* Parses the arguments after the options. */
static int subject_parse(struct doctor *doctor, char **words, bool is_command) {
  if (is_command && *words == NULL)
    return tool_complain(2, "-- needs a CMD");
  if (is_command) {
    doctor->command = words;
    return 0;
  }
  if (*words == NULL)
    return 0;
  if (words[1])
    return tool_refuse("takes one PID, or -- CMD");
  if (!tool_number(*words, INT_MAX, &doctor->pid) || doctor->pid == 0)
    return tool_complain(2, "'%s' is no process's number; for a program: hakmem-doctor -- %s", *words, *words);
  return 0;
}

/* Returns 0, or the exit status. --root is for tests: the folder that contains /proc, /sys and /etc. */
static int arguments_parse(struct doctor *doctor, struct choices *choices, char **word) {
  const struct {
    const char *name;
    bool *choice;
    const char **path; /* for an option with a value */
  } options[] = {
      {"--all", &choices->all, NULL},     {"--json", &choices->json, NULL},      {"--checks", &choices->checks, NULL},
      {"--crash", NULL, &choices->crash}, {"--library", NULL, &doctor->library}, {"--root", NULL, &doctor->root},
  };
  const size_t count = sizeof options / sizeof *options;
  for (word++; *word && **word == '-' && strcmp(*word, "--") != 0; word++) {
    size_t i = 0;
    while (i < count && strcmp(*word, options[i].name) != 0)
      i++;
    if (i == count)
      return tool_refuse("unknown option '%s'", *word);
    if (options[i].choice)
      *options[i].choice = true;
    else if (word[1] == NULL)
      return tool_complain(2, "%s needs a path", *word);
    else
      *options[i].path = *++word;
  }
  bool is_command = *word && strcmp(*word, "--") == 0;
  return subject_parse(doctor, word + is_command, is_command);
}

static int subject_diagnose(struct doctor *doctor, const struct choices *choices) {
  char problem[DOCTOR_SENTENCE];
  doctor->environment = environ;
  snprintf(doctor->proc, sizeof doctor->proc, doctor->pid ? "/proc/%ld" : "/proc/self", doctor->pid);
  if (strlen(doctor->root) > PATH_MAX / 4)
    return tool_complain(2, "the root's path is too long");
  if ((doctor->pid && !doctor_of_process(doctor, problem)) || (doctor->command && !doctor_of_command(doctor, problem)))
    return tool_complain(2, "%s", problem);
  doctor_take_options(doctor);
  doctor_find_group(doctor);
  if (!doctor_run(doctor))
    return tool_complain(2, "no memory for the findings");
  if (choices->json)
    doctor_print_json(doctor);
  else
    doctor_print(choices->all);
  return doctor_found_problem();
}

int main(int count, char **arguments) {
  static struct doctor doctor = {.root = ""};
  struct choices choices = {.all = false};
  if (tool_begin("hakmem-doctor", usage, count, arguments))
    return tool_end(0);
  int status = arguments_parse(&doctor, &choices, arguments);
  if (status != 0)
    return status;
  if (choices.crash)
    status = doctor_print_crash(choices.crash);
  else if (choices.checks)
    doctor_print_checks();
  else
    status = subject_diagnose(&doctor, &choices);
  return tool_end(status);
}
