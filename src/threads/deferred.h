/* deferred.h: frees that were refused a slow path (heap/slow_path.h, W3) and are done by a later one.
 *
 * The process has one list. A push is a compare-and-swap, and a take empties the list, so a push never meets a block
 * that was taken (no ABA). The link lies in the block (also in a packed one) or, for a large object, in its record.
 * Nowhere else does hakmem write to a freed block. */
#pragma once

#include "pages/page_map.h"

/* Pushes a block of a slab, a packed block or a large object. entry: the block's page-map entry. */
void deferred_push(void *block, uint32_t entry);

extern HAK_HIDDEN _Atomic(void *) deferred_first;
static inline bool deferred_waits(void) { return load_relaxed(&deferred_first) != NULL; }

/* Takes the whole list. deferred_next returns the block that follows; call it before the block is freed. NULL after the
 * last. */
void *deferred_take(void);
void *deferred_next(void *block, uint32_t entry);
