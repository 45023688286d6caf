/* arena.h: address space, reserved in long ranges and made accessible in steps as it is used up.
 *
 * Extents are carved from the front of the newest arena of their pool. All functions but the first two are
 * called with the extents' lock held (pages/extent.c), and make system calls under it.
 *   A1  next <= committed <= end, all NULL before the first arena; from next on nothing was given out
 *   A2  the mark of each unit up to committed says which pool they belong to
 */
#ifndef HAK_PAGES_ARENA_H
#define HAK_PAGES_ARENA_H

#include "base/words.h"

/* The mark of an address: 0 where no arena is accessible, else the number of the pool plus one. Set under the
 * extents' lock. */
unsigned arena_mark(const void *address);
bool address_in_arena(const void *address);
void arena_mark_set(char *base, size_t bytes, unsigned mark);

/* The newest arena of a pool, and what all of the pool's take. */
struct arena {
  char *next, *committed, *end; /* given out up to next, accessible up to committed */
  size_t reserved_bytes, committed_bytes;
  uint64_t reservations, commits; /* how often */
};

/* Reserves a new arena of at least bytes_min, whose base is a multiple of `alignment`, in place of the old one, which
 * must be retired. has_huge: asks for huge pages. False when address space is out. */
bool arena_reserve(struct arena *arena, size_t bytes_min, size_t alignment, bool has_huge);

/* Makes the arena accessible up to `until` at least, and marks it. False when the system refuses: unchanged. */
bool arena_commit(struct arena *arena, char *until, unsigned mark);

/* Gives what is not accessible back; the rest, from the result on, is the caller's: *bytes of it. */
char *arena_retire(struct arena *arena, size_t *bytes);

#endif
