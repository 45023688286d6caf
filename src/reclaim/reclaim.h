/* reclaim.h: giving memory back, whoever asks for it: a slow path that passes by, the background thread,
 * a trim, a request that found no memory, memory pressure.
 *
 * What is free goes through these stations: cached large ranges -> free extents -> the system; free units
 * -> the system; free pages inside slabs -> the system. One round works at a time; only a trim waits for
 * it.
 */
#ifndef HAK_RECLAIM_RECLAIM_H
#define HAK_RECLAIM_RECLAIM_H

#include "base/words.h"

/* Called at the end of a slow path, without a lock: does what is due. */
void reclaim_tick(void);

/* When the first of what is kept by what was learned is to go; 0: never, or there is none. Without a lock. */
uint64_t reclaim_due_ms(void);

/* Called by the owner of a heap at the end of a slow path, without a lock: purges some of the holes that are due, where no
 * background thread does. */
struct heap;
void reclaim_tick_of_heap(struct heap *heap);

/* Everything that is free and can be reached goes, but for keep_bytes. Cuts out of slabs only if
 * keep_bytes is 0. The caller has emptied its own heap. Returns the bytes given back. */
size_t reclaim_trim(size_t keep_bytes);

/* Memory is out: everything goes, address space included. */
void reclaim_all(void);

/* For the background thread. */
enum reclaim_depth {
  RECLAIM_AGED,    /* what has been free for the delay, beyond what the profile keeps */
  RECLAIM_IDLE,    /* the program does nothing: what has been free for the delay, all of it */
  RECLAIM_PRESSED, /* the system is short of memory: all that is free */
};
/* Leaves the rest for another time when may_go_on says no, which is asked every few milliseconds. Returns true if there may be
 * more to do later. */
bool reclaim_round(enum reclaim_depth depth, bool (*may_go_on)(void));

struct reclaim_counters {
  uint64_t rounds, purges, purged_bytes, purges_refused, hole_batches, trims;
};
void reclaim_counters(struct reclaim_counters *out);

#endif
