/* live.h: a page of figures that other processes read while this one runs (option `live`).
 *
 * The page is a memfd (os/shared.h): nothing of it outlives the process, and readers can neither write it nor truncate
 * it. A snapshot is written by slow paths, at most every 100 ms and at most a 400th of the time, as long as there is no
 * background thread; the first one after the start asks for that thread. From then on the thread writes, when a reader
 * wakes it; a process that nobody looks at does nothing.
 * A fork's child makes a page of its own at its first slow path. What shares or copies the memory without fork's
 * handlers (vfork, clone) has another process id and writes nothing.
 */
#ifndef HAK_LIVE_LIVE_H
#define HAK_LIVE_LIVE_H

#include "base/words.h"

/* When the options are read; the caller is in a slow path. */
void live_start(void);

/* At the end of a slow path, without a lock. */
void live_tick(void);

void live_in_child(void);

#endif
