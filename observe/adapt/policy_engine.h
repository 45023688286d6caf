/* policy_engine.h: the policy engine of this process: learned decay times (adapt/policy_table.h).
 *
 * With the option `policy` evolving, each large object that is made or freed is an event of its call site and size, and
 * each slab an event of its block size. Frozen, the ratings stay as they are. Off, nothing is learned and no memory is
 * taken. Under the engine's lock only the metadata lock is taken. It is held for some hundred nanoseconds; longer when
 * a call site is new, for figures, and at the end; and once, at the first question, over the system calls that measure
 * a page fault.
 */
#pragma once

#include "adapt/policy_state.h"
#include "base/options.h"

static inline bool policy_is_evolving(void) { return option_value(OPTION_POLICY) == POLICY_EVOLVING; }

/* Notes that a large object is made. caller: the return address of the call of malloc. Pass the result to the next two
 * functions. */
uint64_t policy_large_taken(uintptr_t caller, size_t bytes);
void policy_large_resized(uint64_t site, size_t bytes, size_t wanted);
/* Notes that it was freed and returns the strategy for its pages (policy/keep_policy.h). is_kept: the caller can keep
 * them. If not, the engine decides only about giving back at once, and the preset about the rest. */
unsigned policy_large_freed(uint64_t site, size_t bytes, bool is_kept);

/* The same for a slab. */
void policy_small_taken(size_t block_bytes, size_t slab_bytes);
unsigned policy_small_freed(size_t block_bytes, size_t slab_bytes);

/* Call when a library is unloaded: another one may be loaded at its addresses. Takes no lock. */
void policy_forget_callers(void);

/* Times are in nanoseconds. All is 0 if there is no table. */
struct policy_totals policy_stats(void);

/* For policy_store.c. Takes the lock. Returns NULL if there is no memory for a table. Call policy_close in either
 * case. */
struct policy_state *policy_open(void);
void policy_close(void);

#ifdef HAK_DEBUG
bool policy_is_valid(void);
#endif
