/* shared.h: a few pages of this process that others may look at.
 *
 * A memfd: it has no name in any folder, so nobody can put something else in its place, and it goes with the process,
 * however that ends. Others open it through /proc/PID/fd, which the kernel allows the same user and root, unless the
 * process runs with raised privileges. Its length is sealed: nobody can truncate it, so no access to the mapping is ever
 * SIGBUS. If they only are to read, so is writing, where the kernel can (Linux 5.1).
 * Nothing here allocates or takes a lock; errno is kept.
 */
#ifndef HAK_OS_SHARED_H
#define HAK_OS_SHARED_H

#include "os/os.h"

struct os_shared {
  void *base; /* NULL: there is none; zeroed, readable, writable */
  size_t bytes;
  int fd; /* a high one (os_duplicate_high), closed on exec */
  struct os_file file;
};

enum os_shared_use {
  OS_SHARED_READ,   /* by others; where the kernel cannot forbid it, they can write */
  OS_SHARED_WRITTEN /* by others, too; all may make the file longer than the pages */
};

/* `bytes` is rounded up to whole pages. False: the system refuses. */
bool os_shared_make(struct os_shared *out, const char *name, size_t bytes, enum os_shared_use use);

/* Programs close descriptors that are not theirs; then nobody finds the pages any more. */
bool os_shared_is_open(const struct os_shared *shared);

/* Unmaps the pages and closes the descriptor, if it still stands for them. */
void os_shared_drop(struct os_shared *shared);

/* Gives back what the file has behind the pages, if it is open. */
void os_shared_empty(const struct os_shared *shared);

/* As os_futex_wait_for and os_futex_wake, for a word that may lie in such pages: whoever maps them can wake, also if he
 * cannot write. timeout_ms UINT64_MAX: without end. True if somebody woke us; it may have no reason. */
bool os_shared_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms);
void os_shared_wake(_Atomic uint32_t *word);

#endif
