/* packed.h: blocks side by side without size classes, for use when memory is short.
 *
 * A chunk is a large object of at most 4 MiB, cut into granules of 256 bytes. A block takes as many as it needs, in
 * about the shortest free run that is long enough. So no memory is lost by rounding to size classes, or in slabs with
 * few blocks. Each call takes a lock, and malloc searches the summary of a chunk (`starting`), so a packed block costs
 * more time than one of a slab.
 *   P1  the entry of each unit of a chunk is ENTRY_PACKED; the first word of the unit's bitmap points to the chunk's
 *       record
 *   P2  used has a bit for each taken granule, ends for the last granule of each block; ends is a subset of used;
 *       starting has the longest free run that starts in each word of used
 *   P3  a chunk is in the list of its longest free run; an empty chunk ends; a chunk that changed since its purge is
 *       in the list of unpurged ones, too
 *   P4  if blocks are sealed (packed_seal_begin), free granules read as zero, unless the program wrote through a stale
 *       pointer; a word stands behind each request (large/guarded.h), and the block's end says where that is
 * packed_is_valid checks P2 and P3. All functions are thread-safe. The lock comes before all others of large objects.
 */
#pragma once

#include "base/words.h"

#define PACKED_BYTES_MAX ((size_t)1 << 20)

/* Call once, at program start: blocks are sealed, and read as zero, unless one was packed before. A changed word ends
 * the program at the block's free, a changed free granule at its next use. */
extern bool packed_is_sealed;
void packed_seal_begin(void);

/* Takes a block. size in 1..PACKED_BYTES_MAX, alignment a power of two up to that. NULL when memory is out. */
void *packed_take(size_t size, size_t alignment);

/* Frees a block. Its entry was ENTRY_PACKED. A double free, or an address that is no block, ends the program. */
void packed_give(void *block);

/* Resizes a block in place. False: nothing changed. */
bool packed_resize(void *block, size_t size);

/* Returns the usable bytes; of a sealed block the request's, at least 8, and 0 for what is none. Takes no lock: a
 * block's end does not change while it lives. */
size_t packed_bytes(const void *block);

/* Gives back all wholly free pages. Returns their bytes. Visits the chunks that changed since they were purged, and
 * holds the lock for one of them at a time. */
size_t packed_purge(void);

#ifdef HAK_DEBUG
bool packed_is_valid(void);
#endif
