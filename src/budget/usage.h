/* usage.h: how much memory is held, and how much of it may stay when it is free.
 *
 *   taken  slabs and live large objects
 *   free   resident and not taken: free extents, cached large ranges
 *   held   taken + free
 *   tables pieces of metadata, which grow with the heap where blocks are checked
 * A limit bounds held + tables.
 * It is lock-free. Each figure is right after each change, but the figures of one moment may not fit together.
 */
#pragma once

#include "base/words.h"

/* Count all bytes freed so far that may go back to the system: large objects, blocks returned to slabs, in steps,
 * and the room that frees make in bins. */
void usage_freed_add(size_t bytes);
size_t usage_freed(void);

/* Where bytes are counted. */
enum usage {
  USAGE_NOWHERE,  /* with the system */
  USAGE_PROMISED, /* by usage_reserve, or on their way from one place to another: they count against the limit */
  USAGE_TABLES,   /* pieces of metadata: they count against the limit, but are not held */
  USAGE_FREE,
  USAGE_SLABS, /* from here on: taken */
  USAGE_LARGE, /* readers take off what the BigCache holds (big_cache_decay), and add it to the free bytes */
  USAGE_PLACES
};
/* Counts bytes in another place. `to` rises first, so that the held bytes are never too low. Release: a reader who sees
 * a figure changed sees the move begun. */
extern _Atomic size_t usage_at[USAGE_PLACES];
void usage_note_peak(void);
static inline void usage_move(enum usage from, enum usage to, size_t bytes) {
  if (from == to)
    return;
  if (to != USAGE_NOWHERE)
    atomic_fetch_add_explicit(&usage_at[to], bytes, memory_order_release);
  if (to >= USAGE_SLABS)
    usage_note_peak();
  if (from == USAGE_LARGE)
    usage_freed_add(bytes);
  if (from != USAGE_NOWHERE)
    atomic_fetch_sub_explicit(&usage_at[from], bytes, memory_order_release);
}

/* Bracket each transfer of bytes from one owner's counter to another's with begin and end. Begin before the first
 * counter falls; end after the second one has risen. A reader takes the open transfers as the error bound of its sum:
 * the bytes begun before its end less those ended before its begin. */
void usage_move_begin(size_t bytes);
void usage_move_end(size_t bytes);
size_t usage_moves_begun(void);
size_t usage_moves_ended(void);

size_t usage_taken(void);
size_t usage_taken_large(void);
size_t usage_taken_peak(void);
size_t usage_free(void);
size_t usage_learned(void); /* the part of the free bytes that the policy engine decides about */
size_t usage_held(void);
static inline size_t usage_tables(void) { return load_relaxed(&usage_at[USAGE_TABLES]); }
static inline size_t usage_slabs(void) { return load_relaxed(&usage_at[USAGE_SLABS]); }

/* Tells whether `bytes` more may be held. If so they are promised to the caller, who must move them on from
 * USAGE_PROMISED, to nowhere if they will not be used. Free memory that is used again needs no promise. If the
 * cgroup's limit is below the option `limit_mb` and the held bytes do not fit, the process's resident bytes decide.
 * It never waits for a lock, and reads no files, because callers hold locks. */
bool usage_reserve(size_t bytes);
/* Call without a lock after a refusal: reads what usage_reserve needs and returns true if another try makes sense. It
 * reads the cgroup once, when the heap is about to get big, so small programs make no such system calls; or before a
 * filter comes that will forbid it. A reading of the resident bytes is valid for a few milliseconds. */
bool usage_look(void);
/* Tells whether the cgroup was not read yet, so that a refusal may only mean that usage_look is to be called. */
bool usage_is_unread(void);
/* Return the hard limit in force, and the held bytes from which on free memory should go back; SIZE_MAX for none. */
size_t usage_limit(void);
size_t usage_high(void);
/* Returns what a group's limit counts by now, at most; SIZE_MAX: the limit counts what is held, or that cannot be read.
 * Reads a file: call without a lock but the round's. */
size_t usage_charged(void);
/* Call when the options that limits come from have changed. */
void usage_limits_apply(void);

/* Tells whether memory is short. Then it is used economically rather than fast. Memory is short if the system's limits
 * (os_memory_limit) are low, if a good part of them is held and little is left, and for some time after it ran out:
 * after a refused request that such a limit would have refused. */
bool usage_is_short(void);
/* Tells whether speed comes second: a third of the limit is held and little is left, or memory ran out. */
bool usage_is_tight(void);
/* Tells whether a sixteenth of the limit is held and little is left, or memory ran out. */
bool usage_is_filling(void);
/* The same of the hard limit in force. */
bool usage_fills_limit(void);
/* Tells whether half of the program's own limit (the option `limit_mb`) is taken, and little is left. */
bool usage_own_limit_is_near(void);
/* Returns what the system's limit leaves beside the taken bytes. */
size_t usage_left(void);
/* Call when memory was out for a request of so many bytes, at most PTRDIFF_MAX. */
void usage_note_refusal(size_t bytes);

/* Free bytes that may stay however old while the program works: the option `keep_mb`, and an eighth of what is taken;
 * never more than the cap. */
size_t usage_keep(void);
/* Returns the free bytes that may stay if the policy engine decides about some: as many, or as many as do not make the
 * program larger than its peak. */
size_t usage_keep_learned(void);
/* The cap: free bytes that may be there at all, however young. SIZE_MAX, unless a limit or a target lowers it. */
size_t usage_keep_max(void);
void usage_keep_cap(size_t bytes);

/* In the child of a fork. */
void usage_in_child(void);

/* Gives pages back to the system in the way of the option `purge`, and counts it. */
enum purge_result {
  PURGE_REFUSED,     /* by the option, or by the system (locked pages): nothing changed */
  PURGE_GONE,        /* they read as zero */
  PURGE_GONE_LAZILY, /* they may show their old content */
};
enum purge_result pages_purge(void *address, size_t size);
/* The same for the pages that lie wholly in a range. Returns their bytes; 0 if there is none or it was refused. */
size_t pages_purge_inside(const void *begin, const void *end);
/* Unmaps. False: too many mappings; nothing changed. */
bool pages_unmap(void *address, size_t size);
