/* os.h: the contract between hakmem and the operating system. Only this folder makes system calls.
 *
 * No function takes a lock of hakmem, and only os_thread_start allocates. Addresses and sizes are multiples of the OS
 * page unless stated otherwise. Functions that can fail return so; errno is then unspecified, and callers that promise
 * errno set it themselves. Calls that manage memory or wait are counted. tests/unit/oom.c links a fake whose n-th call
 * fails.
 */
#pragma once

#include "base/words.h"

#include <pthread.h>
#include <sys/select.h> /* sigset_t; signal.h includes too much */

/* Returns the bytes of an OS page, 4 KiB to 64 KiB. Asks the system once. */
size_t os_page_bytes(void);

/* Returns `size` bytes of address space at a multiple of `alignment` (a power of two, at least a page).
 * os_reserve: inaccessible, not charged against overcommit. os_map: zeroed, readable, writable. Both refuse huge pages
 * until os_huge.
 * NULL when the kernel refuses. */
void *os_reserve(size_t size, size_t alignment);
void *os_map(size_t size, size_t alignment);

/* As os_map, but the range reads as zero in any child process. NULL also before Linux 4.14, which cannot do that. */
void *os_map_for_this_process(size_t size);

/* Makes a reserved range readable and writable; it reads as zero. False when the kernel refuses. */
bool os_commit(void *address, size_t size);

/* Takes pages and access from a mapped range, whose addresses stay taken. False when the kernel refuses. */
bool os_seal(void *address, size_t size);
/* Takes the access only; os_commit gives it again, with the same content. */
bool os_forbid(void *address, size_t size);

/* Gives the pages of a committed range back. The range stays accessible and reads as zero. False when the kernel
 * refuses, for instance for locked memory; then nothing changed. */
bool os_purge(void *address, size_t size);

/* As os_purge, but the kernel takes the pages when it needs memory. Until then the old content may be read. False where
 * the kernel cannot do that; then nothing changed. */
bool os_purge_lazily(void *address, size_t size);

/* Undoes what the program may have done to a committed range while it owned it (mprotect, MADV_DONTFORK,
 * MADV_WIPEONFORK). The range becomes readable and writable, and the child of a fork inherits it with its content, as
 * far as the kernel allows. */
void os_restore(void *address, size_t size);

/* Makes the pages of a range resident by one call instead of a fault each, as far as the kernel does that. The caller
 * must be about to write them. */
void os_populate(void *address, size_t size);

/* The same with huge pages, if the kernel has some at hand. No other thread may use the first byte meanwhile. */
void os_populate_huge(void *address, size_t size);

/* Asks for huge pages in a range. */
void os_huge(void *address, size_t size);

/* Copies a resident range of 2 MiB to a huge page. Afterwards huge pages are refused there again, so that it stays one
 * mapping with its neighbours. Threads that touch it meanwhile wait. */
enum os_collapse {
  OS_COLLAPSED,        /* or it was on a huge page */
  OS_COLLAPSE_BUSY,    /* the kernel or a device uses pages of the range */
  OS_COLLAPSE_SCARCE,  /* the kernel has no huge page at hand */
  OS_COLLAPSE_REFUSED, /* before Linux 6.1, where the process may have no huge pages, or if it is several mappings */
};
enum os_collapse os_huge_collapse(void *address, size_t size);

/* Tells whether the administrator forbids huge pages to all programs (`never`); the kernel collapses nevertheless.
 * Reads a file. */
bool os_huge_is_forbidden(void);

/* Splits the huge page around a resident page, if only a part of it is still mapped. Else nothing happens, but that the
 * kernel takes the page for one that is seldom used. Needs Linux 5.4. */
void os_huge_split(void *page);

/* Return the resident bytes of a range, and of the whole process. */
size_t os_resident_bytes(const void *address, size_t size);
size_t os_resident_of_process(void);

/* Unmaps a mapping, or a part of one. False when the kernel refuses: it refuses a part when the process has too many
 * mappings. */
bool os_unmap(void *address, size_t size);

/* Grows or shrinks a mapping of os_map in place. False: nothing changed. */
bool os_resize(void *address, size_t size, size_t size_wanted);

/* Lengthens a mapping of os_map and moves its pages to where there is room, at a multiple of UNIT_BYTES, or of 2 MiB if
 * that costs nothing. Needs no more address space than the difference and 4 MiB. The new part may have any content.
 * NULL when the kernel refuses, for instance after the program changed access rights, locks or advice of a part of the
 * mapping. Then nothing changed. */
void *os_move(void *address, size_t size, size_t size_wanted);

/* Returns the smaller of RLIMIT_AS and RLIMIT_DATA, SIZE_MAX without limit, as it was when it was asked for last: by
 * the first call, and if there was a limit, a second ago at most, unless the program has a filter of its own. */
size_t os_memory_limit(void);
/* Call when the system refused memory, and before a filter comes: a limit may have been set. */
void os_memory_limit_ask_again(void);
/* Tells whether the kernel commits no more memory than it has (vm.overcommit_memory=2). Reads a file. */
bool os_commit_is_strict(void);

/* os_futex_wait_for waits while *word == expected; it may return without reason. timeout_ms UINT64_MAX: no timeout.
 * os_futex_wake wakes one waiter. */
