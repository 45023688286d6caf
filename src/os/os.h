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

/* As os_map; in a child process, however it was made, the range reads as zero. NULL also where the kernel (before
 * Linux 4.14) cannot do that. */
void *os_map_for_this_process(size_t size);

/* Makes a reserved range readable and writable; it reads as zero. False when the kernel refuses. */
bool os_commit(void *address, size_t size);

/* Gives the pages of a committed range back; it stays accessible and reads as zero. False when the kernel
 * refuses, as for locked memory: unchanged. */
bool os_purge(void *address, size_t size);

/* The same, but only when the kernel needs memory; until then the old content may be read. False where
 * the kernel cannot do that: unchanged. */
bool os_purge_lazily(void *address, size_t size);

/* Takes back what the program may have asked for in a committed range while it owned it: it is readable, writable and
 * inherited by the child of a fork (mprotect, MADV_DONTFORK), as far as the kernel allows. */
void os_restore(void *address, size_t size);

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

/* Lengthens a mapping made by os_map, moving its pages to wherever there is room for them, at a multiple of `alignment`
 * (at most 2 MiB); of 2 MiB, if that is as cheap. Takes no more address space than the difference and 4 MiB. What is new
 * may have any content. NULL when the kernel refuses, as it does where the program changed a part of the mapping (its
 * access rights, locks, advice): unchanged, and nothing is left behind. */
void *os_move(void *address, size_t size, size_t size_wanted, size_t alignment);

/* The smaller of RLIMIT_AS and RLIMIT_DATA as they were when first asked for, SIZE_MAX without limit. (A later call could meet a seccomp
 * filter; a limit set since then shows as a refused mapping.) */
size_t os_memory_limit(void);

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
/* That the calling thread has worked. */
uint64_t os_thread_nanoseconds(void);

/* A duplicate of fd, closed on exec, with a number that programs hardly use: as high as 1,024 descriptors allow, or the
 * process's limit; -1 if there is none. */
int os_duplicate_high(int fd);
/* Which file a descriptor stands for; zeros if for none. */
struct os_file {
  uint64_t device, inode;
};
struct os_file os_file_identity(int fd);
/* The next "NAME=value" of the environment whose name starts with prefix; *cursor starts at 0. NULL
 * behind the last, and always if the process runs with raised privileges. */
const char *os_environment_next(const char *prefix, size_t *cursor);
/* 0 under a filter of the program's own, which may not allow the question. */
int os_process_id(void);
/* Without a system call where the main thread of a program that has just started asks. */
int os_process_id_at_start(void);
int os_thread_id(void);

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
 *   lifeline_take_left
 *                   the same for one that looks held, at the price of two system calls: a thread that ends with more
 *                   robust mutexes than the kernel walks (2,048, the ones locked last) leaves the others as they are.
 *                   Nobody else may try at the same time. process_id: of the process that the holder was a thread of.
 *   lifeline_drop   the holder gives it up.
 *   lifeline_reset  makes one, or one anew in the child of a fork: nobody holds it.
 *   lifeline_before_fork, lifeline_after_fork
 *                   called by a holder that forks, in the parent and in the child: it holds it in both. In between
 *                   nobody else may try to take it. */
struct lifeline {
  pthread_mutex_t mutex; /* robust: held for life */
  _Atomic int thread_id; /* used where the system has no robust mutexes */
};
void lifeline_reset(struct lifeline *line);
bool lifeline_take(struct lifeline *line);
bool lifeline_take_left(struct lifeline *line, int process_id);
void lifeline_drop(struct lifeline *line);
void lifeline_before_fork(struct lifeline *line);
void lifeline_after_fork(struct lifeline *line, bool child);

/* Starts a thread with the caller's signal mask, a small stack and the default scheduling; os_thread_join frees that stack
 * when the thread has ended, or waits until then. Both take locks of the C library, and starting allocates: the caller must
 * be able to. False if the system has none. os_thread_prepare comes first, when the program starts: it finds the C
 * library's own pthread_create, as a program may put one in front that allocates under locks of its own. */
void os_thread_prepare(void);
bool os_thread_start(void *(*run)(void *), pthread_t *out);
void os_thread_join(pthread_t thread);
/* Names the calling thread, in at most 15 bytes. */
void os_thread_name(const char *name);
/* Does the kernel still count the thread of this process that has, or had, this number? */
bool os_thread_exists(int thread_id);
void os_yield(void);

/* Of the calling thread: all signals but the C library's own; and what was blocked before. */
struct os_signals {
  unsigned long words[128 / sizeof(unsigned long)]; /* a sigset_t, whose header brings too much along */
};
void os_signals_block(struct os_signals *before);
void os_signals_restore(const struct os_signals *before);

bool os_is_main_thread(void);
/* The main thread has ended, in whatever way, and the process lives on in others. False where the system cannot tell. */
bool os_main_thread_is_gone(void);

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
void os_call_count(enum os_call kind); /* for the other files of this folder */

#endif
