/* inherited.h: the child of a fork leaves its parent's slabs alone.
 *
 * When the child writes to a block that it shares with its parent, the kernel copies a page. So a child that works with
 * a large heap attaches its thread to a fresh pool (docs/decisions/0040). What it frees of the inherited pools goes
 * back in envelopes, and is not written to: they are of another kind.
 *   I1  from the fork on, threads attach to pools that are not inherited
 *   I2  the inherited pools serve the process again when an eighth of what they had given out at the fork is free, or
 *       when memory is short. So the free memory that no thread uses is bounded
 *   I3  of a chain of forks only the first four generations have pools of their own: each may leave such memory
 * The thread moves after some slow calls, so a child that soon calls exec does not pay for it.
 */
#pragma once

#include "heap/heap.h"

/* Call in the child of a fork, with the calling thread's home, or NULL. */
void inherited_in_child(struct heap *home);
/* Call in a slow path, before a lock is taken, if inherited_calls of the calling thread's heap is not 0. The heap may
 * have another pool then. */
void inherited_step(struct heap *heap);
/* Lets the inherited pools serve the process again. As above. */
void inherited_return(struct heap *heap);
