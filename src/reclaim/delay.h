/* delay.h: the purge delay (decay time) in force: how long free memory stays resident after its last use.
 *
 * The option `purge_delay_ms` is the longest, the full delay. A shorter one is in force as long as little goes back: a
 * 20th, but at least 50 ms, and 1 ms for each 2 MiB held. After each 128 MiB that went back sooner the full delay holds
 * for a second; after each 16 MiB, if the program wants them again, as it does when more went back than it ever had in
 * use. At 1.4 us a page fault, the faults that the shorter delay causes then take a few hundredths of the time, and
 * less than one in most programs (docs/decisions/0025-one-clock.md). A delay that the user sets holds exactly.
 */
#pragma once

#include "base/options.h"

static inline uint64_t delay_full_ms(void) { return (uint64_t)option_value(OPTION_PURGE_DELAY_MS); }
/* Returns the delay in force. Takes no lock. */
uint64_t delay_in_force_ms(void);
/* Returns until when that is the full one, because something went back sooner. Takes no lock. */
uint64_t delay_full_until_ms(void);

/* For the thread that does a round (reclaim/reclaim.c) with this delay: it gave so much back. is_over: the round ends;
 * else that is charged with the rest. */
void delay_charge(size_t given_back, uint64_t delay_ms, bool is_over);
