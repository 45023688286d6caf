/* cgroup.h: the limits of the control groups (memory: v1, v2 or both; processors: v2), and reports of memory pressure
 * (PSI).
 *
 * No function allocates or takes a lock. errno is kept, but not by os_groups_visit and what it calls. Any thread may
 * call at any time. The files may be missing or malformed; then there is no limit, and no descriptor. Finding a group
 * takes 20 to 60 system calls, too much for the start of every small program. No counter counts them.
 */
#pragma once

#include "os/text_file.h"

#define OS_PATH_BYTES 2048

/* Each is the smallest value over the process's group and all visible groups above it. */
struct os_memory_limits {
  size_t max_bytes;  /* of memory; beyond it pages are swapped out, and where that is not possible, the kernel
                      * kills; SIZE_MAX: none */
  size_t high_bytes; /* of memory; beyond it the kernel slows the group down; SIZE_MAX: none */
  size_t swap_bytes; /* that may be swapped out, beyond max_bytes; 0 if there is no max_bytes */
};
void os_memory_limits_read(struct os_memory_limits *out);
/* Returns how many processors the process's group and those above it may use at a time, rounded up (v2). SIZE_MAX: no
 * limit. */
size_t os_cpu_limit_read(void);

/* Memory pressure, for the background thread: some thread of the process's group or, if the kernel does not tell of
 * that, of the machine waited for memory for 15 % of a second or two.
 *   os_pressure_watch     opens the descriptor, once. It is closed on exec and has a high number (os_duplicate_high).
 *                         Call it on the thread that starts that one: what a second thread opens, if only for a
 *                         moment, takes numbers that a program with one thread counts on.
 *   os_pressure_came      tells whether there was pressure since the last call. At most one report comes every second
 *                         or two. It is no cancellation point.
 *   os_pressure_in_child  closes it in the child of a fork, which opens its own: a report reaches only one of the
 *                         processes that share a descriptor. */
void os_pressure_watch(void);
bool os_pressure_came(void);
void os_pressure_in_child(void);

/* A group's folder, and the length of the mount in its path. Groups above the mount are not visible. */
struct os_group {
  bool is_first_version;
  size_t mount_length;
  struct os_path {
    size_t length;
    char bytes[OS_PATH_BYTES];
  } path;
};
/* Calls visit for the folder of a process's group in each mount that shows it, until visit returns true. process: its
 * folder, "/proc/self" or "/proc/1234". */
typedef bool os_group_visit(struct os_group *group, void *argument);
void os_groups_visit(const char *process, os_group_visit *visit, void *argument);
/* Goes one group up; false at the top of the visible groups. */
bool os_group_up(struct os_group *group);
/* Returns the limit in a file of the group, "/memory.max"; SIZE_MAX: none. */
size_t os_group_limit(struct os_group *group, const char *name);
