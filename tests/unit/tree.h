/* tree.h: a made-up root of the file system, for what reads /proc and /sys. */
#pragma once

#include "unit.h"

#include "os/text_file.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

static char root[200];

static inline void path_in_root(char *path, size_t bytes, const char *name) {
  assert_true((size_t)snprintf(path, bytes, "%s%s", root, name) < bytes);
  for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
    *slash = 0;
    assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
    *slash = '/';
  }
}

static inline void put_bytes(const char *name, const void *bytes, size_t length) {
  char path[4096];
  path_in_root(path, sizeof path, name);
  FILE *file = UNIT_GOT(fopen(path, "w"));
  assert_int_equal(fwrite(bytes, 1, length, file), length);
  assert_int_equal(fclose(file), 0);
}

static inline void put(const char *name, const char *text) { put_bytes(name, text, strlen(text)); }

static inline int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk) {
  return remove(path);
}

static inline void tree_end(void) {
  if (root[0])
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  root[0] = 0;
  if (os_root != AT_FDCWD)
    close(os_root);
  os_root = AT_FDCWD;
}

static inline void tree_made(void) {
  tree_end();
  unit_folder_make(root, sizeof root);
  os_root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
  assert_true(os_root >= 0);
  put("/proc/self/status", "Pid:\t1\nSeccomp:\t0\n"); /* an unreadable one counts as a filter (os/filter.h) */
}
