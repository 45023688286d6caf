/* usage.h: what is held of the system's memory, and how much of that may stay when it is free.
 *
 *   taken  slabs and live large objects
 *   free   resident and not taken: free units, free extents, cached large ranges
 *   held   taken + free: what a limit bounds
 * Lock-free; every figure is right after each change, though not all of them at one moment.
 */
#ifndef HAK_BUDGET_USAGE_H
#define HAK_BUDGET_USAGE_H

#include "base/words.h"

/* More or less is taken. usage_take also moves the peak. */
enum usage { USAGE_SLABS, USAGE_LARGE };
void usage_take(enum usage usage, size_t bytes);
void usage_give(enum usage usage, size_t bytes);

/* The free bytes change by so much. What leaves one place for another is in transit from the first call
 * on, until usage_settle says that it is counted where it arrived: a limit never misses it. */
void usage_free_add(size_t bytes);
void usage_free_subtract(size_t bytes);
void usage_free_transit(size_t bytes);

/* Of the free bytes, those whose stay was decided by what was learned (policy/keep_policy.h): more or less of them. */
void usage_learned_add(size_t change);

/* Bytes leave one place that counts them for another: begun before the one stops counting them, ended after the other
 * counts them. So between two looks, what was begun before the second and had not ended at the first bounds what a sum
 * over all places counts twice or not at all. */
void usage_move_begin(size_t bytes);
void usage_move_end(size_t bytes);
size_t usage_moves_begun(void);
size_t usage_moves_ended(void);

/* All bytes ever freed, as far as memory can go back then: large objects, and blocks put back into slabs, which are told
 * now and then. */
void usage_freed_add(size_t bytes);
size_t usage_freed(void);

size_t usage_taken(void);
size_t usage_taken_large(void);
size_t usage_taken_peak(void);
size_t usage_free(void);
size_t usage_learned(void);
static inline size_t usage_held(void) { return usage_taken() + usage_free(); }

/* May so many bytes more be held? If so they are promised to the caller, who says when they are taken, or
 * will not be: then others may have what is left. Never waits for a lock. Free memory that is used again
 * needs no leave. Where the cgroup leaves less than the option `limit_mb`, what counts is what the process
 * has resident, where what is held does not fit. Files are not read here, as callers hold locks: */
bool usage_reserve(size_t bytes);
/* To be called without a lock when something was refused: reads what usage_reserve would have to know, if anything, and
 * returns true if trying again makes sense. The cgroup is read when the heap is about to get big, once:
 * small programs are spared the system calls. What is resident is known for a few milliseconds. */
bool usage_look(void);
/* The cgroup is read now, if it was not: nothing will be able to later. */
void usage_look_ahead(void);
/* So much of what was promised, or in transit, is counted elsewhere or will not be. */
void usage_settle(size_t bytes);
/* The hard limit in force, and the bytes from which on free memory should go; SIZE_MAX for none. */
size_t usage_limit(void);
size_t usage_high(void);
/* The options that limits come from have changed. */
void usage_limits_apply(void);

/* Is memory short, so that it is better used up than kept in the shapes that are fastest? It is where the system's limits
 * (os_memory_limit) are low or a good part of them is held, and for a while after it ran out. */
bool usage_is_short(void);
/* And so short that speed comes second: half of the limit is held, or it ran out. */
bool usage_is_tight(void);
void usage_note_refusal(void);

/* Free bytes that may stay however old (policy/purge_policy.h); never more than the cap. */
size_t usage_keep(void);
/* And where their stay was decided by what was learned: that many, or as many as do not make the program larger than it was
 * when it had most in use. */
size_t usage_keep_learned(void);
/* The cap: free bytes that may be there at all, however young. SIZE_MAX, unless a limit, a target or memory pressure lowers
 * it. */
size_t usage_keep_max(void);
void usage_keep_cap(size_t bytes);

/* In the child of a fork. */
void usage_in_child(void);

/* Gives pages back as the option `purge` says; counted. */
enum purge_result {
  PURGE_REFUSED,     /* by the option, or by the system (locked pages): as before */
  PURGE_GONE,        /* they read as zero */
  PURGE_GONE_LAZILY, /* they may show their old content */
};
enum purge_result pages_purge(void *address, size_t size);
uint64_t pages_purges(void);
uint64_t pages_purged_bytes(void);
uint64_t pages_purges_refused(void);

#endif
