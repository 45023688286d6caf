/* doctor_cgroup.c: the control group that limits the subject's memory. */
#include "base/options.h"
#include "policy/limit_policy.h"
#include "tools/doctor.h"

#include <stdio.h>
#include <string.h>

#define LIMIT_NONE_BYTES ((uint64_t)1 << 62) /* v1 writes "no limit" as a larger number */
#define NEAR_PERCENT 90
#define SMALL_BYTES ((uint64_t)32 << 20) /* hakmem reads the group when it holds half of this */

static bool has_word(const char *list, size_t length, const char *word) {
  size_t bytes = strlen(word);
  for (size_t at = 0; at + bytes <= length; at += strcspn(list + at, ",") + 1)
    if (strncmp(list + at, word, bytes) == 0 && (at + bytes == length || list[at + bytes] == ','))
      return true;
  return false;
}

/* The group's name in the hierarchy of v2 or in that of v1 with the memory controller: of lines like "4:cpu,memory:/a"
 * and "0::/a". */
static bool group_name(const char *text, bool is_first_version, char name[PATH_MAX]) {
  for (const char *line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
    size_t length = strcspn(line, "\n");
    const char *controllers = memchr(line, ':', length);
    size_t list = controllers ? strcspn(controllers + 1, ":\n") : 0;
    if (controllers == NULL || controllers[1 + list] != ':')
      continue;
    const char *path = controllers + list + 2;
    length -= (size_t)(path - line);
    if ((is_first_version ? has_word(controllers + 1, list, "memory") : list == 0) && length < PATH_MAX) {
      memcpy(name, path, length);
      name[length] = 0;
      return true;
    }
  }
  return false;
}

struct mount {
  char root[PATH_MAX], point[PATH_MAX];
};

/* The mount of a hierarchy, of a line like "36 35 98:0 /root /point rw ... - type source options". */
static bool mount_find(const char *text, bool is_first_version, struct mount *mount) {
  for (const char *line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
    char type[32] = "", options[256] = "", copy[PATH_MAX];
    size_t length = strcspn(line, "\n");
    if (length >= sizeof copy || sscanf(line, "%*s %*s %*s %4095s %4095s", mount->root, mount->point) != 2)
      continue;
    memcpy(copy, line, length);
    copy[length] = 0;
    const char *rest = strstr(copy, " - ");
    if (rest == NULL || sscanf(rest, " - %31s %*s %255s", type, options) != 2)
      continue;
    if (is_first_version ? strcmp(type, "cgroup") == 0 && has_word(options, strlen(options), "memory")
                         : strcmp(type, "cgroup2") == 0)
      return true;
  }
  return false;
}

static uint64_t limit_of(const struct doctor *doctor, const char *folder, const char *name) {
  uint64_t limit = doctor_read_number(doctor, "%s/%s", folder, name);
  return limit < LIMIT_NONE_BYTES ? limit : UINT64_MAX;
}

/* Returns what the group holds and cannot drop, without files that were not used recently. */
static uint64_t held_bytes(const struct doctor *doctor, const char *folder, bool is_first_version) {
  uint64_t held =
      doctor_read_number(doctor, "%s/%s", folder, is_first_version ? "memory.usage_in_bytes" : "memory.current");
  uint64_t files = doctor_line_number(doctor_read(doctor, "%s/memory.stat", folder),
                                      is_first_version ? "total_inactive_file " : "inactive_file ");
  return held == UINT64_MAX || files == UINT64_MAX ? held : held - (files < held ? files : held);
}

/* The smallest limit of the group and those above it, up to the mount. */
static void limits_read(struct doctor *doctor, size_t mount_length) {
  struct doctor_group *group = &doctor->group;
  char folder[PATH_MAX];
  memcpy(folder, group->folder, sizeof folder);
  bool is_first_version = group->is_first_version;
  for (;;) {
    uint64_t limit = limit_of(doctor, folder, is_first_version ? "memory.limit_in_bytes" : "memory.max");
    if (limit < group->limit_bytes) {
      uint64_t both = is_first_version ? limit_of(doctor, folder, "memory.memsw.limit_in_bytes") : 0;
      uint64_t swap =
          is_first_version ? (both == UINT64_MAX ? both : both - limit) : limit_of(doctor, folder, "memory.swap.max");
      *group = (struct doctor_group){.limit_bytes = limit,
                                     .swap_bytes = swap,
                                     .held_bytes = held_bytes(doctor, folder, is_first_version),
                                     .is_first_version = is_first_version};
      memcpy(group->folder, folder, sizeof folder);
    }
    char *slash = strrchr(folder, '/');
    if (slash == NULL || (size_t)(slash - folder) < mount_length)
      return;
    *slash = 0;
  }
}

