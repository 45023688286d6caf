/* run.h: the memory of slabs. A run is an extent (pages/extent.h) of 2^order units, aligned to its length. So what a
 * slab leaves serves large objects, and the other way round.
 */
#pragma once

#include "policy/keep_policy.h"

#define RUN_ORDER_MAX 5u

/* Takes a run, covered by the page map; resident memory first, also what kept ranges of large objects hold. NULL when
 * memory is out. The caller must call usage_move_end for the run's bytes (budget/usage.h).
 * to_populate: if the run has no pages, they are made resident at once; those of a whole huge page, if the policy wants
 * the run on one (pages/huge.h). The rest of the huge page is a resident free extent then. */
void *run_take(unsigned order, bool to_populate);
/* Set at program start: each run that is taken reads as zero. Resident memory is overwritten: to purge it would cost a
 * page fault a page. Other memory is purged once more, because the program may have written to it through a stale
 * pointer. */
extern bool runs_are_wiped;

/* Takes a run back, after usage_move_begin. Its pages stay resident until extents_purge. keep: the strategy that
 * decides when they go (policy/keep_policy.h). */
void run_give(void *run, unsigned order, unsigned keep);
