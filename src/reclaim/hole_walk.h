/* hole_walk.h: gives back the holes of a pool, the free pages inside its slabs in use. It works in batches: a batch's
 * slabs are out of their lists while the system takes their pages, so no thread allocates there, and the pool's lock is
 * not held. The caller of all of these is in a slow path and holds the lock of the reclaim round. */
#pragma once

#include "slab/slab.h"

struct pool;

/* Says which holes the next calls give back: all, or those of slabs that were left alone for delay_ms. */
void hole_walk_begin(enum hole_search search, uint64_t delay_ms);

/* Gives back the holes of a pool, in as many batches as it takes. may_go_on, if not NULL, is asked between two. Returns
 * their bytes. */
size_t hole_walk_pool(struct pool *pool, bool (*may_go_on)(void));

/* Gives back one batch, after the caller or the pool began the walk (slab_set_holes_begin), and adds its bytes to
 * *given_back. False: the walk is at its end, or cannot go on. */
bool hole_walk_step(struct pool *pool, size_t *given_back);
