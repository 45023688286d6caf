/* doctor.h: what the parts of hakmem-doctor share.
 *
 * A check is a row of doctor_checks. It inspects the subject (a process, a program that is to run, or the machine
 * alone) and reports its findings, one line each. It skips what it cannot read.
 */
#ifndef HAK_TOOLS_DOCTOR_H
#define HAK_TOOLS_DOCTOR_H

#include "tools/doctor_elf.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum severity { SEVERITY_OK, SEVERITY_NOTE, SEVERITY_WARNING, SEVERITY_PROBLEM, SEVERITIES };

/* The control group that limits the subject's memory, and its folder as seen from here; "" if there is none. */
struct doctor_group {
  char folder[PATH_MAX];
  bool is_first_version;
  uint64_t limit_bytes, swap_bytes, held_bytes; /* of the group whose limit is the smallest; UINT64_MAX: none */
};

struct doctor {
  const char *root;       /* prefix of /proc, /sys and /etc; "" except in tests */
  long pid;               /* 0: no process */
  char proc[32];          /* /proc/PID of the process whose limits apply; for a program our own, which it inherits */
  char *const *command;   /* NULL: no program that is to run */
  const char *library;    /* libhakmem.so, NULL if it is not known */
  char **environment;     /* of the subject, as environ */
  const char *maps;       /* of the process, NULL without one */
  char program[PATH_MAX]; /* the program's file; for a script the interpreter's; "" without one */
  char script[PATH_MAX];  /* "" if it is none */
  char files[PATH_MAX];   /* prefix of the paths of the process's files */
  struct elf elf;         /* the program's file */
  bool has_hakmem;        /* the program's file contains hakmem */
  struct doctor_group group;
};

struct doctor_check {
  const char *name;
  void (*look)(struct doctor *doctor);
  const char *sentence; /* what it looks at */
};
extern const struct doctor_check doctor_checks[];
extern const unsigned doctor_check_count;

/* Reports a finding of the running check: "what is so\nwhat to do". The second line may be missing. */
__attribute__((format(printf, 2, 3))) void doctor_report(enum severity severity, const char *format, ...);

/* Prints a report that hakmem wrote about a misuse, or about leaks, with the names of functions. Returns the exit
 * status. "-": stdin. */
int doctor_print_crash(const char *path);

/* --- the subject; false: `problem` has a sentence --- */
#define DOCTOR_SENTENCE (PATH_MAX + 256)
bool doctor_of_process(struct doctor *doctor, char problem[DOCTOR_SENTENCE]);
bool doctor_of_command(struct doctor *doctor, char problem[DOCTOR_SENTENCE]);

/* --- files; results stay valid until the program ends --- */

/* Reads a file under the root, terminated; NULL if it cannot be read. */
__attribute__((format(printf, 2, 3))) char *doctor_read(const struct doctor *doctor, const char *format, ...);
/* The same with its length, because it may contain zeros. */
char *doctor_read_bytes(const char *path, size_t *length);
/* Reads the number that the file begins with; UINT64_MAX if there is none. */
__attribute__((format(printf, 2, 3))) uint64_t doctor_read_number(const struct doctor *doctor, const char *format, ...);
/* Returns what follows `key` at the beginning of a line, after blanks; NULL if there is no such line. */
const char *doctor_line(const char *text, const char *key);
/* The number there, UINT64_MAX if there is none. */
uint64_t doctor_line_number(const char *text, const char *key);
/* Returns part of whole in percent, at most 1000; 0 if one of them is not known. */
unsigned doctor_percent(uint64_t part, uint64_t whole);
/* Returns "1.5 MiB" in one of a few static buffers, in turns. */
const char *doctor_bytes(uint64_t bytes);
/* The value of a variable of the subject, NULL if it is not set. */
const char *doctor_variable(const struct doctor *doctor, const char *name);
const char *doctor_base_name(const char *path);
/* Returns the soft limit of the row of /proc/PID/limits that begins with `name`; UINT64_MAX: none. */
uint64_t doctor_limit(const struct doctor *doctor, const char *name);
/* Finds the subject's memory group. */
void doctor_find_group(struct doctor *doctor);
/* Sets this program's options from the subject's environment. */
void doctor_take_options(struct doctor *doctor);

/* --- libraries --- */

bool doctor_is_hakmem(const char *path);
/* Returns the allocator that a library's file name stands for; NULL for none, and for hakmem. */
const char *doctor_allocator_of(const char *path);
/* Calls visit for each path of a list as in LD_PRELOAD, in order. */
typedef void doctor_visit(struct doctor *doctor, const char *path, void *argument);
void doctor_paths(struct doctor *doctor, const char *list, doctor_visit *visit, void *argument);
/* Calls visit for each file with executable pages in the process, once. */
void doctor_modules(struct doctor *doctor, doctor_visit *visit, void *argument);
/* Returns the path by which this program can open a file of the subject. */
const char *doctor_file(const struct doctor *doctor, const char *path, char seen[PATH_MAX]);

/* --- the checks --- */
void doctor_look_huge(struct doctor *doctor);
void doctor_look_compaction(struct doctor *doctor);
void doctor_look_overcommit(struct doctor *doctor);
void doctor_look_memory(struct doctor *doctor);
void doctor_look_swap(struct doctor *doctor);
void doctor_look_randomisation(struct doctor *doctor);
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
