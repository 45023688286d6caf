#include "os/cgroup.h"

#include "base/options.h"
#include "base/text.h"
#include "os/filter.h"
#include "os/kernel.h"
#include "os/os.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define GROUP_BYTES 1024 /* the name of a group, with those of all above it */
#define VALUE_BYTES 32
/* v1 says "no limit" as the largest multiple of its page. */
#define LIMIT_BYTES_MAX ((size_t)1 << 62)

/* --- paths: text that must fit --- */

static bool path_append(struct os_path *path, const char *text) {
  size_t length = strlen(text);
  if (length >= OS_PATH_BYTES - path->length)
    return false;
  memcpy(path->bytes + path->length, text, length + 1);
  path->length += length;
  return true;
}

static void path_cut(struct os_path *path, size_t length) {
  path->length = length;
  path->bytes[length] = 0;
}

/* Opens the file `name`, which begins with a slash, in a folder. */
static int path_open(struct os_path *folder, const char *name, int flags) {
  size_t length = folder->length;
  int fd = path_append(folder, name) ? os_text_open(folder->bytes, flags) : -1;
  path_cut(folder, length);
  return fd;
}

/* --- groups --- */

static const char *value_read(struct os_path *folder, const char *name, char bytes[VALUE_BYTES]) {
  return os_line_read(path_open(folder, name, O_RDONLY), bytes, VALUE_BYTES);
}

/* Reads a limit's file: a number of bytes. Anything else, "max" and "-1" included, means no limit. */
size_t os_group_limit(struct os_group *group, const char *name) {
  char bytes[VALUE_BYTES];
  const char *text = value_read(&group->path, name, bytes);
  size_t limit = 0;
  if (text == NULL || !text_number_parse(text, &limit, &text) || *text != 0)
    return SIZE_MAX;
  return limit >= LIMIT_BYTES_MAX ? SIZE_MAX : limit;
}

/* Tells whether a word is in a list of words with commas between. */
static bool list_has(const char *list, const char *word) {
  size_t length = strlen(word);
  for (;; list++) {
    if (strncmp(list, word, length) == 0 && (list[length] == 0 || list[length] == ','))
      return true;
    list = strchr(list, ',');
    if (list == NULL)
      return false;
  }
}

/* The hierarchy of v2, and the one of v1 that has the memory controller. If both exist, only one of them has limits. */
enum hierarchy { HIERARCHY_V1, HIERARCHY_V2, HIERARCHIES };

/* The buffers of a search, about 6 KiB. They lie in a mapping, because the caller may be a coroutine whose stack has
 * 8 KiB. */
struct search {
  char names[HIERARCHIES][GROUP_BYTES]; /* the group of the process, seen from its namespace's root; "": none */
  struct os_group group;
  struct os_lines in;
  char line[OS_LINE_BYTES];
  os_group_visit *visit;
  void *argument;
};

/* Reads /proc/self/cgroup: "4:cpu,memory:/a/group", "0::/a/group". A name has no newline and is not escaped. */
static void names_read(struct search *search) {
  for (char *line; (line = os_lines_next(&search->in)) != NULL;) {
    char *controllers = strchr(line, ':');
    char *name = controllers ? strchr(controllers + 1, ':') : NULL;
    if (name == NULL || name[1] != '/' || strlen(name + 1) >= GROUP_BYTES)
      continue;
    *controllers++ = *name++ = 0;
    enum hierarchy hierarchy = HIERARCHY_V1;
    if (strcmp(line, "0") == 0 && *controllers == 0)
      hierarchy = HIERARCHY_V2;
    else if (!list_has(controllers, "memory"))
      continue;
    memcpy(search->names[hierarchy], name, strlen(name) + 1);
  }
}

/* Tells whether name begins with a step above the root of the cgroup namespace. */
static bool is_outside(const char *name) { return strncmp(name, "/..", 3) == 0 && (name[3] == 0 || name[3] == '/'); }

/* Finds the folder of a group in a mount that shows the groups from mount_root down. False if it is not there. */
static bool folder_find(struct os_group *group, const char *mount_point, const char *mount_root, const char *name) {
  size_t length = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
  const char *below = name + length;
  if (strncmp(name, mount_root, length) != 0 || (*below != 0 && *below != '/')) {
    /* A mount from outside our cgroup namespace starts at a group above ours, whose name we cannot see. Its top
     * folder holds for us too. */
    if (!is_outside(mount_root) || is_outside(name))
      return false;
    below = "";
  }
  if (is_outside(below))
    return false;
  path_cut(&group->path, 0);
  if (!path_append(&group->path, mount_point))
    return false;
  group->mount_length = group->path.length;
  return strcmp(below, "/") == 0 || path_append(&group->path, below);
}

