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
#pragma once

#include "base/words.h"

/* Call after the options were read. */
void live_begin(void);

/* Call at the end of a slow path, without a lock. */
enum live_state { LIVE_NONE, LIVE_KEPT, LIVE_FORKED }; /* FORKED: this child has no page yet */
extern _Atomic uint32_t live_keeping;
COLD void live_refresh_in_slow_path(void);
static inline void live_tick(void) {
  if (UNLIKELY(atomic_load_explicit(&live_keeping, memory_order_acquire) != LIVE_NONE))
    live_refresh_in_slow_path();
}

void live_in_child(void);
