/* usage.h: what is held of the system's memory, and how much of that may stay when it is free.
 *
 *   taken  slabs and live large objects
 *   free   resident and not taken: free units, free extents, cached large ranges
 *   held   taken + free: what a limit bounds
 * Lock-free; every figure is right after each change, though not all of them at one moment.
 */
#ifndef HAK_MAP_USAGE_H
#define HAK_MAP_USAGE_H

#include "base/words.h"

/* More or less is taken. usage_take also moves the peak and the demand that purging goes by. */
void usage_take(size_t bytes);
void usage_give(size_t bytes);

/* The free bytes change by so much. */
void usage_free_add(size_t bytes);
void usage_free_subtract(size_t bytes);

size_t usage_taken(void);
size_t usage_taken_peak(void);
size_t usage_free(void);
static inline size_t usage_held(void) { return usage_taken() + usage_free(); }

/* May so many bytes more be held? Free memory that is used again needs no leave. */
bool usage_fits(size_t bytes);
/* The hard limit in force, SIZE_MAX for none. of_resident: what counts against it is what the process has
 * resident, which is asked for only when what is held does not fit. */
void usage_limit_set(size_t bytes, bool of_resident);
size_t usage_limit(void);

/* Free bytes that may stay: however old, and until the purge delay is over (policy/purge_policy.h);
 * never more than the cap, which limits and memory pressure lower. */
size_t usage_keep(void);
size_t usage_keep_for_now(void);
void usage_keep_cap(size_t bytes);
bool usage_is_capped(void);

/* In the child of a fork, where another thread may have been noting demand. */
void usage_reset_after_fork(void);

/* Gives pages back as the option `purge` says; counted. True if they read as zero then. */
bool pages_purge(void *address, size_t size);
uint64_t pages_purges(void);
uint64_t pages_purged_bytes(void);

#endif
