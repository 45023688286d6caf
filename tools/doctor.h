/* doctor.h: what the parts of hakmem-doctor share.
 *
 * A check is a row of doctor_checks: it looks at the subject, which is a process, a program that is to run or the
 * machine alone, and reports what it finds, one line each. What a check cannot look at it passes over.
 */
#ifndef HAK_TOOLS_DOCTOR_H
#define HAK_TOOLS_DOCTOR_H

#include "tools/doctor_elf.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum severity { SEVERITY_OK, SEVERITY_NOTE, SEVERITY_WARNING, SEVERITY_PROBLEM, SEVERITIES };

/* The group that limits the memory of the subject, and its folder as seen from here; "" where there is none. */
struct doctor_group {
  char folder[PATH_MAX];
  bool is_first_version;
  uint64_t limit_bytes, swap_bytes, held_bytes; /* of the group whose limit is the smallest; UINT64_MAX: none */
};

struct doctor {
  const char *root;       /* stands before /proc, /sys and /etc; "" but in tests */
  long pid;               /* 0: no process */
  char proc[32];          /* the process whose limits hold: /proc/PID, or ours, which a program inherits */
  char *const *command;   /* NULL: no program that is to run */
  const char *library;    /* libhakmem.so, NULL if it is not known */
  char **environment;     /* of the subject, as environ */
  const char *maps;       /* of the process, NULL without one */
  char program[PATH_MAX]; /* the program's file, that of the interpreter if it is a script; "" without one */
  char script[PATH_MAX];  /* "" if it is none */
  char files[PATH_MAX];   /* stands before the paths of the process's files */
  struct elf elf;         /* the program's file */
  bool has_hakmem;        /* the program's file holds it */
  struct doctor_group group;
};

struct doctor_check {
  const char *name;
  void (*look)(struct doctor *doctor);
  const char *sentence; /* what it looks at */
};
extern const struct doctor_check doctor_checks[];
extern const unsigned doctor_check_count;

/* Reports what the running check found: "what is so\nwhat to do". The second line is left out where nothing is to be
 * done. */
__attribute__((format(printf, 2, 3))) void doctor_report(enum severity severity, const char *format, ...);

/* --- the subject; false: a sentence was put into problem --- */
#define DOCTOR_SENTENCE (PATH_MAX + 256)
bool doctor_of_process(struct doctor *doctor, char problem[DOCTOR_SENTENCE]);
bool doctor_of_command(struct doctor *doctor, char problem[DOCTOR_SENTENCE]);

/* --- files; what is returned stays --- */

/* The file under the root, terminated; NULL if it cannot be read. */
__attribute__((format(printf, 2, 3))) char *doctor_read(const struct doctor *doctor, const char *format, ...);
/* The same, and its length: it may hold zeros. */
char *doctor_read_bytes(const char *path, size_t *length);
/* The number the file begins with, UINT64_MAX for words and where there is none. */
__attribute__((format(printf, 2, 3))) uint64_t doctor_read_number(const struct doctor *doctor, const char *format, ...);
/* What follows `key` at the beginning of a line, without blanks before it; NULL if there is no such line. */
const char *doctor_line(const char *text, const char *key);
/* The number there, UINT64_MAX if there is none. */
uint64_t doctor_line_number(const char *text, const char *key);
/* The rest of the line as a string of its own. */
const char *doctor_line_text(const char *text, const char *key);
/* part of whole in percent, at most 1000; 0 where one of them is not known. */
unsigned doctor_percent(uint64_t part, uint64_t whole);
/* "1.5 MiB", in one of a few places that take turns. */
const char *doctor_bytes(uint64_t bytes);
/* The value of a variable of the subject, NULL if it is not set. */
const char *doctor_variable(const struct doctor *doctor, const char *name);
const char *doctor_base_name(const char *path);
/* The soft limit of the row of /proc/PID/limits that begins so; UINT64_MAX: none. */
uint64_t doctor_limit(const struct doctor *doctor, const char *name);
/* Finds the subject's memory group. */
void doctor_find_group(struct doctor *doctor);
/* Takes the options of the subject's environment for ours. */
void doctor_take_options(struct doctor *doctor);

/* --- libraries --- */

bool doctor_is_hakmem(const char *path);
/* The name of the allocator that a library's file name says, NULL if it says none. hakmem is none of these. */
const char *doctor_allocator_of(const char *path);
/* Calls visit for each path of a list as in LD_PRELOAD, in order. */
typedef void doctor_visit(struct doctor *doctor, const char *path, void *argument);
void doctor_paths(struct doctor *doctor, const char *list, doctor_visit *visit, void *argument);
/* Calls visit for each file with executable pages in the process, once. */
void doctor_modules(struct doctor *doctor, doctor_visit *visit, void *argument);
/* A file of the subject, as we can open it. */
const char *doctor_file(const struct doctor *doctor, const char *path, char seen[PATH_MAX]);

/* --- the checks --- */
void doctor_look_huge(struct doctor *doctor);
void doctor_look_compaction(struct doctor *doctor);
void doctor_look_overcommit(struct doctor *doctor);
void doctor_look_memory(struct doctor *doctor);
void doctor_look_swap(struct doctor *doctor);
void doctor_look_randomisation(struct doctor *doctor);
void doctor_look_tracing(struct doctor *doctor);
void doctor_look_preload_file(struct doctor *doctor);
void doctor_look_group(struct doctor *doctor);
void doctor_look_pressure(struct doctor *doctor);
void doctor_look_mappings(struct doctor *doctor);
void doctor_look_address_space(struct doctor *doctor);
void doctor_look_data(struct doctor *doctor);
void doctor_look_descriptors(struct doctor *doctor);
void doctor_look_threads(struct doctor *doctor);
void doctor_look_locked(struct doctor *doctor);
void doctor_look_seccomp(struct doctor *doctor);
void doctor_look_library(struct doctor *doctor);
void doctor_look_script(struct doctor *doctor);
void doctor_look_machine_code(struct doctor *doctor);
void doctor_look_static(struct doctor *doctor);
void doctor_look_libc(struct doctor *doctor);
void doctor_look_privileges(struct doctor *doctor);
void doctor_look_loaded(struct doctor *doctor);
void doctor_look_preload(struct doctor *doctor);
void doctor_look_allocators(struct doctor *doctor);
void doctor_look_sanitizers(struct doctor *doctor);
void doctor_look_copies(struct doctor *doctor);
void doctor_look_option_names(struct doctor *doctor);
void doctor_look_option_values(struct doctor *doctor);
void doctor_look_option_pairs(struct doctor *doctor);
void doctor_look_policy_file(struct doctor *doctor);
void doctor_look_foreign_options(struct doctor *doctor);

#endif
