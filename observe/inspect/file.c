#include "inspect/file.h"

#include "base/text.h"
#include "os/kernel.h"
#include "os/os.h"
#include "os/say.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PERMISSIONS 0777
#define LOCK_STEP_NS 5000000
#define LINKS_MAX 40u /* on one path, as the kernel's own limit */

static const char *const words[] = {
    [OS_FILE_OK] = "done",
    [OS_FILE_ABSENT] = "there is no such file or folder",
    [OS_FILE_IRREGULAR] = "it is no regular file",
    [OS_FILE_LINK] = "a symbolic link on the way belongs to another user, or others may change it",
    [OS_FILE_DENIED] = "permission denied",
    [OS_FILE_NO_SPACE] = "no space left",
    [OS_FILE_NAME_TOO_LONG] = "the name is too long",
    [OS_FILE_READ_ONLY] = "the file system is read-only",
    [OS_FILE_NO_MEMORY] = "no memory for it",
    [OS_FILE_REFUSED] = "the system refuses",
};

const char *os_file_words(enum os_file_error error) { return words[error]; }

static enum os_file_error error_of(int number) {
  if (number == ENOTDIR)
    return OS_FILE_ABSENT;
  if (number == EPERM)
    return OS_FILE_DENIED;
  if (number == EDQUOT || number == EFBIG)
    return OS_FILE_NO_SPACE;
  /* EINVAL is the number of OS_FILE_IRREGULAR, which no failed call means. */
  bool is_known = number != EINVAL && (size_t)number < sizeof words / sizeof *words && words[number] != NULL;
  return is_known ? (enum os_file_error)number : OS_FILE_REFUSED;
}

/* Files are used by system calls, because open, read, write and close of the C library are cancellation points. */
static int file_open(int folder, const char *path, int flags, int mode) {
  return (int)os_kernel_again(SYS_openat, folder, path, flags | O_CLOEXEC | O_NOCTTY, mode);
}

/* Keeps errno. -1: none. */
static void file_close(int fd) {
  KEEP_ERRNO;
  if (fd >= 0)
    os_kernel(SYS_close, fd);
}

static enum os_file_error read_open(int fd, char *bytes, size_t capacity, size_t *length) {
  struct stat status;
  if (!os_file_status(fd, &status))
    return error_of(errno);
  if (!S_ISREG(status.st_mode))
    return OS_FILE_IRREGULAR;
  *length = 0;
  while (*length < capacity) {
    long got = os_kernel_again(SYS_read, fd, bytes + *length, capacity - *length);
    if (got < 0)
      return error_of(errno);
    if (got == 0)
      break;
    *length += (size_t)got;
  }
  return OS_FILE_OK;
}

enum os_file_error os_file_read(const char *path, void *bytes, size_t capacity, size_t *length) {
  KEEP_ERRNO;
  int fd = file_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0); /* does not wait for the writer of a pipe */
  enum os_file_error error = fd < 0 ? error_of(errno) : read_open(fd, bytes, capacity, length);
  file_close(fd);
  return error;
}

/* --- the folder of a file to be written --- */

static bool is_trusted(const struct stat *status) { return status->st_uid == 0 || status->st_uid == geteuid(); }

/* A link leads elsewhere, so only root and the process's user may have made it and may exchange it. */
static bool may_follow(const struct stat *link, const struct stat *folder) {
  return is_trusted(link) && is_trusted(folder) && (folder->st_mode & S_IWOTH) == 0;
}

/* Replaces what stands in `path` before `rest` by the text of a link. False: it does not fit, or cannot be read. */
static bool link_read(int link, char path[PATH_MAX], const char *rest) {
  size_t rest_bytes = strlen(rest) + 1, room = PATH_MAX - rest_bytes;
  memmove(path + room, rest, rest_bytes);
  long length = os_kernel(SYS_readlinkat, link, "", path, room);
  if (length < 0 || (size_t)length + 1 >= room) { /* 1: the slash */
    errno = length < 0 ? errno : ENAMETOOLONG;
    return false;
  }
  path[length] = '/';
  memmove(path + length + 1, path + room, rest_bytes);
  return true;
}

