/* os.h: the operating system as hakmem needs it, and the only place that calls it.
 *
 * Nothing here allocates or takes a lock of ours. Addresses and sizes are multiples of the OS page
 * unless said otherwise. Functions that can fail say so by their result; errno is then unspecified
 * (callers that promise errno set it themselves). Calls that manage memory or wait are counted.
 * tests/unit/oom.c links a fake of the calls that can fail, whose n-th call fails.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include "base/words.h"

#include <pthread.h>

/* Bytes of an OS page, 4 KiB to 64 KiB, probed once. */
size_t os_page_bytes(void);

/* Address space of `size` bytes at a multiple of `alignment` (a power of two, at least a page).
 * os_reserve: not accessible, not charged against overcommit; os_map: zeroed, readable, writable.
 * NULL when the kernel refuses. */
void *os_reserve(size_t size, size_t alignment);
void *os_map(size_t size, size_t alignment);

/* Makes a reserved range readable and writable; it reads as zero. False when the kernel refuses. */
bool os_commit(void *address, size_t size);

/* Gives the pages of a committed range back; it stays accessible and reads as zero. False when the kernel
 * refuses, as for locked memory: unchanged. */
bool os_purge(void *address, size_t size);

/* The same, but only when the kernel needs memory; until then the old content may be read. False where
 * the kernel cannot do that: unchanged. */
bool os_purge_lazily(void *address, size_t size);

/* Asks for huge pages in a range. */
void os_huge(void *address, size_t size);

/* Bytes of a range, and of the whole process, that are resident. */
size_t os_resident_bytes(const void *address, size_t size);
size_t os_resident_of_process(void);

/* Ends a mapping, or a part of one. False when the kernel refuses, which it does for a part when the
 * process has too many mappings. */
bool os_unmap(void *address, size_t size);

/* Grows or shrinks a mapping made by os_map without moving it. False: unchanged. */
bool os_resize(void *address, size_t size, size_t size_wanted);

/* Moves a mapping's pages onto a range reserved by os_reserve of size_wanted bytes; the old range is
 * unmapped, bytes behind the old size read as zero. False: the old range is unchanged, the target may be gone. */
bool os_move(void *address, size_t size, void *target, size_t size_wanted);

/* RLIMIT_AS as it was when first asked for, SIZE_MAX without limit. (A later call could meet a seccomp
 * filter; a limit set since then shows as a refused mapping.) */
size_t os_address_space_limit(void);

/* Waits while *word == expected; may wake without reason. Wakes one waiter. */
void os_futex_wait(_Atomic uint32_t *word, uint32_t expected);
void os_futex_wait_for(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms);
void os_futex_wake(_Atomic uint32_t *word);
/* Tells the processor that this is a spin loop. */
void os_spin_hint(void);

/* Milliseconds since some start, to a few milliseconds; no system call. */
uint64_t os_milliseconds(void);
/* Nanoseconds since some start; since 1970. */
uint64_t os_nanoseconds(void);
uint64_t os_epoch_nanoseconds(void);

void os_write(int fd, const char *bytes, size_t length);
/* A duplicate of fd, numbered `lowest` or above, closed on exec; -1 if there is none. */
int os_duplicate_above(int fd, int lowest);
/* Which file a descriptor stands for; zeros if for none. */
struct os_file {
  uint64_t device, inode;
};
struct os_file os_file_identity(int fd);
/* The next "NAME=value" of the environment whose name starts with prefix; *cursor starts at 0. NULL
 * behind the last, and always if the process runs with raised privileges. */
const char *os_environment_next(const char *prefix, size_t *cursor);
int os_process_id(void);

/* Page faults and peak resident bytes of this process so far. (ru_maxrss would not do: a process
 * inherits it through exec from whoever started it.) */
struct os_usage {
  uint64_t faults_minor;
  uint64_t faults_major;
  uint64_t resident_peak_bytes;
};
void os_usage_read(struct os_usage *out);

/* A lifeline tells, from outside, whether the thread that holds it is alive. A thread holds it until
 * the kernel has ended the thread, after all its destructors; nothing has to be done at exit.
 *   lifeline_take   the calling thread takes it; true if nobody living held it. On success everything
 *                   the last holder did is visible. Never waits.
 *   lifeline_drop   the holder gives it up.
 *   lifeline_reset  in the child of a fork: nobody holds it. */
struct lifeline {
  pthread_mutex_t mutex; /* robust: held for life */
  _Atomic int thread_id; /* used where the system has no robust mutexes */
};
void lifeline_reset(struct lifeline *line);
bool lifeline_take(struct lifeline *line);
void lifeline_drop(struct lifeline *line);

/* Starts a detached thread with all signals blocked, a small stack and the default scheduling. It allocates,
 * by the C library: the caller must be able to. False if the system has none. os_thread_prepare comes
 * first, when the program starts: it finds the C library's own pthread_create, as a program may put one
 * in front that allocates under locks of its own. */
void os_thread_prepare(void);
bool os_thread_start(void *(*run)(void *));
/* Names the calling thread, in at most 15 bytes. */
void os_thread_name(const char *name);

/* Calls `end`, the same for all callers, when the calling thread ends by itself, while the process goes on. */
void os_at_thread_end(void (*end)(void *));

/* System calls made so far, by kind. */
enum os_call {
  OS_CALL_MAP,
  OS_CALL_UNMAP,
  OS_CALL_PROTECT,
  OS_CALL_ADVISE,
  OS_CALL_REMAP,
  OS_CALL_FUTEX,
  OS_CALL_OTHER,
  OS_CALL_KINDS
};
uint64_t os_calls(enum os_call kind);

#endif
