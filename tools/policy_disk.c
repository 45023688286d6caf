#include "tools/policy_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES_MAX ((size_t)64 << 20)

/* Writes a sentence, in which %m stands for errno. Returns false. */
__attribute__((format(printf, 3, 4))) static bool wrong(char problem[POLICY_DISK_SENTENCE], const char *path,
                                                        const char *format, ...) {
  int error = errno;
  int used = snprintf(problem, POLICY_DISK_SENTENCE, "%.128s: ", path);
  va_list list;
  errno = error;
  va_start(list, format);
  vsnprintf(problem + used, POLICY_DISK_SENTENCE - (size_t)used, format, list);
  va_end(list);
  return false;
}

static void *read_all(int fd, size_t length) {
  char *bytes = malloc(length + 1);
  for (size_t at = 0; bytes && at < length;) {
    ssize_t count = read(fd, bytes + at, length - at);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0) {
      if (count == 0)
        errno = EIO;
      free(bytes);
      return NULL;
    }
    at += (size_t)count;
  }
  return bytes;
}

/* Reads an ordinary file; NULL on failure, with *is_there false if there is none. */
static void *read_content(const char *path, size_t *length, bool *is_there, char problem[POLICY_DISK_SENTENCE]) {
  struct stat found;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *is_there = fd >= 0 || errno != ENOENT;
  void *bytes = NULL;
  if (fd < 0 || fstat(fd, &found) != 0)
    wrong(problem, path, "%m");
  else if (!S_ISREG(found.st_mode))
    wrong(problem, path, "is not an ordinary file");
  else if ((size_t)found.st_size > BYTES_MAX)
    wrong(problem, path, "is too large for a policy file");
  else if ((bytes = read_all(fd, (size_t)found.st_size)) == NULL)
    wrong(problem, path, "%m");
  else
    *length = (size_t)found.st_size;
  if (fd >= 0)
    close(fd);
  return bytes;
}

static const char *const faults[] = {
    [POLICY_FILE_FOREIGN] = "is not a policy file",
    [POLICY_FILE_DAMAGED] = "is a policy file that is damaged",
    [POLICY_FILE_NEWER] = "is a policy file of a later version of hakmem",
    [POLICY_FILE_OTHER] = "is a policy file of other strategies than this hakmem has",
};

void *policy_disk_read(const char *path, struct policy_file *file, char problem[POLICY_DISK_SENTENCE]) {
  size_t length = 0;
  bool is_there;
  void *bytes = read_content(path, &length, &is_there, problem);
  if (bytes == NULL)
    return NULL;
  enum policy_file_error error = length == 0 ? POLICY_FILE_FOREIGN : policy_file_open(file, bytes, length);
  if (error == POLICY_FILE_OK)
    return bytes;
  wrong(problem, path, "%s", faults[error]);
  free(bytes);
  return NULL;
}

bool policy_disk_may_write(const char *path, char problem[POLICY_DISK_SENTENCE]) {
  size_t length = 0;
  bool is_there;
  struct policy_file file;
  void *bytes = read_content(path, &length, &is_there, problem);
  if (bytes == NULL)
    return !is_there;
  bool is_ours = length == 0 || policy_file_open(&file, bytes, length) != POLICY_FILE_FOREIGN;
  free(bytes);
  return is_ours || wrong(problem, path, "is not a policy file, so it is not overwritten");
}

static bool write_all(int fd, const char *bytes, size_t length) {
  for (size_t at = 0; at < length;) {
    ssize_t count = write(fd, bytes + at, length - at);
    if (count < 0 && errno != EINTR)
      return false;
    at += count > 0 ? (size_t)count : 0;
  }
  return fsync(fd) == 0;
}

bool policy_disk_write(const char *path, const void *bytes, size_t length, char problem[POLICY_DISK_SENTENCE]) {
  char beside[4096];
  int used = snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid());
  if (used < 0 || (size_t)used >= sizeof beside)
    return wrong(problem, path, "the name is too long");
  int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return wrong(problem, path, "%m");
  bool is_written = write_all(fd, bytes, length);
  int error = errno;
  if (close(fd) != 0 && is_written) {
    is_written = false;
    error = errno;
  }
  if (is_written && rename(beside, path) == 0)
    return true;
  error = is_written ? errno : error;
  unlink(beside);
  errno = error;
  return wrong(problem, path, "%m");
}