/* Opens the folder of the file at `path`, step by step, because the kernel would follow any link. `path` is changed.
 * -1 and errno: there is none; ELOOP: a link that is not followed. */
static int folder_open(char path[PATH_MAX], struct stat *folder) {
  const int flags = O_PATH | O_NOFOLLOW;
  int fd = file_open(AT_FDCWD, *path == '/' ? "/" : ".", flags, 0);
  unsigned links = 0;
  for (char *at = path; fd >= 0 && os_file_status(fd, folder);) {
    at += strspn(at, "/");
    char *end = strchr(at, '/');
    if (end == NULL)
      return fd;
    *end = 0;
    struct stat status;
    int next = file_open(fd, at, flags, 0);
    at = end + 1;
    if (next >= 0 && os_file_status(next, &status) && S_ISLNK(status.st_mode)) {
      int link = next;
      errno = ELOOP;
      bool is_read = ++links <= LINKS_MAX && may_follow(&status, folder) && link_read(link, path, at);
      next = is_read ? file_open(fd, *path == '/' ? "/" : ".", flags, 0) : -1;
      file_close(link);
      at = path;
    }
    file_close(fd);
    fd = next;
  }
  file_close(fd);
  return -1;
}

/* Tells whether a file is another user's in a folder where everybody may make files. That user would own the
 * new file. */
static bool is_planted(const struct stat *file, const struct stat *folder) {
  return file->st_uid != geteuid() && (folder->st_mode & S_IWOTH) != 0 && file->st_uid != folder->st_uid;
}

static const char *last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static enum os_file_error part_begin(struct os_file_part *part, const char *path) {
  struct stat *status = &part->status, folder;
  size_t length = strlen(path);
  const char *last = last_name(path);
  part->fd = part->folder_fd = -1;
  part->path = path;
  part->length = 0;
  if (length >= PATH_MAX)
    return OS_FILE_NAME_TOO_LONG;
  memcpy(part->name, path, length + 1);
  part->folder_fd = folder_open(part->name, &folder);
  if (part->folder_fd < 0)
    return error_of(errno);
  if (*last == 0 && length > 0)
    return OS_FILE_IRREGULAR;
  part->replaces = fstatat(part->folder_fd, last, status, AT_SYMLINK_NOFOLLOW) == 0;
  if (!part->replaces && errno != ENOENT)
    return error_of(errno);
  if (part->replaces && !S_ISREG(status->st_mode))
    return OS_FILE_IRREGULAR;
  if (part->replaces && is_planted(status, &folder))
    return OS_FILE_DENIED;
  struct text name = TEXT_IN(part->name);
  name.capacity = NAME_MAX + 1 - OS_FILE_ENDING_BYTES; /* of a long name the beginning is enough: the ending differs */
  text_string(&name, last);
  name.capacity = sizeof part->name;
  /* The time, because a process of another container may have the same number. */
  text_format(&name, ".%lu-%lu.part", (uint64_t)os_process_id(), os_nanoseconds());
  part->fd = file_open(part->folder_fd, part->name, O_WRONLY | O_CREAT | O_EXCL, part->replaces ? 0600 : 0666);
  return part->fd < 0 ? error_of(errno) : OS_FILE_OK;
}

enum os_file_error os_file_begin(struct os_file_part *part, const char *path) {
  KEEP_ERRNO;
  return part->error = part_begin(part, path);
}

enum os_file_error os_file_begin_at(struct os_file_part *part, int fd, uint64_t at) {
  KEEP_ERRNO;
  part->path = NULL;
  part->folder_fd = -1;
  part->fd = fd;
  part->file = os_file_identity(fd);
  part->length = at;
  return part->error = lseek(fd, (off_t)at, SEEK_SET) < 0 ? error_of(errno) : OS_FILE_OK;
}

static enum os_file_error part_add(struct os_file_part *part, const char *bytes, size_t length) {
  part->length += length;
  if (part->path == NULL && !os_file_is(part->fd, part->file))
    return OS_FILE_REFUSED;
  while (length > 0) {
    long written = os_kernel_again(SYS_write, part->fd, bytes, length);
    if (written <= 0)
      return written < 0 ? error_of(errno) : OS_FILE_NO_SPACE;
    bytes += written;
    length -= (size_t)written;
  }
  return OS_FILE_OK;
}

