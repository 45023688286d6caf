/* spare.h: spare memory, for calls that must not wait: those of a signal handler that interrupted a slow path, and
 * those that come during a fork (heap/slow_path.h, W3).
 *
 * Small blocks are cut from chunks of one unit, in order, by one compare-and-swap. A chunk serves one size class. When
 * no block is left, another one takes its place, and when its blocks are freed it waits to be used again. It is never
 * given back, so it can be read at any time.
 * Longer blocks are mappings, and otherwise ordinary large objects. No function takes a lock, so they may be called
 * anywhere, by any thread, in the child of any fork.
 *   K1  a chunk's entry is spare_entry(class); its state, its link and a bit for each freed block lie in the unit's
 *       bitmap
 *   K2  state is (blocks given out, retired, blocks freed); the last is at most the first. A retired chunk of which
 *       both are equal goes to the stack of unused ones: the free, or the retirement, that made it so puts it there
 */
#pragma once

#include "pages/page_map.h"

/* Returns at least `size` bytes at a multiple of `alignment`, a power of two. cls: the size class, 0 for a large
 * object. A small block has the usable bytes of its class. NULL when memory is out. */
void *spare_take(size_t size, size_t alignment, unsigned cls);

static inline bool entry_is_spare(uint32_t entry) {
  return entry_pool_id(entry) == 0 && (entry & ENTRY_MARKS) == ENTRY_SPARE;
}

/* Frees a spare block. entry: its page-map entry. Ends the program on a double free, or if it is no block. */
void spare_give(void *block, uint32_t entry);
