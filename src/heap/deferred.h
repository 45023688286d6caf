/* deferred.h: frees that are put off, because they came where nothing may be waited for (heap/slow_path.h, W3).
 *
 * One list for the process: pushed by compare-and-swap, taken whole, so no push meets a block that was taken. The link
 * lies in the block, or, for a large object, in its record: this is the only place where a freed block is written to. */
#ifndef HAK_HEAP_DEFERRED_H
#define HAK_HEAP_DEFERRED_H

#include "pages/page_map.h"

/* A live block of a slab or a live large object. entry: the block's. */
void deferred_push(void *block, uint32_t entry);

extern _Atomic(void *) deferred_first;
static inline bool deferred_waits(void) { return atomic_load_explicit(&deferred_first, memory_order_relaxed) != NULL; }

/* Takes them all; deferred_next gives what follows a block, before that is freed. NULL behind the last. */
void *deferred_take(void);
void *deferred_next(void *block, uint32_t entry);

#endif
