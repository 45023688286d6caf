/* doctor_cgroup.c: the control group that limits the subject's memory. */
#include "base/options.h"
#include "os/cgroup.h"
#include "policy/limit_policy.h"
#include "tools/doctor.h"
#include "tools/tool.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define NEAR_PERCENT 90
#define SMALL_BYTES ((uint64_t)32 << 20) /* hakmem reads the group when it holds half of this */

/* Returns what the group holds and cannot drop, without files that were not used recently. */
static uint64_t held_bytes(const struct doctor *doctor, const char *folder, bool is_first_version) {
  uint64_t held = doctor_number(
      doctor_read(doctor, "%s/%s", folder, is_first_version ? "memory.usage_in_bytes" : "memory.current"));
  uint64_t files = doctor_line_number(doctor_read(doctor, "%s/memory.stat", folder),
                                      is_first_version ? "total_inactive_file " : "inactive_file ");
  return held == UINT64_MAX || files == UINT64_MAX ? held : held - (files < held ? files : held);
}

/* Keeps the group if it, or one above it, has the smallest limit so far; if none has a limit, for its pressure. Limits
 * of swap hold wherever they are (os/cgroup.h). */
static bool keep_group(struct os_group *group, void *argument) {
  struct doctor *doctor = argument;
  struct doctor_group *kept = &doctor->group;
  const char *folder = group->path.bytes;
  bool is_first_version = group->is_first_version;
  if (kept->limit_bytes == UINT64_MAX && !is_first_version)
    snprintf(kept->folder, sizeof kept->folder, "%s", folder);
  do {
    uint64_t limit = os_group_limit(group, is_first_version ? "/memory.limit_in_bytes" : "/memory.max");
    if (is_first_version)
      kept->both_bytes = min_size(kept->both_bytes, os_group_limit(group, "/memory.memsw.limit_in_bytes"));
    else
      kept->swap_bytes = min_size(kept->swap_bytes, os_group_limit(group, "/memory.swap.max"));
    if (limit >= kept->limit_bytes)
      continue;
    snprintf(kept->folder, sizeof kept->folder, "%s", folder);
    kept->limit_bytes = limit;
    kept->held_bytes = held_bytes(doctor, folder, is_first_version);
    kept->is_first_version = is_first_version;
  } while (os_group_up(group));
  return false;
}

void doctor_find_group(struct doctor *doctor) {
  doctor->group = (struct doctor_group){
      .limit_bytes = UINT64_MAX, .swap_bytes = UINT64_MAX, .both_bytes = UINT64_MAX, .held_bytes = UINT64_MAX};
  if (*doctor->root)
    os_root = open(doctor->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
  os_groups_visit(doctor->proc, keep_group, doctor);
}

uint64_t doctor_hard_limit(const struct doctor *doctor, uint64_t option_bytes) {
  const struct doctor_group *group = &doctor->group;
  uint64_t total = doctor_line_number(doctor_read(doctor, "/proc/meminfo"), "SwapTotal:");
  uint64_t swap = min_size(total == UINT64_MAX ? 0 : total * 1024, group->swap_bytes);
  return limit_hard(option_bytes, group->limit_bytes, min_size(swap, sub_sat(group->both_bytes, group->limit_bytes)));
}

static void look_kills(const struct doctor *doctor) {
  const struct doctor_group *group = &doctor->group;
  const char *file = group->is_first_version ? "memory.oom_control" : "memory.events";
  uint64_t kills = doctor_line_number(doctor_read(doctor, "%s/%s", group->folder, file), "oom_kill ");
  if (kills != UINT64_MAX && kills > 0)
    doctor_warn("the kernel has killed %lu process%s of the control group for want of memory\nset HAKMEM_LIMIT_MB to "
                "each process's share, or raise the limit of %s",
                kills, kills == 1 ? "" : "es", group->folder);
}

static void look_sharers(const struct doctor *doctor) {
  const char *processes = doctor_read(doctor, "%s/cgroup.procs", doctor->group.folder);
  unsigned count = 0;
  for (const char *at = processes; at && *at; at++)
    count += *at == '\n';
  if (doctor->pid && count > 1 && option_value(OPTION_LIMIT_MB) == 0)
    doctor_note("%u processes share the control group's limit, and hakmem counts only its own\nset HAKMEM_LIMIT_MB to "
                "each one's share",
                count);
}

static void look_limit(const struct doctor *doctor) {
  const struct doctor_group *group = &doctor->group;
  if (option_value(OPTION_CGROUP) == CGROUP_OFF && option_value(OPTION_LIMIT_MB) == 0)
    doctor_warn("HAKMEM_CGROUP=off: at the control group's limit, %s, the kernel kills before malloc returns "
                "NULL\nleave it out, or set HAKMEM_LIMIT_MB",
                tool_size(group->limit_bytes));
  if (group->limit_bytes < SMALL_BYTES)
    doctor_note("the control group's limit is %s; hakmem asks for it when it holds 16 MiB, which may be too late\nset "
                "HAKMEM_LIMIT_MB",
                tool_size(group->limit_bytes));
}

void doctor_look_group(struct doctor *doctor) {
  const struct doctor_group *group = &doctor->group;
  if (group->limit_bytes == UINT64_MAX) {
    doctor_ok("no control group limits memory");
    return;
  }
  uint64_t own = doctor_hard_limit(doctor, (uint64_t)option_value(OPTION_LIMIT_MB) << 20);
  if (doctor_percent(group->held_bytes, group->limit_bytes) >= NEAR_PERCENT)
    doctor_warn("the control group holds %s of %s: it is near its limit\nraise the limit of %s, or HAKMEM_PROFILE=lean",
                tool_size(group->held_bytes), tool_size(group->limit_bytes), group->folder);
  else if (option_value(OPTION_CGROUP) == CGROUP_OFF)
    doctor_ok("the control group may hold %s, at which hakmem does not look", tool_size(group->limit_bytes));
  else
    doctor_ok("the control group may hold %s; malloc returns NULL when hakmem holds %s", tool_size(group->limit_bytes),
              tool_size(own));
  look_limit(doctor);
  look_kills(doctor);
  look_sharers(doctor);
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" */
void doctor_look_pressure(struct doctor *doctor) {
  const char *text = *doctor->group.folder && !doctor->group.is_first_version
                         ? doctor_read(doctor, "%s/memory.pressure", doctor->group.folder)
                         : NULL;
  const char *where = "the control group";
  if (text == NULL) {
    text = doctor_read(doctor, "/proc/pressure/memory");
    where = "the machine";
  }
  uint64_t percent = doctor_line_number(text, "some avg10=");
  if (percent == UINT64_MAX)
    return;
  if (percent >= 10)
    doctor_warn("for %lu %% of the last ten seconds some thread of %s waited for memory\nmore memory, a smaller heap "
                "(HAKMEM_PROFILE=lean), or fewer programs",
                percent, where);
  else
    doctor_ok("hardly a thread of %s waits for memory", where);
}