bool os_group_up(struct os_group *group) {
  const char *below = group->path.bytes + group->mount_length, *slash = strrchr(below, '/');
  if (*below == 0)
    return false;
  path_cut(&group->path, group->mount_length + (slash ? (size_t)(slash - below) : 0));
  return true;
}

/* Cuts the next field off the text; fields have one space between. */
static char *field_next(char **text) {
  char *field = *text, *space = strchr(field, ' ');
  *text = space ? space + 1 : field + strlen(field);
  if (space)
    *space = 0;
  return field;
}

static bool is_octal(char c) { return c >= '0' && c <= '7'; }

/* Spaces and the like are written as \040. */
static void unescape_path(char *text) {
  char *out = text;
  for (; *text; text++) {
    if (text[0] == '\\' && is_octal(text[1]) && is_octal(text[2]) && is_octal(text[3])) {
      *out++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
      text += 3;
    } else {
      *out++ = *text;
    }
  }
  *out = 0;
}

struct mount {
  enum hierarchy hierarchy;
  const char *root, *point;
};

/* A line of /proc/self/mountinfo:
 *     36 35 98:0 /root /point rw,noatime master:1 ... - type source options
 * False if it is no mount of ours. */
static bool mount_parse(char *line, struct mount *mount) {
  for (unsigned i = 0; i < 3; i++)
    field_next(&line);
  char *root = field_next(&line), *point = field_next(&line);
  while (*line && strcmp(field_next(&line), "-") != 0)
    ;
  const char *type = field_next(&line);
  field_next(&line);
  const char *options = field_next(&line);
  if (strcmp(type, "cgroup2") == 0)
    mount->hierarchy = HIERARCHY_V2;
  else if (strcmp(type, "cgroup") == 0 && list_has(options, "memory"))
    mount->hierarchy = HIERARCHY_V1;
  else
    return false;
  unescape_path(root);
  unescape_path(point);
  mount->root = root;
  mount->point = point;
  return root[0] == '/' && point[0] == '/';
}

/* Returns true if visit ended the search. */
static bool mount_visit(struct search *search, const struct mount *mount) {
  const char *name = search->names[mount->hierarchy];
  search->group.is_first_version = mount->hierarchy == HIERARCHY_V1;
  return name[0] != 0 && folder_find(&search->group, mount->point, mount->root, name) &&
         search->visit(&search->group, search->argument);
}

/* Another mount may hide a mount; then the folder does not exist. */
static void groups_search(struct search *search, const char *process) {
  static const struct mount usual[] = {{HIERARCHY_V2, "/", "/sys/fs/cgroup"},
                                       {HIERARCHY_V1, "/", "/sys/fs/cgroup/memory"}};
  struct os_path *path = &search->group.path;
  struct mount mount;
  bool over = false;
  int names = path_append(path, process) ? path_open(path, "/cgroup", O_RDONLY) : -1;
  if (!os_lines_open(&search->in, names, search->line, sizeof search->line))
    return;
  names_read(search);
  os_text_close(search->in.fd);
  int mounts = os_text_open("/proc/self/mountinfo", O_RDONLY);
  if (os_lines_open(&search->in, mounts, search->line, sizeof search->line)) {
    for (char *line; !over && (line = os_lines_next(&search->in)) != NULL;)
      over = mount_parse(line, &mount) && mount_visit(search, &mount);
    os_text_close(search->in.fd);
    return;
  }
  for (unsigned i = 0; !over && i < sizeof usual / sizeof usual[0]; i++)
    over = mount_visit(search, &usual[i]);
}

void os_groups_visit(const char *process, os_group_visit *visit, void *argument) {
  size_t bytes = round_up(sizeof(struct search), os_page_bytes());
  struct search *search = os_map(bytes, os_page_bytes()); /* zeroed: no names */
  if (search == NULL)
    return;
  search->visit = visit;
  search->argument = argument;
  groups_search(search, process);
  os_unmap(search, bytes);
}

struct found {
  size_t max_bytes, high_bytes;
  size_t swap_bytes; /* v2 */
  size_t both_bytes; /* v1: of memory and swap together */
};

static bool limits_visit(struct os_group *group, void *argument) {
  struct found *found = argument;
  do {
    if (!group->is_first_version) {
      found->max_bytes = min_size(found->max_bytes, os_group_limit(group, "/memory.max"));
      found->high_bytes = min_size(found->high_bytes, os_group_limit(group, "/memory.high"));
      found->swap_bytes = min_size(found->swap_bytes, os_group_limit(group, "/memory.swap.max"));
    } else {
      found->max_bytes = min_size(found->max_bytes, os_group_limit(group, "/memory.limit_in_bytes"));
      found->both_bytes = min_size(found->both_bytes, os_group_limit(group, "/memory.memsw.limit_in_bytes"));
    }
  } while (os_group_up(group));
  return false;
}

