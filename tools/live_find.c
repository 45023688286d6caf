#include "tools/live_find.h"

#include "inspect/maps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { LINK_BYTES = 128 };

static const char *link_of(const char *name, char link[LINK_BYTES]) {
  snprintf(link, LINK_BYTES, "/memfd:%s (deleted)", name);
  return link;
}

static int none_or_denied(void) { return errno == EACCES || errno == EPERM ? LIVE_FIND_DENIED : LIVE_FIND_NONE; }

static bool is_link_to(int folder, const char *name, const char *link) {
  char target[LINK_BYTES];
  ssize_t length = readlinkat(folder, name, target, sizeof target);
  return length == (ssize_t)strlen(link) && memcmp(target, link, (size_t)length) == 0;
}

/* Opens the file behind a descriptor in the list. The process may have closed it since its link was read, and got its
 * number for another file: then LIVE_FIND_NONE. */
static int open_link(int list_fd, const char *name, const char *link, int flags) {
  struct stat opened, listed;
  int fd = openat(list_fd, name, flags | O_CLOEXEC | O_NONBLOCK); /* a pipe may have such a name */
  if (fd < 0)
    return none_or_denied();
  if (is_link_to(list_fd, name, link) && fstat(fd, &opened) == 0 && fstatat(list_fd, name, &listed, 0) == 0 &&
      opened.st_dev == listed.st_dev && opened.st_ino == listed.st_ino)
    return fd;
  close(fd);
  return LIVE_FIND_NONE;
}

int live_find_file(int folder, const char *name, int flags) {
  char link[LINK_BYTES];
  link_of(name, link);
  int list_fd = openat(folder, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = list_fd < 0 ? NULL : fdopendir(list_fd);
  if (list == NULL) {
    int result = none_or_denied();
    if (list_fd >= 0)
      close(list_fd);
    return result;
  }
  int found = LIVE_FIND_NONE;
  for (struct dirent *entry;
       found == LIVE_FIND_NONE && (entry = readdir(list)) != NULL;) // NOLINT(concurrency-mt-unsafe): one thread
    if (is_link_to(list_fd, entry->d_name, link))
      found = open_link(list_fd, entry->d_name, link, flags);
  closedir(list);
  return found;
}

bool live_maps_file(int folder, const char *name) {
  struct os_maps maps;
  struct os_mapping mapping;
  char link[LINK_BYTES];
  bool is_open = os_maps_open_at(&maps, openat(folder, "maps", O_RDONLY | O_CLOEXEC)), found = false;
  link_of(name, link);
  while (is_open && !found && os_maps_next(&maps, &mapping))
    found = strcmp(mapping.name, link) == 0;
  os_maps_close(&maps);
  return found;
}

bool live_is_safe(int fd) {
  struct statfs status;
  int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstatfs(fd, &status) == 0 && status.f_type != HUGETLBFS_MAGIC;
}
