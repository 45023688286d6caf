/* learned.h: how long what is freed stays resident, as the policy engine learns it (adapt/site_policy.h).
 *
 * With the option `policy` evolving, every large object that is made or freed is an event of its call site and size,
 * every slab one of its blocks' size; frozen, the ratings stay as they are; off, nothing is learned and no memory is
 * taken. The lock is a leaf but for that of the metadata, and held for some hundred nanoseconds; longer when a site is
 * seen for the first time, for figures and at the end; once, when the engine is first asked, over the system calls that
 * find out what a page fault costs here.
 */
#ifndef HAK_ADAPT_LEARNED_H
#define HAK_ADAPT_LEARNED_H

#include "adapt/view.h"
#include "base/options.h"
#include "policy/keep_policy.h"

/* Is there something to tell or ask? */
static inline bool learned_acts(void) { return option_value(OPTION_POLICY) != POLICY_OFF; }

/* A large object of so many bytes is made; caller: the address malloc was called from. The result is to be given to the
 * next two. */
uint64_t learned_large_taken(uintptr_t caller, size_t bytes);
void learned_large_resized(uint64_t site, size_t bytes, size_t wanted);
/* Who decides how long its pages stay (policy/keep_policy.h). is_kept: they can stay as they are; else only what goes
 * at once is not the profile's. */
unsigned learned_large_freed(uint64_t site, size_t bytes, bool is_kept);

/* The same for a slab of so many bytes. */
void learned_small_taken(size_t block_bytes, size_t slab_bytes);
unsigned learned_small_freed(size_t block_bytes, size_t slab_bytes);

/* Another library may come to lie where one was unloaded. Takes no lock. */
void learned_forget_callers(void);

struct learned_stats {
  size_t arms;
  struct site_totals totals; /* nanoseconds */
};
void learned_stats(struct learned_stats *out);

/* For learned_file.c. Takes the lock; NULL if there is no memory for a table. learned_close follows in either case. */
struct learned_view *learned_open(void);
void learned_close(void);

#ifdef HAK_DEBUG
bool learned_is_valid(void);
#endif

#endif
