/* group.h: runs the program again in a memory control group of its own, where the machine allows: as root,
 * with a writable cgroup file system that has the memory controller, v1 or v2. Else the test is skipped,
 * and says why. The group is made at the top of what can be seen, and removed afterwards. */
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../check.h"

struct group {
  int version;
  int lent; /* the controller was given to the groups below for this test */
  char mount[512];
  char folder[640];
};

static inline int group_write(const char *folder, const char *file, const char *text) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t written = write(fd, text, strlen(text));
  close(fd);
  return written == (ssize_t)strlen(text);
}

static inline int group_has(const struct group *group, const char *file) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", group->folder, file);
  return access(path, F_OK) == 0;
}

/* Returns the bytes that the group is charged for. */
static inline size_t group_charged(const char *folder) {
  static const char *const files[] = {"memory.current", "memory.usage_in_bytes"};
  size_t bytes = 0;
  for (unsigned i = 0; i < 2 && bytes == 0; i++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, files[i]);
    FILE *file = fopen(path, "r");
    if (file) {
      CHECK(fscanf(file, "%zu", &bytes) == 1);
      fclose(file);
    }
  }
  CHECK(bytes > 0);
  return bytes;
}

/* Is word one of the words in text, between spaces, commas and line ends? */
static inline int group_listed(const char *text, const char *word) {
  size_t length = strlen(word);
  while (*(text += strspn(text, " ,\n"))) {
    size_t here = strcspn(text, " ,\n");
    if (here == length && strncmp(text, word, length) == 0)
      return 1;
    text += here;
  }
  return 0;
}

static inline int group_mount_has_memory(const char *mount) {
  char path[1024], text[1024] = "";
  snprintf(path, sizeof path, "%s/cgroup.controllers", mount);
  FILE *file = fopen(path, "r");
  if (!file)
    return 0;
  int has = fgets(text, sizeof text, file) && group_listed(text, "memory");
  fclose(file);
  return has;
}

/* The mount of the hierarchy that has the memory controller; version 0 if there is none. */
static inline void group_find(struct group *group) {
  static char line[8192];
  FILE *mounts = fopen("/proc/self/mountinfo", "r");
  memset(group, 0, sizeof *group);
  while (mounts && fgets(line, sizeof line, mounts)) {
    char point[512], type[32], options[512], *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %*s %*s %511s", point) != 1 ||
        sscanf(rest, " - %31s %*s %511s", type, options) != 2)
      continue;
    int version = strcmp(type, "cgroup") == 0 && group_listed(options, "memory")  ? 1
                  : strcmp(type, "cgroup2") == 0 && group_mount_has_memory(point) ? 2
                                                                                  : 0;
    if (version == 0)
      continue;
    group->version = version;
    strcpy(group->mount, point);
    break;
  }
  if (mounts)
    fclose(mounts);
}

static inline void group_remove(const struct group *group) {
  for (int i = 0; rmdir(group->folder) != 0 && errno == EBUSY && i < 200; i++)
    usleep(10000);
  if (group->lent)
    group_write(group->mount, "cgroup.subtree_control", "-memory");
}

static inline void group_skip(const struct group *group, const char *reason) {
  char text[1024];
  snprintf(text, sizeof text, "%s (cgroup v%d at %s)", reason, group->version, group->mount);
  group_remove(group);
  test_skip(text);
}

/* A group of limit_bytes of memory, and no swap. */
static inline void group_make(struct group *group, size_t limit_bytes) {
  char limit[32];
  snprintf(limit, sizeof limit, "%zu", limit_bytes);
  group_find(group);
  test_skip_if(group->version == 0, "no cgroup file system with the memory controller is mounted");
  snprintf(group->folder, sizeof group->folder, "%s/hakmem-test.%d", group->mount, (int)getpid());
  if (mkdir(group->folder, 0755) != 0) {
    char reason[1024];
    snprintf(reason, sizeof reason, "cannot make a group at %s: %s", group->mount, strerror(errno));
    test_skip(reason);
  }
  const char *file = group->version == 1 ? "memory.limit_in_bytes" : "memory.max";
  if (!group_has(group, file))
    group->lent = group_write(group->mount, "cgroup.subtree_control", "+memory");
  if (!group_has(group, file))
    group_skip(group, "the memory controller cannot be given to a group");
  if (!group_write(group->folder, file, limit))
    group_skip(group, "the group takes no limit");
  if (group->version == 1)
    group_write(group->folder, "memory.memsw.limit_in_bytes", limit);
  else
    group_write(group->folder, "memory.swap.max", "0");
}

/* Runs the program again in the group, with the group's folder in TEST_LIMITED. Ends when it does; it must end
 * with 0. */
static inline void group_run(struct group *group, char **argv) {
  enum { CANNOT_JOIN = 78 };
  int status = 0;
  fflush(NULL);
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
        !group_write(group->folder, "cgroup.procs", "0"))
      _exit(CANNOT_JOIN);
    setenv("TEST_LIMITED", group->folder, 1);
    execv(argv[0], argv);
    _exit(CANNOT_JOIN);
  }
  if (child > 0)
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
  if (child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_JOIN))
    group_skip(group, "no process can join the group");
  group_remove(group);
  CHECK_SAY(access(group->folder, F_OK) != 0, "%s is still there", group->folder);
  CHECK_SAY(!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL, "killed for want of memory");
  CHECK_SAY(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
  exit(WEXITSTATUS(status));
}
