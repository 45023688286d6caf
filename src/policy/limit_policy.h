/* limit_policy.h: how much memory may be held, and how much free memory is kept near a limit. Pure: numbers in, numbers
 * out.
 *
 * "Held" counts against a limit: bytes that the heap has from the system and has not given back. "Live" is the part in
 * the program's blocks, "free" the part that a purge would give back. A limit of SIZE_MAX means none. */
#pragma once

#include "base/words.h"

/* Returns the part of a cgroup's limit that is left for other charges: code, stacks, page tables, socket buffers, page
 * cache in use. It is a sixteenth, at least 16 MiB, at most 1 GiB, and never more than half. */
size_t limit_margin(size_t group_bytes);

/* Returns the hard limit on held bytes, the smaller of two. option_bytes: set by the user, used as it is, 0 if not set.
 * group_max_bytes and group_swap_bytes: the cgroup's limits of memory and swap; the margin is taken off their sum. */
size_t limit_hard(size_t option_bytes, size_t group_max_bytes, size_t group_swap_bytes);

/* Tells whether `bytes` more may be held. Always true if they are 0 or there is no limit. */
bool limit_admits(size_t limit_bytes, size_t held_bytes, size_t bytes);

struct limit_view {
  size_t held_bytes;
  size_t charged_bytes; /* what counts against high_bytes: held, or where the system counts resident bytes, these */
  size_t live_bytes;
  size_t free_bytes;
  size_t target_bytes; /* soft bound on held - live; 0: none */
  size_t high_bytes;   /* the cgroup's memory.high or the hard limit, the smaller one */
};

/* Returns how many free bytes may be kept; SIZE_MAX: any number.
 *   - Over the target, the excess goes.
 *   - If more is held than 7/8 of high_bytes, the excess goes. But half of what high_bytes leaves beside what is held
 *     and not free may stay, or an eighth of what it leaves beside what is charged: else a program with live memory
 *     beyond 7/8, or with much that it never touches, would fault in again each page that it frees.
 *   - If high_bytes are charged, all goes. */
size_t limit_keep(const struct limit_view *view);
