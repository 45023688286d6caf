/* background.h: the thread that gives memory back while the program does nothing.
 *
 * It exists while there is work for it. A slow path starts it in two cases: the process holds 16 MiB, has as much
 * resident, and since the last thread has freed 1 MiB (blocks returned to slabs count), or has 64 threads, or has
 * slabs of 64 MiB and twice as much as then (they may move to huge pages); or 4 MiB have a learned decay time (the
 * option `policy`). It does a round every half of the purge delay in force. It ends when the program is idle and all
 * free memory went back, or nothing was freed for some time and less than 1 MiB is free. While a child lives it stays
 * for a minute after the fork, because dense memory may move once the child has ended. It blocks all signals and is
 * named "hakmem". HAKMEM_BACKGROUND=off switches it off; then only slow paths give memory back.
 *
 * It is stopped before a fork and before a program changes namespaces. When the stop returns, the kernel does not count
 * the thread any more. It comes back when as much was freed again, or a second later if it had work left. In static
 * programs, with the option `live`, while an observer needs a clock (observers.clock_ms), and while the program has 64
 * threads, it sleeps instead of ending. With `live` it also stays through forks, so that a process that forks and waits
 * can answer.
 *
 * It keeps no process alive: when the main thread has ended, by pthread_exit or by the system call, it ends for good.
 *
 * Starting a thread takes locks of the C library and of the loader. Both allocate and free while they hold these locks.
 * So no call of theirs starts the thread, which the caller's address tells; the next call does
 * (background_start_if_due). In a static program addresses do not tell. There the thread must start before frees come:
 * only a call that allocates starts it, as soon as much is held; after a stop, when 4 MiB more are held than at the
 * stop, or 1 MiB was freed since.
 */
#pragma once

#include "base/words.h"

/* Call at the end of a slow path: wakes the thread if it sleeps, and notes whether a thread is due. */
void background_tick(void);
/* True if a slow path has done so since the thread looked: then a thread that runs needs no other call. */
extern HAK_HIDDEN _Atomic bool background_is_told;

/* True if work is due and there is no thread. So much that was freed makes it due in a big program. */
#define BACKGROUND_FREED_BYTES ((size_t)1 << 20)
extern HAK_HIDDEN _Atomic bool background_is_due;

/* Call after a slow path has ended, without a lock: starts the thread if it is due. site: the program's call of malloc
 * or free. */
enum background_caller { BACKGROUND_ALLOCATES, BACKGROUND_FREES };
void background_start(uintptr_t site, enum background_caller caller);
static inline void background_start_if_due(uintptr_t site, enum background_caller caller) {
  if (UNLIKELY(load_relaxed(&background_is_due)))
    background_start(site, caller);
}

/* Call once at library start, before the other functions here. */
void background_prepare(void);

/* Makes the thread sleep on this futex word, which must be 0. A wake without a change of the word makes the thread call
 * `look`. The word must stay mapped for ever; the child of a fork forgets it. False: the thread runs already, and
 * nothing changed. */
bool background_watch(_Atomic uint32_t *word, void (*look)(void));
/* Makes the next slow path start the thread, however small the program is. False: there will be no thread. */
bool background_wish(void);
/* Tells whether the thread runs and does not sleep. */
bool background_is_awake(void);
/* Tells whether the program holds so much that free memory is the thread's work, while none is awake. */
bool background_is_missed(void);
/* Tells whether the thread runs and will call `look`. */
bool background_watches(void);

/* Tells whether this process, or the one that it is a copy of, has had the thread. */
bool background_has_been(void);

/* Ends the thread. When it returns, the kernel does not count the thread any more. It waits for a second at most. In a
 * signal handler that interrupted a slow path it does not wait, because the thread may wait for locks of that slow
 * path. In another process that shares this one's memory (vfork, CLONE_VM) it does nothing. */
void background_stop(void);
/* The same, and no thread is started from then on. Call before a system call filter is installed. */
void background_stop_for_good(void);
/* Call if the filter was refused. */
void background_resume(void);
/* Call when options have changed. */
void background_apply(void);

/* Call before a fork: ends the thread as background_stop does, unless it watches a word. No thread is started before
 * background_in_parent. */
void background_before_fork(void);
void background_in_parent(void);
void background_in_child(int process_id); /* the child's */
/* Returns the id of the process that may have a thread. In a fork's child, until background_in_child: its parent. */
int background_process(void);
