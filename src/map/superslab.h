/* superslab.h: 2 MiB of units, shared by all threads.
 *
 * Units are taken in runs of 2^order, aligned to their length. Superslabs with free units are listed
 * by the longest run they can give; a request takes from the shortest list that serves it, so empty
 * superslabs stay empty, and the search is complete and takes constant time.
 *   U1  a unit is taken, free and resident, or free and purged: purged = free & ~resident
 *   U2  a superslab with free units is in exactly the list of its longest aligned free run
 *   U3  a superslab with resident free units is in the resident list, which is ordered by the time
 *       the last unit was given to it, oldest first
 * superslabs_are_valid checks U1 to U3. The lock is held over system calls only where a superslab is
 * made: reserving, committing, mapping its leaf. A second lock, only ever tried, is held by the one
 * thread that purges.
 */
#ifndef HAK_MAP_SUPERSLAB_H
#define HAK_MAP_SUPERSLAB_H

#include "base/words.h"

#define UNIT_ORDER_MAX 5u

/* A run of 2^order units covered by the page map, NULL when memory is out. */
void *units_take(unsigned order);

/* Takes a run back. Its pages stay resident until units_purge. */
void units_give(void *run, unsigned order);

/* Gives resident free units back to the system, oldest superslabs first, until at most keep_bytes
 * are left or the rest was in use less than age_ms ago. Holds no lock over the system calls.
 * Returns the bytes given back. */
size_t units_purge(size_t keep_bytes, uint64_t age_ms);

/* More is resident than the profile keeps, for longer than its delay: the caller should call
 * units_purge_due, outside its locks. */
bool units_purge_is_due(void);
void units_purge_due(void);

/* Returns the address space of empty superslabs: for a system that is out of it. True if any went. */
bool units_release_empty(void);

/* Is this address inside a superslab? */
bool address_in_superslab(const void *address);

struct unit_stats {
  size_t reserved_bytes;  /* address space of all arenas */
  size_t committed_bytes; /* superslabs carved, taken or free */
  size_t taken_bytes;
  size_t resident_free_bytes;
};
void units_stats(struct unit_stats *out);

void units_lock_for_fork(void);
void units_unlock_after_fork(bool child);

#ifdef HAK_DEBUG
bool superslabs_are_valid(void);
#endif

#endif