static bool find_in(struct doctor *doctor, bool is_first_version) {
  static struct mount mount;
  char name[PATH_MAX];
  const char *usual = is_first_version ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
  const char *mounts = doctor_read(doctor, "/proc/self/mountinfo");
  if (!group_name(doctor_read(doctor, "%s/cgroup", doctor->proc), is_first_version, name))
    return false;
  if (mounts == NULL)
    snprintf(mount.point, sizeof mount.point, "%s", usual);
  else if (!mount_find(mounts, is_first_version, &mount))
    return false;
  size_t above = mounts && strcmp(mount.root, "/") != 0 ? strlen(mount.root) : 0;
  bool is_below = above == 0 || strncmp(name, mount.root, above) == 0;
  const char *below = is_below && strcmp(name + above, "/") != 0 ? name + above : "";
  struct doctor_group *group = &doctor->group;
  group->is_first_version = is_first_version;
  if ((size_t)snprintf(group->folder, sizeof group->folder, "%s%s", mount.point, below) >= sizeof group->folder)
    return false;
  limits_read(doctor, strlen(mount.point));
  return true;
}

void doctor_find_group(struct doctor *doctor) {
  doctor->group = (struct doctor_group){.limit_bytes = UINT64_MAX, .held_bytes = UINT64_MAX};
  bool is_found = find_in(doctor, true) && doctor->group.limit_bytes != UINT64_MAX;
  if (!is_found)
    find_in(doctor, false);
}

static uint64_t swap_bytes(const struct doctor *doctor) {
  uint64_t total = doctor_line_number(doctor_read(doctor, "/proc/meminfo"), "SwapTotal:");
  total = total == UINT64_MAX ? 0 : total * 1024;
  return doctor->group.swap_bytes < total ? doctor->group.swap_bytes : total;
}

static void look_kills(const struct doctor *doctor) {
  const struct doctor_group *group = &doctor->group;
  const char *file = group->is_first_version ? "memory.oom_control" : "memory.events";
  uint64_t kills = doctor_line_number(doctor_read(doctor, "%s/%s", group->folder, file), "oom_kill ");
  if (kills != UINT64_MAX && kills > 0)
    doctor_report(
        SEVERITY_WARNING,
        "the kernel has killed %llu process%s of the control group for want of memory\nset HAKMEM_LIMIT_MB to "
        "each process's share, or raise the limit of %s",
        (unsigned long long)kills, kills == 1 ? "" : "es", group->folder);
}

static void look_sharers(const struct doctor *doctor) {
  const char *processes = doctor_read(doctor, "%s/cgroup.procs", doctor->group.folder);
  unsigned count = 0;
  for (const char *at = processes; at && *at; at++)
    count += *at == '\n';
  if (doctor->pid && count > 1 && option_value(OPTION_LIMIT_MB) == 0)
    doctor_report(
        SEVERITY_NOTE,
        "%u processes share the control group's limit, and hakmem counts only its own\nset HAKMEM_LIMIT_MB to "
        "each one's share",
        count);
}

static void look_limit(const struct doctor *doctor) {
  const struct doctor_group *group = &doctor->group;
  if (option_value(OPTION_CGROUP) == CGROUP_OFF && option_value(OPTION_LIMIT_MB) == 0)
    doctor_report(
        SEVERITY_WARNING,
        "HAKMEM_CGROUP=off: at the control group's limit, %s, the kernel kills before malloc returns NULL\nleave "
        "it out, or set HAKMEM_LIMIT_MB",
        doctor_bytes(group->limit_bytes));
  if (group->limit_bytes < SMALL_BYTES)
    doctor_report(
        SEVERITY_NOTE,
        "the control group's limit is %s; hakmem asks for it when it holds 16 MiB, which may be too late\nset "
        "HAKMEM_LIMIT_MB",
        doctor_bytes(group->limit_bytes));
}

void doctor_look_group(struct doctor *doctor) {
  const struct doctor_group *group = &doctor->group;
  if (group->limit_bytes == UINT64_MAX) {
    doctor_report(SEVERITY_OK, "no control group limits memory");
    return;
  }
  size_t own = limit_hard((size_t)option_value(OPTION_LIMIT_MB) << 20, group->limit_bytes, swap_bytes(doctor));
  if (doctor_percent(group->held_bytes, group->limit_bytes) >= NEAR_PERCENT)
    doctor_report(
        SEVERITY_WARNING,
        "the control group holds %s of %s: it is near its limit\nraise the limit of %s, or HAKMEM_PROFILE=lean",
        doctor_bytes(group->held_bytes), doctor_bytes(group->limit_bytes), group->folder);
  else
    doctor_report(SEVERITY_OK, "the control group may hold %s; malloc returns NULL when hakmem holds %s",
                  doctor_bytes(group->limit_bytes), doctor_bytes(own));
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
    doctor_report(
        SEVERITY_WARNING,
        "for %llu %% of the last ten seconds some thread of %s waited for memory\nmore memory, a smaller heap "
        "(HAKMEM_PROFILE=lean), or fewer programs",
        (unsigned long long)percent, where);
  else
    doctor_report(SEVERITY_OK, "hardly a thread of %s waits for memory", where);
}
