/* arena.h: address space, reserved in long ranges and made accessible in steps as it is used.
 *
 * Extents are carved from the front of the newest arena of their bank. All functions but the first two are
 * called with the extents' lock held (pages/extent.c), and make system calls under it.
 *   A1  next <= committed <= end, all NULL before the first arena; from next on nothing was given out
 *   A2  the mark of each unit up to committed tells its bank
 */
#pragma once

#include "base/words.h"

/* Returns the mark of an address: 0 where no arena is accessible, else the number of the bank plus one. Marks are set
 * under the extents' lock. */
unsigned arena_mark(const void *address);
bool address_in_arena(const void *address);
void arena_mark_set(char *base, size_t bytes, unsigned mark);
/* Returns on how many sides of a range, 0 to 2, memory with this mark begins. */
size_t arena_neighbours(const char *base, size_t bytes, unsigned mark);

/* The newest arena of a bank, and sums over all arenas of the bank. */
struct arena {
  char *next, *committed, *end; /* given out up to next, accessible up to committed */
  size_t reserved_bytes, committed_bytes;
};

/* Reserves a new arena of at least bytes_min, at a multiple of `alignment`. The former arena must be retired before.
 * has_huge: asks for huge pages. False when address space is out. */
bool arena_reserve(struct arena *arena, size_t bytes_min, size_t alignment, bool has_huge);

/* Makes the arena accessible up to `until`, and marks it; has_ahead: maybe further. False when the system refuses; then
 * nothing changed. */
bool arena_commit(struct arena *arena, char *until, unsigned mark, bool has_ahead);

/* Unmaps the inaccessible rest of the arena. Returns the unused accessible part, *bytes long, which the caller takes
 * over. */
char *arena_retire(struct arena *arena, size_t *bytes);
