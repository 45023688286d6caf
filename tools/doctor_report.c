/* doctor_report.c: runs the checks and prints their findings. */
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct check {
  const char *name;
  void (*look)(struct doctor *doctor);
  const char *sentence; /* what it looks at */
} checks[] = {
#define CHECK_ROW(function, name, sentence) {name, doctor_look_##function, sentence},
    DOCTOR_CHECKS(CHECK_ROW)};
#define CHECKS (sizeof checks / sizeof *checks)

struct finding {
  struct finding *next;
  enum severity severity;
  const char *check, *what;
  const char *todo; /* "": nothing is to be done */
};

static struct {
  struct finding *first, **last;
  const char *check; /* that runs */
  unsigned count[SEVERITIES];
} findings = {.last = &findings.first};

static const char *const severity_words[SEVERITIES] = {"ok", "note", "warning", "problem"};

/* Replaces control characters, because names that a program chooses may contain anything. */
static void make_printable(char *text) {
  for (; text && *text; text++)
    if ((unsigned char)*text < ' ' || *text == 127)
      *text = '?';
}

void doctor_report(enum severity severity, const char *format, ...) {
  struct finding *finding = malloc(sizeof *finding);
  char *text;
  va_list list;
  va_start(list, format);
  if (finding == NULL || vasprintf(&text, format, list) < 0)
    tool_fail(2, "no memory for the findings");
  va_end(list);
  char *todo = strrchr(format, '\n') ? strrchr(text, '\n') : NULL;
  if (todo)
    *todo++ = 0;
  make_printable(text);
  make_printable(todo);
  *finding = (struct finding){.severity = severity, .check = findings.check, .what = text, .todo = todo ? todo : ""};
  *findings.last = finding;
  findings.last = &finding->next;
  findings.count[severity]++;
}

void doctor_run(struct doctor *doctor) {
  for (size_t i = 0; i < CHECKS; i++) {
    findings.check = checks[i].name;
    checks[i].look(doctor);
  }
}

bool doctor_found_problem(void) { return findings.count[SEVERITY_PROBLEM] > 0; }

void doctor_print_checks(void) {
  for (size_t i = 0; i < CHECKS; i++)
    printf("%-16s %s\n", checks[i].name, checks[i].sentence);
}

static void print_count(unsigned count, const char *word, const char *end) {
  printf("%u %s%s%s", count, word, count == 1 ? "" : "s", end);
}

void doctor_print(bool all) {
  for (int severity = SEVERITY_PROBLEM; severity >= (all ? SEVERITY_OK : SEVERITY_NOTE); severity--)
    for (const struct finding *f = findings.first; f; f = f->next)
      if ((int)f->severity == severity)
        printf("%-7s  %s: %s%s%s\n", severity_words[severity], f->check, f->what, *f->todo ? "; " : "", f->todo);
  print_count(findings.count[SEVERITY_PROBLEM], "problem", ", ");
  print_count(findings.count[SEVERITY_WARNING], "warning", ", ");
  print_count(findings.count[SEVERITY_NOTE], "note", "");
  printf(", %u in order\n", findings.count[SEVERITY_OK]);
}

static void print_member(const char *name, const char *value, const char *end) {
  printf("\"%s\": ", name);
  tool_print_json(value);
  fputs(end, stdout);
}

static void print_subject(const struct doctor *doctor) {
  fputs("\"subject\": {", stdout);
  if (doctor->pid)
    printf("\"pid\": %ld, ", doctor->pid);
  else
    fputs("\"pid\": null, ", stdout);
  print_member("command", doctor->command ? doctor->command[0] : NULL, ", ");
  print_member("program", *doctor->program ? doctor->program : NULL, "}");
}

void doctor_print_json(const struct doctor *doctor) {
  printf("{\"schema\": \"hakmem-doctor\", \"version\": 1, ");
  print_subject(doctor);
  printf(", \"problems\": %u, \"warnings\": %u, \"notes\": %u, \"findings\": [", findings.count[SEVERITY_PROBLEM],
         findings.count[SEVERITY_WARNING], findings.count[SEVERITY_NOTE]);
  for (const struct finding *f = findings.first; f; f = f->next) {
    fputs(f == findings.first ? "\n{" : ",\n{", stdout);
    print_member("severity", severity_words[f->severity], ", ");
    print_member("check", f->check, ", ");
    print_member("what", f->what, ", ");
    print_member("do", *f->todo ? f->todo : NULL, "}");
  }
  puts("\n]}");
}
