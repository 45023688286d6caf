/* arenas.h: jemalloc's explicit arenas, each of which is a hak_heap. Arena 0 is the ordinary heap. */
#pragma once

#include "base/words.h"
#include "hakmem/hakmem.h"

#define ARENAS_MAX 4095u /* as many as MALLOCX_ARENA can name */

/* Returns the number of a new arena, 0 if there is none to be had. */
unsigned arena_make(void);
/* Number of arenas: one more than the highest number that was ever given. */
unsigned arena_count(void);
/* Returns an arena's heap; NULL for arena 0 and for one that does not exist. */
hak_heap *arena_heap(unsigned arena);
bool arena_exists(unsigned arena);
/* Frees all blocks of the arena; `stays`: it may be used again. Returns 0 or EFAULT: there is none, or a thread's
 * malloc takes from it. */
int arena_end(unsigned arena, bool stays);

/* The arena that the calling thread's malloc takes from. arena_enter returns 0 or an error. */
unsigned arena_of_thread(void);
int arena_enter(unsigned arena);
