/* superslab.h: 2 MiB of units, shared by all threads.
 *
 * Units are taken in runs of 2^order, aligned to their length. Superslabs with free units are listed
 * by the longest run they can give; a request takes from the shortest list that serves it, so empty
 * superslabs stay empty, and the search is complete and takes constant time.
 *   U1  a unit is taken, free and resident, or free and purged: purged = free & ~resident
 *   U2  a superslab with free units is in exactly the list of its longest aligned free run
 *   U3  a superslab with resident free units is in the resident list of its keep, which is ordered by the
 *       time the last unit was given to it, oldest first
 * A superslab is made of an extent (pages/extent.h). When all its units are free it becomes an extent again at once,
 * unless its pages are to go back sooner than an extent's. If a limit leaves no room for a superslab, a run is an
 * extent by itself. superslabs_are_valid checks U1 to U3.
 */
#pragma once

#include "budget/decay.h"

#define UNIT_ORDER_MAX 5u

/* Takes a run of 2^order units, covered by the page map. NULL when memory is out. It calls usage_move_begin for the
 * run's bytes, and the caller must call usage_move_end (budget/usage.h). For units_give it is the other way round.
 * to_populate: if the run was never used or was given back, its pages are made resident at once; those of a whole fresh
 * superslab, if the policy wants it on a huge page. */
void *units_take(unsigned order, bool to_populate);
/* Set at program start: each run that is taken reads as zero. Resident memory is overwritten: to purge it would cost a
 * page fault a page. Other memory is purged once more, because the program may have written to it through a stale
 * pointer. */
extern bool units_are_wiped;

/* Takes a run back. Its pages stay resident until units_purge. keep: the strategy that decides when they go
 * (policy/keep_policy.h). The strategy of the last run given back holds for the whole superslab. */
void units_give(void *run, unsigned order, unsigned keep);

/* Gives resident free units back to the system, oldest superslab first. One thread at a time (reclaim/reclaim.h). Holds
 * no lock over the system calls. Returns the bytes given back. */
size_t units_purge(struct purge purge);

extern struct decay units_decay; /* resident free units; a superslab is as old as the last gift of a unit to it */

struct unit_stats {
  size_t superslab_bytes; /* all superslabs, and runs outside them */
  size_t resident_free_bytes;
  size_t other_free_bytes; /* free units that are not resident */
};
void units_stats(struct unit_stats *out);

#ifdef HAK_DEBUG
bool superslabs_are_valid(void);
#endif
