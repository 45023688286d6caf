/* doctor.h: what the parts of hakmem-doctor share.
 *
 * A check is a row of DOCTOR_CHECKS. It inspects the subject (a process, a program that is to run, or the machine
 * alone) and reports its findings, one line each. It skips what it cannot read.
 */
#pragma once

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
  uint64_t limit_bytes, held_bytes; /* of the group whose limit is the smallest; UINT64_MAX: none */
  uint64_t swap_bytes, both_bytes;  /* the smallest limits of swap (v2), and of memory and swap together (v1) */
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

/* Reports a finding of the running check: "what is so\nwhat to do". The second line may be missing. */
__attribute__((format(printf, 2, 3))) void doctor_report(enum severity severity, const char *format, ...);
#define doctor_ok(...) doctor_report(SEVERITY_OK, __VA_ARGS__)
#define doctor_note(...) doctor_report(SEVERITY_NOTE, __VA_ARGS__)
#define doctor_warn(...) doctor_report(SEVERITY_WARNING, __VA_ARGS__)
#define doctor_problem(...) doctor_report(SEVERITY_PROBLEM, __VA_ARGS__)

/* Runs the checks. */
void doctor_run(struct doctor *doctor);
bool doctor_found_problem(void);
/* Prints one line per finding, the worst first; with `all` also what is in order. */
void doctor_print(bool all);
/* Prints one JSON object with everything. */
void doctor_print_json(const struct doctor *doctor);
/* Prints what each check looks at. */
void doctor_print_checks(void);

/* Prints a report that hakmem wrote about a misuse, or about leaks, with the names of functions. "-": stdin. */
void doctor_print_crash(const char *path);

/* --- the subject; they end the program if it cannot be looked at --- */
void doctor_of_process(struct doctor *doctor);
void doctor_of_command(struct doctor *doctor);

/* --- files; results stay valid until the program ends --- */

/* Reads a file under the root, terminated; NULL if it cannot be read. */
__attribute__((format(printf, 2, 3))) char *doctor_read(const struct doctor *doctor, const char *format, ...);
/* The same with its length, because it may contain zeros. */
char *doctor_read_bytes(const char *path, size_t *length);
/* Returns the number that the text begins with; UINT64_MAX if there is none, or no text. */
uint64_t doctor_number(const char *text);
/* Returns what follows `key` at the beginning of a line, after blanks; NULL if there is no such line. */
const char *doctor_line(const char *text, const char *key);
/* The number there, UINT64_MAX if there is none. */
uint64_t doctor_line_number(const char *text, const char *key);
/* Returns part of whole in percent, at most 1000; 0 if one of them is not known. */
unsigned doctor_percent(uint64_t part, uint64_t whole);
/* The value of a variable of the subject, NULL if it is not set. */
const char *doctor_variable(const struct doctor *doctor, const char *name);
const char *doctor_base_name(const char *path);
bool doctor_has_proc(const struct doctor *doctor);
/* Returns the soft limit of the row of /proc/PID/limits that begins with `name`; UINT64_MAX: none. */
uint64_t doctor_limit(const struct doctor *doctor, const char *name);
/* Finds the subject's memory group. */
void doctor_find_group(struct doctor *doctor);
/* Returns what hakmem may hold by its option, 0 if that is not set, and by the group with its swap; UINT64_MAX: any. */
uint64_t doctor_hard_limit(const struct doctor *doctor, uint64_t option_bytes);
/* Whether a variable's name begins as the options' do. */
bool doctor_is_option(const char *variable);
/* Sets this program's options from the subject's environment. */
void doctor_take_options(struct doctor *doctor);

/* --- libraries --- */

/* Whether a file of the subject is hakmem's library, by its name or by what it defines. */
bool doctor_is_hakmem(const struct doctor *doctor, const char *path);
/* Returns the allocator that a library's file name stands for; NULL for none, and for hakmem. */
const char *doctor_allocator_of(const char *path);
/* Calls visit for each path of a list as in LD_PRELOAD, in order. */
typedef void doctor_visit(struct doctor *doctor, const char *path, void *argument);
void doctor_paths(struct doctor *doctor, const char *list, doctor_visit *visit, void *argument);
/* Calls visit for each file with executable pages in the process, once. */
void doctor_modules(struct doctor *doctor, doctor_visit *visit, void *argument);
/* Returns the path by which this program can open a file of the subject, in a static buffer. */
const char *doctor_file(const struct doctor *doctor, const char *path);

/* --- the checks, in the order in which they run: function, name, what it looks at --- */

/* clang-format off */
#define DOCTOR_CHECKS(DO) \
  DO(library, "library", "libhakmem.so is there, can be preloaded, and is of this machine") \
  DO(script, "script", "whether the program is a script, and which program runs it") \
  DO(machine_code, "machine-code", "the program is of 64 bits and of this machine") \
  DO(static, "static", "the program has a loader, which preloads") \
  DO(libc, "libc", "the program and libhakmem.so have the same libc") \
  DO(privileges, "privileges", "set-uid, set-gid, file capabilities: nothing is preloaded into those") \
  DO(loaded, "loaded", "hakmem is in the process") \
  DO(preload, "preload", "what LD_PRELOAD names is there, and hakmem comes first") \
  DO(preload_file, "preload-file", "/etc/ld.so.preload") \
  DO(allocators, "allocators", "another allocator in the program or beside it") \
  DO(sanitizers, "sanitizers", "sanitizers, which have an allocator of their own") \
  DO(copies, "copies", "hakmem is there once") \
  DO(option_names, "option-names", "HAKMEM_ variables that are no options") \
  DO(option_values, "option-values", "values that are not taken") \
  DO(option_pairs, "option-pairs", "options that another option leaves without effect") \
  DO(policy_file, "policy-file", "the file of HAKMEM_POLICY_FILE can be read and written") \
  DO(foreign_options, "foreign-options", "options of other allocators, which have no effect") \
  DO(proc, "proc", "/proc is mounted, where most of this is read") \
  DO(huge, "huge-pages", "transparent_hugepage/enabled") \
  DO(compaction, "compaction", "transparent_hugepage/defrag") \
  DO(overcommit, "overcommit", "overcommit_memory, and how near the commit limit is") \
  DO(memory, "memory", "memory that is available") \
  DO(swap, "swap", "swap, and how full it is") \
  DO(group, "cgroup", "the memory limit of the control group (v1, v2), and how near it is") \
  DO(pressure, "pressure", "time that is lost waiting for memory (PSI)") \
  DO(mappings, "mappings", "vm.max_map_count, and how near it is") \
  DO(address_space, "address-space", "ulimit -v") \
  DO(data, "data", "ulimit -d") \
  DO(descriptors, "descriptors", "ulimit -n") \
  DO(threads, "threads", "ulimit -u, and how near it is") \
  DO(locked, "locked", "memory that is locked, and ulimit -l") \
  DO(seccomp, "seccomp", "a filter of system calls") \
  DO(randomisation, "randomisation", "addresses are drawn anew in each run")
/* clang-format on */
#define DOCTOR_CHECK_DECLARE(function, name, sentence) void doctor_look_##function(struct doctor *doctor);
DOCTOR_CHECKS(DOCTOR_CHECK_DECLARE)
