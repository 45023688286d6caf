/* shared.h: a few pages of this process that other processes may map.
 *
 * The pages are a memfd. It has no name in any folder, so nobody can replace it, and it vanishes with the process.
 * Others open it through /proc/PID/fd. Access is limited to the process's user and root; the kernel refuses others, and
 * all if the process runs with raised privileges. The length is sealed: nobody can truncate the file, so no access to
 * the mapping causes SIGBUS. For readers only, writing is sealed too where the kernel can (Linux 5.1). No function
 * allocates or takes a lock; errno is kept.
 */
#pragma once

#include "os/os.h"

struct os_shared {
  void *base; /* zeroed, readable, writable; NULL: there are no pages */
  size_t bytes;
  int fd; /* a high one (os_duplicate_high), closed on exec */
  struct os_file file;
};

enum os_shared_use {
  OS_SHARED_READ,   /* others read; on kernels that cannot forbid it, they can write */
  OS_SHARED_WRITTEN /* others write too; all may make the file longer than the pages */
};

/* Makes the pages; `bytes` is rounded up to whole pages. False: the system refuses. */
bool os_shared_make(struct os_shared *out, const char *name, size_t bytes, enum os_shared_use use);

/* False if the program has closed the descriptor. Then no other process can find the pages any more. */
bool os_shared_is_open(const struct os_shared *shared);

/* Unmaps the pages and closes the descriptor, if it still stands for them. */
void os_shared_drop(struct os_shared *shared);

/* Frees the file's content beyond the pages, if the file is open. */
void os_shared_empty(const struct os_shared *shared);
