/* large.h: large objects: above HAK_SMALL_MAX, or aligned more than a size class can be.
 *
 * Below 32 MiB they are extents (pages/extent.h), from the same arenas as slabs. Longer ones, and those that must grow
 * beyond their extent where no resident memory serves, are mappings of their own, which can grow by moving pages. Freed
 * ranges wait in the thread's stash (large/stash.h) and in the BigCache (large/big_cache.h). All functions are
 * thread-safe. They hold no lock over system calls, except those of an arena, the moves of mappings, and those that
 * take the access to a freed guarded object.
 *   L1  the first unit's entry is ENTRY_LARGE while the object lives or is stashed (large/stash.h), ENTRY_LARGE_FREE
 *       while it is cached; an extent's other units have ENTRY_LARGE_BODY, ENTRY_LARGE_FREE while cached; a mapping's
 *       have none (range_entry_inside)
 *   L2  the record of the first unit holds the length
 */
#pragma once

#include "base/words.h"

/* Allocates an object. size in 1..PTRDIFF_MAX, alignment a power of two. site: the call site, 0 if not known.
 * *dirty: so many of its bytes, from the first on, may not read as zero; it may be more than it has. NULL when memory
 * is out. */
void *large_alloc(size_t size, size_t alignment, uintptr_t site, size_t *dirty);

/* Allocates an extent of exactly this many bytes, whole units, for large/packed.h. NULL when memory is out. */
void *large_alloc_extent(size_t bytes, size_t *dirty);

/* Allocates a mapping without a lock and beyond limits, for callers that must not wait. */
void *large_alloc_unlocked(size_t size, size_t alignment);

/* Frees such an object without a lock. False: it is none, or was resized. */
bool large_free_unlocked(void *object);

/* Returns a place in a live object's record for a pointer of the caller's. */
void *large_link(void *object);

/* Frees an object. Its entry was ENTRY_LARGE. If two threads free one object, one of them ends the program. */
void large_free(void *object);

/* Resizes an object in place, by moving pages, or for growing extents by copying into another range. *is_dirty: what it
 * got may not read as zero. NULL: nothing changed, and the caller must copy. */
void *large_resize(void *object, size_t size, bool *is_dirty);
/* Tells whether a resize would change nothing. */
bool large_keeps_length(const void *object, size_t size);
/* Tells whether an object that shrinks in place would lie in front of a gap that is not unmapped as long as it lives,
 * while there are many such gaps. It is better copied then. */
bool large_would_pin(const void *object, size_t size);

/* Makes a block that the caller got just now read as zero (large/clear.c). It may be any; only an object is purged. */
void large_clear(void *block, size_t size);

/* Tells whether an object whose entry is ENTRY_LARGE is live: it may be freed and in a stash. */
bool large_is_live(const void *object);

/* Usable bytes. */
size_t large_bytes(const void *object);
/* Returns the least size that a request is rounded up to. */
size_t large_good_size(size_t size);

/* Returns the length of the range of an object of `size` bytes, in units, if it may wait in its thread's stash
 * (large/stash.h) when it is freed, and would be found there; else 0. */
size_t large_stash_units(const void *object, size_t size, size_t alignment);

/* Tells whether the address, whose entry is ENTRY_LARGE, is that of an object and not one inside it. */
bool large_is_start(const void *address);

struct large_stats {
  uint64_t made_count, freed_count; /* in all ways */
  uint64_t stash_hits;
  size_t live_count, live_bytes;
  size_t cached_bytes;  /* in the BigCache and in stashes */
  size_t mapping_count; /* objects and cached ranges that are mappings of their own */
  size_t mapping_bytes;
};
void large_stats(struct large_stats *out);
