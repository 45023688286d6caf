#include "inspect/shared.h"

#include "os/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Older system headers lack these. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 0x0001
#define F_SEAL_SHRINK 0x0002
#define F_SEAL_GROW 0x0004
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int memory_file(const char *name) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  long fd = os_kernel(SYS_memfd_create, name, flags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
    fd = os_kernel(SYS_memfd_create, name, flags);
  return (int)fd;
}

static bool may_be_so_long(size_t bytes) {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur; /* beyond it the kernel sends a signal */
}

/* Allocates the pages before the first write. */
static void *map_file(int fd, size_t bytes, enum os_shared_use use) {
  if (!may_be_so_long(bytes) || fchmod(fd, 0600) != 0 ||
      os_kernel_again(SYS_fallocate, fd, 0, (off_t)0, (off_t)bytes) != 0)
    return NULL;
  void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED)
    return NULL;
  const int least = F_SEAL_SEAL | F_SEAL_SHRINK | (use == OS_SHARED_READ ? F_SEAL_GROW : 0);
  const int most = least | (use == OS_SHARED_READ ? F_SEAL_FUTURE_WRITE : 0);
  if (fcntl(fd, F_ADD_SEALS, most) == 0 || fcntl(fd, F_ADD_SEALS, least) == 0)
    return base;
  munmap(base, bytes);
  return NULL;
}

bool os_shared_make(struct os_shared *out, const char *name, size_t bytes, enum os_shared_use use) {
  KEEP_ERRNO;
  *out = (struct os_shared){.fd = -1};
  int low = memory_file(name), fd = low < 0 ? -1 : os_duplicate_high(low);
  bytes = round_up(bytes, os_page_bytes());
  void *base = fd < 0 ? NULL : map_file(fd, bytes, use);
  if (low >= 0)
    os_kernel(SYS_close, low);
  if (base != NULL)
    *out = (struct os_shared){.base = base, .bytes = bytes, .fd = fd, .file = os_file_identity(fd)};
  else if (fd >= 0)
    os_kernel(SYS_close, fd);
  return base != NULL;
}

bool os_shared_is_open(const struct os_shared *shared) { return os_file_is(shared->fd, shared->file); }

void os_shared_drop(struct os_shared *shared) {
  KEEP_ERRNO;
  if (shared->base != NULL) {
    munmap(shared->base, shared->bytes);
    if (os_shared_is_open(shared))
      os_kernel(SYS_close, shared->fd);
  }
  *shared = (struct os_shared){.fd = -1};
}

void os_shared_empty(const struct os_shared *shared) {
  KEEP_ERRNO;
  if (os_shared_is_open(shared))
    os_kernel(SYS_fallocate, shared->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)shared->bytes,
              (off_t)(INT64_MAX - (int64_t)shared->bytes));
}
