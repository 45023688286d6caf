/* doctor_limits.c: checks of a process's limits and system call filters. */
#include "base/options.h"
#include "tools/doctor.h"
#include "tools/tool.h"

#include <dirent.h>
#include <stdio.h>

#define SPACE_BYTES_MIN ((uint64_t)1 << 30) /* less is soon used up */
#define DESCRIPTORS_MIN 8u /* hakmem's own, four at most, have numbers in the upper half (os_duplicate_high) */
#define NEAR_PERCENT 90
#define LOCKED_NEAR_PERCENT 80
#define CAPABILITY_LOCK 14 /* CAP_IPC_LOCK */

static const char *status_of(const struct doctor *doctor) { return doctor_read(doctor, "%s/status", doctor->proc); }

static void look_space(const struct doctor *doctor, const char *name, const char *what, const char *effect,
                       const char *todo) {
  uint64_t limit = doctor_limit(doctor, name);
  if (limit == UINT64_MAX)
    doctor_ok("%s not limited", what);
  else
    doctor_report(limit < SPACE_BYTES_MIN ? SEVERITY_WARNING : SEVERITY_NOTE, "%s limited to %s %s\n%s", what,
                  tool_size(limit), effect, todo);
}

void doctor_look_address_space(struct doctor *doctor) {
  look_space(doctor, "Max address space", "addresses are",
             "(ulimit -v): hakmem reserves less at a time, and malloc returns NULL at the limit",
             "ulimit -v unlimited, and HAKMEM_LIMIT_MB, which counts memory");
}

void doctor_look_data(struct doctor *doctor) {
  look_space(doctor, "Max data size", "writable memory is", "(ulimit -d), what hakmem holds included",
             "ulimit -d unlimited, and HAKMEM_LIMIT_MB");
}

void doctor_look_descriptors(struct doctor *doctor) {
  uint64_t limit = doctor_limit(doctor, "Max open files");
  if (limit < DESCRIPTORS_MIN)
    doctor_warn("the process may have %lu files open (ulimit -n): there is hardly a place for hakmem's own, so there "
                "may be no summary at exit and no word of memory pressure\nulimit -n 256 or more",
                limit);
  else
    doctor_ok("files can be opened");
}

/* All threads of a user, as RLIMIT_NPROC counts them. */
static uint64_t threads_of_user(const struct doctor *doctor, uint64_t user) {
  char path[PATH_MAX];
  uint64_t count = 0;
  snprintf(path, sizeof path, "%s/proc", doctor->root);
  DIR *folder = opendir(path);
  if (folder == NULL)
    return 0;
  /* No other thread uses this folder stream. */
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) { // NOLINT(concurrency-mt-unsafe)
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
      continue;
    const char *status = doctor_read(doctor, "/proc/%s/status", entry->d_name);
    uint64_t threads = doctor_line_number(status, "Threads:");
    if (doctor_line_number(status, "Uid:") == user && threads != UINT64_MAX)
      count += threads;
  }
  closedir(folder);
  return count;
}

/* The limit does not apply to root. */
void doctor_look_threads(struct doctor *doctor) {
  uint64_t limit = doctor_limit(doctor, "Max processes"), user = doctor_line_number(status_of(doctor), "Uid:");
  if (limit == UINT64_MAX || user == 0 || user == UINT64_MAX) {
    doctor_ok("threads are not limited");
    return;
  }
  uint64_t count = threads_of_user(doctor, user);
  if (doctor_percent(count, limit) >= NEAR_PERCENT)
    doctor_warn("the user has %lu of at most %lu threads (ulimit -u): hakmem's background thread may not start, so "
                "idle programs give nothing back\nraise ulimit -u",
                count, limit);
  else
    doctor_ok("the user has %lu of at most %lu threads", count, limit);
}

static bool may_lock_all(const char *status) {
  const char *text = doctor_line(status, "CapEff:");
  unsigned long long bits = 0;
  return text && sscanf(text, "%llx", &bits) == 1 && (bits >> CAPABILITY_LOCK & 1);
}

void doctor_look_locked(struct doctor *doctor) {
  const char *status = status_of(doctor);
  uint64_t locked = doctor_line_number(status, "VmLck:"), limit = doctor_limit(doctor, "Max locked memory");
  if (doctor->pid == 0 || locked == UINT64_MAX)
    return;
  locked *= 1024;
  if (locked > 0 && limit != UINT64_MAX && !may_lock_all(status) &&
      doctor_percent(locked, limit) >= LOCKED_NEAR_PERCENT)
    doctor_warn("%s of at most %s are locked (mlockall, ulimit -l): beyond that malloc returns NULL\nraise ulimit -l",
                tool_size(locked), tool_size(limit));
  else if (locked > 0)
    doctor_note("%s are locked in memory (mlockall): free memory does not go back to the system\nlock only what must "
                "not be swapped out",
                tool_size(locked));
  else
    doctor_ok("no memory is locked");
}

void doctor_look_seccomp(struct doctor *doctor) {
  uint64_t mode = doctor_line_number(status_of(doctor), "Seccomp:");
  bool is_quiet = option_value(OPTION_CGROUP) == CGROUP_OFF && option_value(OPTION_BACKGROUND) == BACKGROUND_OFF;
  if (mode == UINT64_MAX)
    return;
  if (mode == 1)
    doctor_problem(
        "strict seccomp: the first call for more memory kills the process\nuse a filter; docs/deployment.md, seccomp");
  else if (mode == 2 && !is_quiet)
    doctor_note(
        "system calls are filtered (seccomp): from 16 MiB on hakmem reads files of /proc and /sys and starts a "
        "thread\nif the filter kills, set HAKMEM_CGROUP=off and HAKMEM_BACKGROUND=off; docs/deployment.md, seccomp");
  else
    doctor_ok(mode == 2 ? "system calls are filtered, and hakmem makes only those it must make"
                        : "system calls are not filtered");
}
