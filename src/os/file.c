#include "os/file.h"

#include "base/text.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PART_ENDING_BYTES 64 /* of ".PID-NANOSECONDS.part" */
#define PERMISSIONS 0777

const char *os_file_words(enum os_file_error error) {
  static const char *const words[] = {
      [OS_FILE_OK] = "done",
      [OS_FILE_ABSENT] = "there is no such file or folder",
      [OS_FILE_IRREGULAR] = "it is no regular file",
      [OS_FILE_DENIED] = "permission denied",
      [OS_FILE_NO_SPACE] = "no space left",
      [OS_FILE_NAME_TOO_LONG] = "the name is too long",
      [OS_FILE_READ_ONLY] = "the file system is read-only",
      [OS_FILE_REFUSED] = "the system refuses",
  };
  return words[error];
}

static enum os_file_error error_of(int number) {
  switch (number) {
  case ENOENT:
  case ENOTDIR:
    return OS_FILE_ABSENT;
  case EACCES:
  case EPERM:
    return OS_FILE_DENIED;
  case ENOSPC:
  case EDQUOT:
  case EFBIG:
    return OS_FILE_NO_SPACE;
  case ENAMETOOLONG:
    return OS_FILE_NAME_TOO_LONG;
  case EROFS:
    return OS_FILE_READ_ONLY;
  default:
    return OS_FILE_REFUSED;
  }
}

/* By system calls: open, read, write and close are cancellation points. */
static int file_open(const char *path, int flags, int mode) {
  long fd;
  do
    fd = syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOCTTY, mode);
  while (fd < 0 && errno == EINTR);
  return (int)fd;
}

static enum os_file_error read_open(int fd, char *bytes, size_t capacity, size_t *length) {
  struct stat status;
  if (fstat(fd, &status) != 0)
    return error_of(errno);
  if (!S_ISREG(status.st_mode))
    return OS_FILE_IRREGULAR;
  *length = 0;
  while (*length < capacity) {
    long got = syscall(SYS_read, fd, bytes + *length, capacity - *length);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return error_of(errno);
    if (got == 0)
      break;
    *length += (size_t)got;
  }
  return OS_FILE_OK;
}

enum os_file_error os_file_read(const char *path, void *bytes, size_t capacity, size_t *length) {
  int kept = errno;
  int fd = file_open(path, O_RDONLY | O_NONBLOCK, 0); /* a pipe without a writer is not waited for */
  enum os_file_error error = fd < 0 ? error_of(errno) : read_open(fd, bytes, capacity, length);
  if (fd >= 0)
    syscall(SYS_close, fd);
  errno = kept;
  return error;
}

static enum os_file_error write_open(int fd, const char *bytes, size_t length) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && length > limit.rlim_cur)
    return OS_FILE_NO_SPACE; /* the kernel would send a signal that ends the process */
  while (length > 0) {
    long written = syscall(SYS_write, fd, bytes, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return written < 0 ? error_of(errno) : OS_FILE_NO_SPACE;
    bytes += written;
    length -= (size_t)written;
  }
  return syscall(SYS_fdatasync, fd) == 0 ? OS_FILE_OK : error_of(errno);
}

static enum os_file_error replace(const char *path, const void *bytes, size_t length) {
  char part[PATH_MAX + PART_ENDING_BYTES];
  struct stat status;
  bool exists = stat(path, &status) == 0;
  if (!exists && errno != ENOENT)
    return error_of(errno);
  if (exists && !S_ISREG(status.st_mode))
    return OS_FILE_IRREGULAR;
  struct text name = TEXT_IN(part);
  text_string(&name, path);
  text_string(&name, ".");
  text_decimal(&name, (uint64_t)os_process_id());
  text_string(&name, "-"); /* a process of another container may have the same number */
  text_decimal(&name, os_nanoseconds());
  text_string(&name, ".part");
  int fd = file_open(part, O_WRONLY | O_CREAT | O_EXCL, exists ? 0600 : 0666);
  if (fd < 0)
    return error_of(errno);
  enum os_file_error error = write_open(fd, bytes, length);
  if (!error && exists && (status.st_uid != geteuid() || status.st_gid != getegid()))
    syscall(SYS_fchown, fd, status.st_uid, status.st_gid); /* if we may */
  if (!error && exists && fchmod(fd, status.st_mode & PERMISSIONS) != 0)
    error = error_of(errno);
  if (syscall(SYS_close, fd) != 0 && !error)
    error = error_of(errno);
  if (!error && rename(part, path) != 0)
    error = error_of(errno);
  if (error)
    unlink(part);
  return error;
}

enum os_file_error os_file_replace(const char *path, const void *bytes, size_t length) {
  int kept = errno;
  enum os_file_error error = replace(path, bytes, length);
  errno = kept;
  return error;
}

bool os_path_absolute(const char *path, char *out, size_t out_bytes) {
  int kept = errno;
  struct text text = {.bytes = out, .capacity = out_bytes};
  *out = 0;
  if (*path != '/') {
    long length = syscall(SYS_getcwd, out, out_bytes); /* the terminator included */
    if (length < 2 || *out != '/') {                   /* or it lies outside of what can be reached */
      errno = kept;
      return false;
    }
    text.length = (size_t)length - 1;
    if (text.length > 1)
      text_string(&text, "/");
  }
  text_string(&text, path);
  errno = kept;
  return text.length + 1 < out_bytes;
}
