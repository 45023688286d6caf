/* cgroup.h: how much memory the control groups (v1, v2 or both) leave this process, and how the kernel
 * tells that memory is short (PSI).
 *
 * Nothing here allocates or takes a lock, errno is kept, and any thread may call at any time. What is
 * read lies in files that may be missing or odd; then there is no limit, and no descriptor. Finding a
 * group takes 20 to 60 system calls and 6 KiB of stack: not for the start of every small program. They
 * are not counted in os_calls.
 */
#ifndef HAK_OS_CGROUP_H
#define HAK_OS_CGROUP_H

#include "base/words.h"

/* Each is the smallest over the process's group and all groups above it that can be seen from here. */
struct os_memory_limits {
  size_t max_bytes;  /* of memory; beyond it pages are swapped out, and where that is not possible, the kernel
                      * kills; SIZE_MAX: none */
  size_t high_bytes; /* of memory; beyond it the kernel slows the group down; SIZE_MAX: none */
  size_t swap_bytes; /* that may be swapped out, beyond max_bytes; 0 if there is no max_bytes */
};
void os_memory_limits_read(struct os_memory_limits *out);

/* A descriptor that os_pressure_poll waits on, closed on exec, with a high number (os_duplicate_high): memory pressure of
 * the process's group or, where that cannot be had, of the machine. -1 where the kernel does not offer it
 * or does not allow it. Pressure: for 15 % of a second or two, some thread waited for memory.
 * A child of a fork shares the descriptor with its parent, and each report reaches one of them only:
 * it must open its own. */
int os_pressure_open(void);

enum os_wait {
  OS_WAIT_TIMEOUT,
  OS_WAIT_PRESSURE,
  OS_WAIT_GONE /* the group was removed, or it is no such descriptor: close it and do not wait on it again */
};
/* Waits for pressure, at most timeout_ms; UINT64_MAX: without end. Reports come once a second or two at most.
 * Signals do not end the wait, and it is no cancellation point. */
enum os_wait os_pressure_poll(int fd, uint64_t timeout_ms);
void os_pressure_close(int fd);

/* The same for a file system that starts at `root`, "" for the real one: so tests can bring their own. */
void os_memory_limits_read_under(const char *root, struct os_memory_limits *out);
int os_pressure_open_under(const char *root);

#endif
