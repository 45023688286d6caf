#include "os/say.h"

#include "os/filter.h"
#include "os/kernel.h"
#include "os/os.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#ifndef RWF_NOWAIT /* musl before 1.2.4 */
#define RWF_NOWAIT 8
#endif

#define PATIENCE_S 5
#define CHUNK_BYTES ((size_t)4096) /* a writable pipe takes this much without blocking */
#define SIGNAL_SET_BYTES 8L
#define SIGNAL_BIT(signal) (UINT64_C(1) << ((signal) - 1))
#define SIGNALS (SIGNAL_BIT(SIGPIPE) | SIGNAL_BIT(SIGXFSZ))

void os_quiet_begin(struct os_quiet *quiet) {
  static const uint64_t signals = SIGNALS;
  *quiet = (struct os_quiet){.before = 0};
  os_kernel(SYS_rt_sigpending, &quiet->pending, SIGNAL_SET_BYTES);
  os_kernel(SYS_rt_sigprocmask, (long)SIG_BLOCK, &signals, &quiet->before, SIGNAL_SET_BYTES);
}

/* Consumes the signal that our own write caused. The kernel sends it to this thread. */
void os_quiet_end(const struct os_quiet *quiet) {
  static const struct timespec at_once = {.tv_sec = 0, .tv_nsec = 0};
  uint64_t ours = SIGNALS & ~quiet->pending;
  while (ours && os_kernel(SYS_rt_sigtimedwait, &ours, NULL, &at_once, SIGNAL_SET_BYTES) > 0)
    ;
  os_kernel(SYS_rt_sigprocmask, (long)SIG_SETMASK, &quiet->before, NULL, SIGNAL_SET_BYTES);
}

static bool is_writable(int fd) {
  struct pollfd watched = {.fd = fd, .events = POLLOUT};
  struct timespec patience = {.tv_sec = PATIENCE_S};
  /* The kernel leaves what remains of the time. If poll fails, the write will show. */
  return os_kernel_again(SYS_ppoll, &watched, 1L, &patience, NULL, 0L) != 0;
}

/* Writes as much as possible without blocking, in one piece, because several processes may write reports into one pipe.
 * Writes one chunk where the kernel cannot do that, or may not be asked. */
static long write_some(int fd, const char *bytes, size_t length, bool asks) {
  struct iovec whole = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
  long written = -1;
  if (asks && length > CHUNK_BYTES)
    written = os_kernel(SYS_pwritev2, (long)fd, &whole, 1L, -1L, -1L, (long)RWF_NOWAIT);
  return written > 0 ? written : os_kernel(SYS_write, (long)fd, bytes, min_size(length, CHUNK_BYTES));
}

static void write_all(int fd, const char *bytes, size_t length, bool asks) {
  while (length > 0) {
    if (asks && !is_writable(fd))
      return;
    long written = write_some(fd, bytes, length, asks);
    if (written < 0 && (errno == EINTR || (errno == EAGAIN && asks)))
      continue;
    if (written <= 0)
      return;
    bytes += written;
    length -= (size_t)written;
  }
}

void os_write(int fd, const char *bytes, size_t length) {
  KEEP_ERRNO;
  struct os_quiet quiet;
  bool asks = os_may_read_files();
  if (asks)
    os_quiet_begin(&quiet);
  write_all(fd, bytes, length, asks);
  if (asks)
    os_quiet_end(&quiet);
}

static struct os_file remembered;
static bool remembers, was_there;

static bool is_local_socket(int fd) {
  int domain = 0, bytes = sizeof domain;
  return os_kernel(SYS_getsockopt, (long)fd, (long)SOL_SOCKET, (long)SO_DOMAIN, &domain, &bytes) == 0 &&
         domain == AF_UNIX;
}

static bool is_there(void) {
  struct stat status;
  if (!os_file_status(2, &status))
    return false;
  if (remembers)
    return status.st_dev == remembered.device && status.st_ino == remembered.inode;
  if ((os_kernel(SYS_fcntl, 2L, (long)F_GETFD) & FD_CLOEXEC) != 0)
    return false;
  switch (status.st_mode & S_IFMT) {
  case S_IFCHR:
  case S_IFIFO:
    return true;
  case S_IFSOCK:
    return is_local_socket(2);
  case S_IFREG:
    return (os_kernel(SYS_fcntl, 2L, (long)F_GETFL) & O_ACCMODE) == O_WRONLY || status.st_nlink == 0;
  default:
    return false;
  }
}

void os_say_remember(void) {
  remembered = os_file_identity(2);
  remembers = true;
}

void os_say_prepare(void) { was_there = is_there(); }

void os_say(const char *sentence) {
  KEEP_ERRNO;
  if (*sentence && (os_may_read_files() ? is_there() : was_there))
    os_write(2, sentence, strlen(sentence));
}
