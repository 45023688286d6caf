/* spare.h: blocks for calls that may wait for nothing: those of a signal handler that interrupted a slow path, and those
 * that come while a fork is under way (heap/slow_path.h, W3).
 *
 * Small blocks are cut from chunks of one unit, in order, by one compare-and-swap. A chunk serves one size class, and
 * starts again when all its blocks were given out and freed; it is never given back, so a look at it is safe at any
 * time. Longer blocks are mappings of their own, and large objects in all else. No function takes a lock: they may be
 * called anywhere, by any thread, in the child of any fork.
 *   K1  a chunk's entry is spare_entry(class); its state, its link and a bit for each freed block lie in the unit's bitmap
 *   K2  state is (blocks given out, blocks freed), and the second is at most the first
 */
#ifndef HAK_HEAP_SPARE_H
#define HAK_HEAP_SPARE_H

#include "pages/page_map.h"

/* At least `size` bytes at a multiple of `alignment`, a power of two. cls: the size's class, 0: a large object. NULL when
 * memory is out. Usable bytes of a small one are those of its class. */
void *spare_take(size_t size, size_t alignment, unsigned cls);

static inline bool entry_is_spare(uint32_t entry) {
  return entry_heap_id(entry) == 0 && (entry & ENTRY_MARKS) == ENTRY_SPARE;
}

/* entry: the block's. Ends the program if the block is free, or none. */
void spare_give(void *block, uint32_t entry);

#endif
