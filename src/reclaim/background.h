/* background.h: the thread that gives memory back while the program does nothing.
 *
 * It is started when 16 MiB are held and the process has as much resident, so small programs never see it, unless 4
 * MiB wait for a time that was learned (the option `policy`);
 * it sleeps until a slow path says that something may become free, looks every half delay from then on, and
 * sleeps again when the program was idle and all that was free has gone. It blocks all signals, is called
 * "hakmem", and can be switched off (HAKMEM_BACKGROUND=off); then slow paths do what they can. After a fork the
 * child starts its own when it has grown by as much. When the main thread ends by pthread_exit, it ends too:
 * the process must not live on for its sake.
 */
#ifndef HAK_RECLAIM_BACKGROUND_H
#define HAK_RECLAIM_BACKGROUND_H

#include "base/words.h"

/* Called at the end of a slow path: wakes the thread if it sleeps. */
void background_tick(void);

/* Called by allocating slow paths when they hold nothing and are marked as nothing: starts the thread if
 * it is time. Never from a free: the C library frees while it holds locks that starting a thread takes. */
void background_start_if_due(void);

/* In the main thread, once, before any other function here. */
void background_prepare(void);

/* From here on the thread sleeps on this word, which is 0 when it comes to it; who wakes it without a change of the
 * word wants `look` to be called. The word stays for ever, but in the child of a fork, which forgets it. False: the
 * thread runs already, and nothing is changed. */
bool background_watch(_Atomic uint32_t *word, void (*look)(void));
/* Starts the thread with the next malloc that takes a slow path, however small the program. False: there will be none. */
bool background_wish(void);
/* The thread runs, and will look. */
bool background_watches(void);

void background_after_fork(bool child);

#endif