void os_futex_wait_for(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms);
void os_futex_wake(_Atomic uint32_t *word);
/* The same for a word that several processes may map. Each of them can wake, even without the right to write.
 * os_futex_wait_shared returns true if woken, maybe without reason. */
bool os_futex_wait_shared(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms);
void os_futex_wake_shared(_Atomic uint32_t *word);
/* Tells the processor that this is a spin loop. */
void os_spin_hint(void);

/* Returns milliseconds since a fixed point, exact to a few milliseconds. No system call where there is a vDSO. */
uint64_t os_milliseconds(void);
/* Returns nanoseconds since a fixed point. */
uint64_t os_nanoseconds(void);
/* The same of another clock, a CLOCK_ constant of time.h. */
uint64_t os_nanoseconds_of(int clock);

/* Duplicates fd, closed on exec, with a number that programs hardly use: the highest below 1,024 or the process's
 * limit. -1 if there is none. */
int os_duplicate_high(int fd);
/* The identity of the file behind a descriptor; zeros if there is none. */
struct os_file {
  uint64_t device, inode;
};
struct os_file os_file_identity(int fd);
/* Tells whether a descriptor still stands for that file. Programs close descriptors that are not theirs, and get the
 * numbers for files of their own. */
bool os_file_is(int fd, struct os_file file);
/* Returns the next "NAME=value" of the environment whose name starts with prefix. *cursor starts at 0. NULL after the
 * last, and always if the process runs with raised privileges. */
const char *os_environment_next(const char *prefix, size_t *cursor);
/* Returns 0 under a filter that the program installed, because the filter may kill for the question. */
int os_process_id(void);
int os_parent_id(void); /* likewise */
/* The same as os_process_id in the child of fork: makes no system call, if the C library knows the id. In a child of
 * clone(2) it knows the parent's. */
int os_process_id_in_child(void);
/* Tells whether the process has children, living or not waited for yet. True if it may not ask. */
bool os_has_children(void);
/* Makes no system call if the main thread of a program that has just started asks. */
int os_process_id_at_start(void);
int os_thread_id(void);
/* Returns the calling thread's id as the C library knows it, which after clone(2) is the parent's; 0: unknown. */
int os_thread_number(void);
/* The same as os_thread_id, without a system call under a filter, if the C library knows the id. If it does not, it is
 * 0 under a filter of the program's own. */
int os_thread_shown(void);

/* A lifeline shows other threads whether its holder is alive. A thread holds it until the kernel has ended the thread,
 * after all its destructors. Nothing has to run at thread exit.
 *   lifeline_take   the calling thread takes it; true if no living thread held it. On success everything
 *                   the last holder did is visible. Never waits.
 *   lifeline_take_left
 *                   the same for one that looks held, at the price of two system calls. The kernel walks only the
 *                   2,048 robust mutexes that an ending thread locked last, and leaves the others as they are.
 *                   No other thread may try at the same time. process_id: the process that the holder belonged to.
 *   lifeline_drop   the holder gives it up.
 *   lifeline_make   makes one: no thread holds it.
 *   lifeline_reset  remakes one in the child of a fork: no thread holds it.
 *   lifeline_before_fork, lifeline_after_fork
 *                   the holder calls them around a fork, in parent and child, and holds it in both. In between
 *                   no other thread may try to take it. */
struct lifeline {
  pthread_mutex_t mutex; /* robust: held for life */
  pthread_mutex_t fresh; /* the mutex as it was made */
  _Atomic int thread_id; /* used where the system has no robust mutexes */
};
void lifeline_make(struct lifeline *line);
void lifeline_reset(struct lifeline *line);
bool lifeline_take(struct lifeline *line);
bool lifeline_take_left(struct lifeline *line, int process_id);
void lifeline_drop(struct lifeline *line);
void lifeline_before_fork(struct lifeline *line);
void lifeline_after_fork(struct lifeline *line, bool child);

/* os_thread_start starts a thread with the caller's signal mask, a small stack and the default scheduling. False if the
 * system refuses. os_thread_join waits for its end and frees the stack. Both take locks of the C library, and starting
 * allocates, so no lock of hakmem may be held. Call os_thread_prepare at program start: it finds the C library's own
 * pthread_create, because a program may wrap it by one that allocates under locks of its own. */
void os_thread_prepare(void);
bool os_thread_start(void *(*run)(void *), pthread_t *out);
void os_thread_join(pthread_t thread);
/* Names the calling thread, in at most 15 bytes. */
void os_thread_name(const char *name);
/* Tells whether the kernel still counts the thread with this id in this process. */
bool os_thread_exists(int thread_id);
/* Lets other threads run. Where a filter may kill for that call, it sleeps for a millisecond. */
void os_yield(void);

/* Block all signals of the calling thread but the C library's own; restore what was blocked before. */
void os_signals_block(sigset_t *before);
void os_signals_restore(const sigset_t *before);

bool os_is_main_thread(void);
/* Tells whether the main thread has ended while other threads live on. False where the system cannot tell. */
bool os_main_thread_is_gone(void);

/* Makes the calling thread call `end` when it ends by itself while the process goes on. All callers pass the same
 * function. */
void os_at_thread_end(void (*end)(void *));

/* Fills with random bytes of the system, or where it has none, with what the kernel gave the process at its start. */
void os_random(void *bytes, size_t size);
