/* packed.h: blocks laid side by side without size classes, for when memory is short.
 *
 * A chunk is a large object of at most 4 MiB, cut in granules of 256 bytes. A block takes as many as it needs, in the
 * shortest run that is long enough: so nothing is lost by rounding, nor in slabs that a few blocks keep open. The price
 * is a lock, and a look at a chunk's bitmaps, for each call.
 *   P1  the entry of each unit of a chunk is ENTRY_PACKED, the first word of its bitmap points to the chunk's record
 *   P2  used has a bit for each granule that is taken, ends for the last one of each block; ends is a subset of used
 *   P3  a chunk is in the list of its longest free run; an empty one ends
 * packed_is_valid checks P2 and P3. Thread-safe; the lock comes before all others of large objects.
 */
#ifndef HAK_LARGE_PACKED_H
#define HAK_LARGE_PACKED_H

#include "base/words.h"

#define PACKED_BYTES_MAX HAK_SMALL_MAX

/* size in 1..PACKED_BYTES_MAX, alignment a power of two up to as much. NULL when memory is out. */
void *packed_take(size_t size, size_t alignment);

/* The block's entry was ENTRY_PACKED. What is no block, or free, ends the program. */
void packed_give(void *block);

/* Shortens or lengthens a block where it lies. False: unchanged. */
bool packed_resize(void *block, size_t size);

/* Usable bytes. Takes no lock: a block's end does not change while it lives. */
size_t packed_bytes(const void *block);

/* Gives back the pages that are wholly free. Returns their bytes. */
size_t packed_purge(void);

#ifdef HAK_DEBUG
bool packed_is_valid(void);
#endif

#endif