/* Reads cpu.max: the time that the group may run in each period ("max": any), and the period. */
static bool cpus_visit(struct os_group *group, void *argument) {
  char bytes[VALUE_BYTES];
  size_t *cpus = argument, run = 0, period = 0;
  if (group->is_first_version)
    return false;
  do {
    const char *text = value_read(&group->path, "/cpu.max", bytes);
    if (text != NULL && text_number_parse(text, &run, &text) && *text == ' ' &&
        text_number_parse(text + 1, &period, &text) && *text == 0 && period > 0)
      *cpus = min_size(*cpus, run / period + (run % period != 0));
  } while (os_group_up(group));
  return false;
}

size_t os_cpu_limit_read(void) {
  KEEP_ERRNO;
  size_t cpus = SIZE_MAX;
  os_groups_visit("/proc/self", cpus_visit, &cpus);
  return max_size(cpus, 1);
}

/* Returns all swap of the machine, in bytes; 0 if it is not known. */
static size_t swap_total_read(void) {
  size_t kib = os_file_field("/proc/meminfo", "SwapTotal:");
  return kib <= LIMIT_BYTES_MAX / 1024 ? kib * 1024 : 0;
}

void os_memory_limits_read(struct os_memory_limits *out) {
  KEEP_ERRNO;
  struct found found = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
  os_groups_visit("/proc/self", limits_visit, &found);
  *out = (struct os_memory_limits){.max_bytes = found.max_bytes, .high_bytes = found.high_bytes};
  if (found.max_bytes != SIZE_MAX) {
    size_t beyond = found.both_bytes - min_size(found.both_bytes, found.max_bytes);
    out->swap_bytes = min_size(min_size(found.swap_bytes, beyond), swap_total_read());
  }
}

/* Arms a pressure file with a trigger: microseconds of stall in a window of microseconds. An unprivileged process must
 * use windows of two seconds. Takes ownership of fd. */
static int pressure_arm(int fd) {
  static const char *const triggers[] = {"some 150000 1000000", "some 300000 2000000"};
  int high = -1;
  if (fd < 0)
    return -1;
  for (unsigned i = 0; high < 0 && i < sizeof triggers / sizeof triggers[0]; i++) {
    long length = (long)strlen(triggers[i]) + 1; /* the terminator belongs to it */
    if (os_kernel_again(SYS_write, fd, triggers[i], length) == length)
      high = os_duplicate_high(fd);
  }
  os_text_close(fd);
  return high;
}

static bool pressure_visit(struct os_group *group, void *argument) {
  int *fd = argument;
  if (!group->is_first_version)
    *fd = pressure_arm(path_open(&group->path, "/memory.pressure", O_RDWR | O_NONBLOCK));
  return *fd >= 0;
}

static int pressure_open(void) {
  int fd = -1;
  os_groups_visit("/proc/self", pressure_visit, &fd);
  return fd >= 0 ? fd : pressure_arm(os_text_open("/proc/pressure/memory", O_RDWR | O_NONBLOCK));
}

#define NOT_ASKED (-2)

static struct {
  int fd; /* -1: none */
  struct os_file file;
} pressure = {.fd = NOT_ASKED};

/* False if the program has closed the descriptor; the number may stand for a file of its own then. */
static bool pressure_is_ours(void) {
  return pressure.fd >= 0 && os_may_call() && os_file_is(pressure.fd, pressure.file);
}

static void pressure_close(int fd_left) {
  if (pressure_is_ours())
    os_text_close(pressure.fd);
  pressure.fd = fd_left;
}

COLD void os_pressure_watch(void) {
  if (pressure.fd != NOT_ASKED)
    return;
  KEEP_ERRNO;
  pressure.fd = option_value(OPTION_CGROUP) == CGROUP_ON && os_may_call() ? pressure_open() : -1;
  if (pressure.fd >= 0)
    pressure.file = os_file_identity(pressure.fd);
}

bool os_pressure_came(void) {
  if (!pressure_is_ours())
    return false;
  KEEP_ERRNO;
  struct pollfd watched = {.fd = pressure.fd, .events = POLLPRI};
  struct timespec at_once = {.tv_sec = 0, .tv_nsec = 0};
  /* A pending signal interrupts even a call that does not wait. */
  long ready = os_kernel_again(SYS_ppoll, &watched, 1, &at_once, NULL, 0);
  /* Where the group was removed, POLLPRI comes together with an error. */
  bool came = ready == 1 && watched.revents == POLLPRI;
  if (ready != 0 && !came)
    pressure_close(-1);
  return came;
}

COLD void os_pressure_in_child(void) { pressure_close(NOT_ASKED); }