enum os_file_error os_file_add(struct os_file_part *part, const void *bytes, size_t length) {
  KEEP_ERRNO;
  struct os_quiet quiet; /* beyond the file size limit: an error, no signal */
  if (part->error)
    return part->error;
  os_quiet_begin(&quiet);
  part->error = part_add(part, bytes, length);
  os_quiet_end(&quiet);
  return part->error;
}

static enum os_file_error part_end(const struct os_file_part *part) {
  enum os_file_error error = part->error;
  if (part->fd < 0 || part->path == NULL)
    return error;
  if (!error && os_kernel_again(SYS_fdatasync, part->fd) != 0)
    error = error_of(errno);
  if (!error && part->replaces && (part->status.st_uid != geteuid() || part->status.st_gid != getegid()))
    os_kernel(SYS_fchown, part->fd, part->status.st_uid, part->status.st_gid); /* if we may */
  if (!error && part->replaces && fchmod(part->fd, part->status.st_mode & PERMISSIONS) != 0)
    error = error_of(errno);
  if (os_kernel(SYS_close, part->fd) != 0 && !error && errno != EINTR) /* interrupted, it is closed all the same */
    error = error_of(errno);
  if (!error && renameat(part->folder_fd, part->name, part->folder_fd, last_name(part->path)) != 0)
    error = error_of(errno);
  if (error)
    unlinkat(part->folder_fd, part->name, 0);
  return error;
}

enum os_file_error os_file_end(struct os_file_part *part) {
  KEEP_ERRNO;
  part->error = part_end(part);
  file_close(part->folder_fd);
  return part->error;
}

enum os_file_error os_file_replace(const char *path, const void *bytes, size_t length) {
  struct os_file_part part;
  os_file_begin(&part, path);
  os_file_add(&part, bytes, length);
  return os_file_end(&part);
}

int os_file_lock(const char *path) {
  KEEP_ERRNO;
  const uint64_t end = os_nanoseconds() + OS_FILE_LOCK_WAIT_MS * UINT64_C(1000000);
  char folder[PATH_MAX];
  struct text text = TEXT_IN(folder);
  text_format(&text, "%s%s", *path == '/' ? "" : "./", path);
  *(char *)(uintptr_t)last_name(folder) = 0;
  int fd = file_open(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0);
  while (fd >= 0 && os_kernel(SYS_flock, fd, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || os_nanoseconds() > end) {
      file_close(fd);
      return -1;
    }
    struct timespec step = {.tv_nsec = LOCK_STEP_NS}; /* the kernel writes what is left of it */
    os_kernel(SYS_ppoll, NULL, 0L, &step, NULL, 0L);
  }
  return fd;
}

void os_file_unlock(int lock) {
  KEEP_ERRNO;
  if (lock >= 0)
    os_kernel(SYS_flock, lock, LOCK_UN); /* a child of a fork may have the descriptor, too */
  file_close(lock);
}

bool os_path_absolute(const char *path, char *out, size_t out_bytes) {
  KEEP_ERRNO;
  struct text text = {.bytes = out, .capacity = out_bytes};
  *out = 0;
  if (*path != '/') {
    long length = os_kernel(SYS_getcwd, out, out_bytes); /* the terminator included */
    if (length < 2 || *out != '/')                       /* or the folder is unreachable */
      return false;
    text.length = (size_t)length - 1;
    if (text.length > 1)
      text_string(&text, "/");
  }
  text_string(&text, path);
  return text.length + 1 < out_bytes;
}

bool os_pattern_absolute(const char *pattern, char *out, size_t out_bytes) {
  if (!os_path_absolute(pattern, out, out_bytes))
    return false;
  size_t length = strlen(out), folder = length - strlen(pattern);
  for (size_t i = 0; i < folder; i++)
    if (out[i] == '%') {
      if (length + 2 > out_bytes)
        return false;
      memmove(out + i + 1, out + i, length - i + 1);
      length++, folder++, i++;
    }
  return true;
}
