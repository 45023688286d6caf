/* guard.h: guarded blocks (the option `guard`): some allocations get a slot of guard/slots.h, so that an access beyond
 * the block or after its free ends the program, with a report.
 *
 * count/tally.h selects them. With an interval of WINDOWS_FROM bytes or more, heaps are split for a tenth of the time
 * only, in windows in which a tenth of the interval holds: so a byte is as likely to be drawn, and counting costs a
 * tenth. The background thread is the clock. Without it, and while it sleeps, heaps are split all the time.
 */
#pragma once

#include "heap/heap.h"

/* Starts what the option asks for, at program start. */
void guard_begin(void);

/* Call at the end of a slow path, without a lock. */
extern _Atomic uint64_t guard_interval; /* as asked for; 0: off */
COLD void guard_look_after_clock(void);
static inline void guard_tick(void) {
  if (UNLIKELY(load_relaxed(&guard_interval) != 0))
    guard_look_after_clock();
}
void guard_in_child(void);

/* For the core's table (base/observers.h says when they are called). guard_small_sample selects for the heap profile,
 * too. */
void *guard_small_sample(struct heap *heap, unsigned cls, size_t size, uintptr_t site, bool *is_held);
void *guard_checked_sample(size_t size, size_t alignment, uintptr_t site);
void guard_free(void *block, bool is_inside);
size_t guard_size(const void *block);
uint64_t guard_clock_ms(void);
void guard_clock(bool is_resting);
