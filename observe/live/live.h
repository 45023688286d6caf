/* live.h: a page of figures that other processes read while this one runs (option `live`).
 *
 * The page is a memfd (inspect/shared.h). It vanishes with the process, and readers can neither write nor truncate it.
 * Without a background thread, slow paths write the snapshots, at most every 100 ms and for at most a 400th of the
 * time. The first one asks for the background thread. From then on the thread writes a snapshot when a reader wakes it.
 * Without readers nothing is written.
 *
 * The child of a fork makes a page of its own at its first slow path. A process that shares or copies the memory
 * without fork handlers (vfork, clone) has another process id and writes nothing.
 */
#ifndef HAK_LIVE_LIVE_H
#define HAK_LIVE_LIVE_H

#include "base/words.h"

/* Call after the options were read, in a slow path. */
void live_start(void);

/* Call at the end of a slow path, without a lock. */
void live_tick(void);

void live_in_child(void);

#endif
