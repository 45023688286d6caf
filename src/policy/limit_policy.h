/* limit_policy.h: how much memory may be held, and how much less free memory is kept when it gets
 * tight. Pure: numbers in, numbers out.
 *
 * "Held" is what counts against a limit: bytes the heap has from the system and not given back,
 * "live" the part of them in blocks of the program, "free" the part that a purge would give back.
 * A limit of SIZE_MAX is none. */
#ifndef HAK_POLICY_LIMIT_POLICY_H
#define HAK_POLICY_LIMIT_POLICY_H

#include "base/words.h"

/* Left of a cgroup's limit for what is charged to it and not the heap's: code, stacks, page tables,
 * socket buffers, page cache in use. A sixteenth, at least 16 MiB, at most 1 GiB, but never more than
 * half. */
size_t limit_margin(size_t group_bytes);

/* The hard limit on held bytes. option_bytes: set by the user, taken as it is, 0 if not set.
 * group_max_bytes and group_swap_bytes: what the cgroup may have in memory and in swap besides; the
 * margin is taken off their sum. The smaller one holds. */
size_t limit_hard(size_t option_bytes, size_t group_max_bytes, size_t group_swap_bytes);

/* May `bytes` more be held? Always, if they are 0 or there is no limit. */
bool limit_admits(size_t limit_bytes, size_t held_bytes, size_t bytes);

struct limit_view {
  size_t held_bytes;
  size_t live_bytes;
  size_t free_bytes;
  size_t target_bytes; /* soft: wanted bound of held - live; 0: none */
  size_t high_bytes;   /* the cgroup's memory.high or the hard limit, the smaller one */
  bool under_pressure; /* the system is short of memory */
};

/* Free bytes to keep, of the keep_bytes that the purge policy would: never more.
 *   - over the target, what is over it goes
 *   - over 7/8 of high_bytes, what is over that goes; from high_bytes on, all
 *   - under pressure, all */
size_t limit_keep(const struct limit_view *view, size_t keep_bytes);

#endif
