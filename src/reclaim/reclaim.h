/* reclaim.h: gives memory back to the system. Slow paths, the background thread, trims, requests that found no memory,
 * and memory pressure ask for it.
 *
 * Free memory goes through these stations: stashed large ranges -> cached ones -> free extents -> the system; free
 * pages inside slabs (holes), of packed blocks and of metadata -> the system. One round works at a time. Only a trim,
 * and a request that found no memory, wait for it, ten seconds at most. The rules stand at the top of reclaim.c. Call
 * these functions in a slow path, without a lock; but reclaim_round begins a slow path of its own.
 */
#pragma once

#include "base/options.h"

/* False: free memory stays. It may be switched at any time. */
static inline bool reclaim_is_on(void) { return option_value(OPTION_PURGE) != PURGE_OFF; }
/* may_go_on: NULL, or the background thread's question whether it should end the round. */
static inline bool reclaim_goes_on(bool (*may_go_on)(void)) { return may_go_on == NULL || may_go_on(); }

/* Call at the end of a slow path: does a part of what is due, or leaves it to the background thread. */
void reclaim_tick(void);

/* Returns when the first memory with a learned decay time is to go back; 0: never, or there is none. Takes no lock. */
uint64_t reclaim_due_ms(void);

/* Called by the owner of a heap at the end of a slow path: moves some of what is due out of the stashes, and purges
 * some of the holes of its pool that are due, where no background thread does. */
struct heap;
struct pool;
void reclaim_tick_of_heap(const struct heap *heap);

/* Gives back all reachable free memory but keep_bytes. Purges holes in slabs only if keep_bytes is 0. The caller has
 * emptied its own heap. Returns the bytes given back. */
size_t reclaim_trim(size_t keep_bytes);

/* Call when memory is out: gives back all free memory, and free address space too. */
void reclaim_all(void);
/* Gives back the holes in one pool's slabs. Returns their bytes. */
size_t reclaim_pool(struct pool *pool);

/* For the background thread. */
enum reclaim_depth {
  RECLAIM_AGED,    /* what was free for the purge delay, beyond what the preset keeps */
  RECLAIM_IDLE,    /* the program is idle: all that was free for the purge delay */
  RECLAIM_PRESSED, /* the system is short of memory: all that is free */
};
/* Does a round. may_go_on, if not NULL, is called every few milliseconds and ends the round by returning false. Returns
 * true if there may be more to do later. */
bool reclaim_round(enum reclaim_depth depth, bool (*may_go_on)(void));
