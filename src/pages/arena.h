/* arena.h: address space, reserved in long ranges and made accessible in steps as it is used.
 *
 * Extents are carved from the front of the newest arena of their bank. All functions but the first two, and those about
 * fresh rows and forks, are called with the extents' lock held (pages/extent.c), and make system calls under it.
 *   A1  next <= committed <= end, all NULL before the first arena; from next on nothing was given out
 *   A2  the mark of each unit up to committed tells its bank
 */
#pragma once

#include "base/words.h"

struct map_row;

/* Returns the mark of an address: 0 where no arena is accessible, else the number of the bank plus one. Marks are set
 * under the extents' lock. */
unsigned arena_mark(const void *address);
bool address_in_arena(const void *address);
void arena_mark_set(char *base, size_t bytes, unsigned mark);
/* Returns on how many sides of a range, 0 to 2, memory with this mark begins. */
size_t arena_neighbours(const char *base, size_t bytes, unsigned mark);

/* A row is fresh if nothing of it was resident at the last fork: no other process shares its pages. */
bool arena_row_is_fresh(const struct map_row *row);
/* Call before a fork: no row is fresh any more. */
void arena_before_fork(void);
/* Call in the child of a fork. */
void arena_in_child(void);
/* Returns a number that changes with each fork. */
uint32_t arena_forks(void);
/* Tells whether those that shared pages of this process have ended, for all that it can ask: it has no children, and is
 * no child of the process that forked it. Not asked are children whose parent has ended. Makes system calls. */
bool arena_is_alone(void);
/* Makes a row fresh; NULL does nothing. Any thread. */
void arena_row_refresh(struct map_row *row);
/* Call when memory from `base` to `end` is taken out of memory that is not resident and reaches to free_end. The rows
 * that begin before `end`, and lie in that memory as a whole, become fresh. */
void arena_rows_refresh(const char *base, const char *end, const char *free_end);

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
