/* background.h: the thread that gives memory back while the program does nothing.
 *
 * It exists while there is work for it. A slow path starts it when the process holds 16 MiB, has as much resident, and 1
 * MiB was freed since there was a thread (blocks in slabs count), or when 4 MiB wait for a time that was learned (the option
 * `policy`). It looks every half delay, and ends when the program was idle and all that was free has gone. It blocks all
 * signals, is called "hakmem", and can be switched off (HAKMEM_BACKGROUND=off); then slow paths do what they can.
 *
 * Before a fork, and where a program changes namespaces, it is stopped: when that returns, the kernel does not count it
 * any more. It comes back when as much was freed again, or a second later if it had work left. Where the C library is linked
 * statically, it sleeps instead of ending, but is stopped all the same. With the option `live` it sleeps, too, and stays
 * through forks: a process that only forks and waits is to answer.
 *
 * It keeps no process alive: it ends when the main thread has, by pthread_exit or by the system call, and then for good.
 *
 * Starting a thread takes locks of the C library and of the loader, which allocate and free while they hold them. So no call
 * of theirs starts it: the caller's address tells, and the next call does it (background_start_if_due). In a static program
 * it does not tell; there only allocating starts the thread.
 */
#ifndef HAK_RECLAIM_BACKGROUND_H
#define HAK_RECLAIM_BACKGROUND_H

#include "base/words.h"

/* Called at the end of a slow path: wakes the thread if it sleeps, notes what it would have to do. */
void background_tick(void);

/* Something is due and there is no thread. */
extern _Atomic bool background_is_due;

/* Called by slow paths when they hold nothing and are marked as nothing, on whose behalf site was called: starts the
 * thread if it is time. */
enum background_caller { BACKGROUND_ALLOCATES, BACKGROUND_FREES };
void background_start(uintptr_t site, enum background_caller caller);
static inline void background_start_if_due(uintptr_t site, enum background_caller caller) {
  if (UNLIKELY(atomic_load_explicit(&background_is_due, memory_order_relaxed)))
    background_start(site, caller);
}

/* Once, when the library starts, before any other function here. relays: up to 0 the functions of ours that call malloc or
 * free for whoever called them, so that their address as a caller's says nothing. */
void background_prepare(const uintptr_t *relays);

/* From here on the thread sleeps on this word, which is 0 when it comes to it; who wakes it without a change of the
 * word wants `look` to be called. The word stays for ever, but in the child of a fork, which forgets it. False: the
 * thread runs already, and nothing is changed. */
bool background_watch(_Atomic uint32_t *word, void (*look)(void));
/* Starts the thread with the next slow path, however small the program. False: there will be none. */
bool background_wish(void);
/* The thread runs, and will look. */
bool background_watches(void);

/* This process, or the one it is a copy of, has had the thread. */
bool background_has_been(void);

/* Ends the thread. When it returns the kernel does not count it any more. Waits for a second at most, and not at all in a
 * signal handler that interrupted a slow path, for whose locks the thread may wait. In another process that shares
 * this one's memory (vfork, CLONE_VM) it does nothing. */
void background_stop(void);
/* The same, and starts none from here on, as when a system call filter is about to be installed. */
void background_stop_for_good(void);
/* The filter was refused. */
void background_resume(void);
/* The options have changed. */
void background_apply(void);

/* Before a fork: ends the thread as background_stop does, unless it is to `look`. None is started before
 * background_in_parent. */
void background_before_fork(void);
void background_in_parent(void);
void background_in_child(void);

#endif
