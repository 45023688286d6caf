/* large.h: objects above HAK_SMALL_MAX, or aligned more than a class can be. Each is a mapping of its
 * own at a multiple of UNIT_BYTES (of SUPERSLAB_BYTES from that size on, so that huge pages fit).
 * Freed ranges are kept in a small cache. Thread-safe; system calls are made outside the lock.
 *   L1  the first unit's entry is ENTRY_LARGE while the object lives, ENTRY_LARGE_FREE while it is
 *       cached; its other units' entries are ENTRY_LARGE_BODY, ENTRY_LARGE_FREE while cached
 *   L2  the record of the first unit holds the mapped size
 */
#ifndef HAK_LARGE_LARGE_H
#define HAK_LARGE_LARGE_H

#include "base/words.h"

/* size in 1..PTRDIFF_MAX, alignment a power of two. *zeroed: the memory is known to read as zero.
 * NULL when memory is out. */
void *large_alloc(size_t size, size_t alignment, bool *zeroed);

/* The same for a signal handler that interrupted this thread's slow path: waits for no lock. */
void *large_alloc_interrupting(size_t size, size_t alignment);

/* object: its entry was ENTRY_LARGE. If two threads free one object, one of them ends the program. */
void large_free(void *object);

/* In place, or by moving pages. NULL: unchanged, the caller must copy. */
void *large_resize(void *object, size_t size);

/* Usable bytes. */
size_t large_bytes(const void *object);

/* Gives cached ranges back until at most keep_bytes are left. Returns the bytes given back. */
size_t large_trim(size_t keep_bytes);

struct large_stats {
  size_t live_count, live_bytes;
  size_t cached_bytes;
};
void large_stats(struct large_stats *out);

void large_lock_for_fork(void);
void large_unlock_after_fork(bool child);

#endif
