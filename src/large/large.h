/* large.h: objects above HAK_SMALL_MAX, or aligned more than a class can be.
 *
 * Up to 32 MiB they are extents (pages/extent.h), shared by all threads with the superslabs; above, and
 * where an object has to grow beyond its extent, mappings of their own, which can grow by moving pages.
 * Freed ranges wait in the BigCache (large/big_cache.h). Thread-safe; no lock is held over system calls
 * but for those of an arena.
 *   L1  the first unit's entry is ENTRY_LARGE while the object lives, ENTRY_LARGE_FREE while it is
 *       cached; its other units' entries are ENTRY_LARGE_BODY, ENTRY_LARGE_FREE while cached
 *   L2  the record of the first unit holds the length
 */
#ifndef HAK_LARGE_LARGE_H
#define HAK_LARGE_LARGE_H

#include "base/words.h"

/* size in 1..PTRDIFF_MAX, alignment a power of two. site: the address the program called from, 0 if not
 * known. *zeroed: the memory is known to read as zero. NULL when memory is out. */
void *large_alloc(size_t size, size_t alignment, uintptr_t site, bool *zeroed);

/* An extent of just so many bytes, whole units, whatever sites ask for (large/packed.h). NULL when memory is out. */
void *large_alloc_extent(size_t bytes);

/* A mapping of its own, taken without a lock and within no limit: for callers that may wait for nothing. */
void *large_alloc_unlocked(size_t size, size_t alignment);

/* Ends such an object, likewise without a lock. False: it is none, or was resized. */
bool large_free_unlocked(void *object);

/* A word of a live object's record that is the caller's. */
void large_link_set(void *object, void *link);
void *large_link(const void *object);

/* object: its entry was ENTRY_LARGE. If two threads free one object, one of them ends the program. */
void large_free(void *object);

/* In place, or by moving pages, or, for extents that grow, by copying into a mapping. NULL: unchanged,
 * the caller must copy. */
void *large_resize(void *object, size_t size);

/* Makes an object, which the caller got just now, read as zero. */
void large_clear(void *object, size_t size);

/* Usable bytes. */
size_t large_bytes(const void *object);
/* What a request of so many bytes is rounded up to, at least. */
size_t large_good_size(size_t size);

/* Gives cached ranges up, oldest first, until at most keep_bytes are left or the rest was freed at or
 * after before_ms. Extents go to the free extents, still resident; mappings end. Returns the bytes of the
 * latter: they went back to the system. */
size_t large_evict(size_t keep_bytes, uint64_t before_ms);

/* Gives cached ranges up that are kept by what was learned, and their pages back: of all that were freed
 * before before_ms, or, if only_due, of those whose time is over, until at most keep_bytes are left. Returns the bytes
 * given back. */
size_t large_evict_learned(bool only_due, size_t keep_bytes, uint64_t before_ms);

/* Without a lock. oldest_ms: when the range that is longest in the cache was freed, among those that the profile
 * keeps; due_ms: when the first of the others is to go; 0 if there is none. */
size_t large_live_bytes(void);
size_t large_mapping_bytes(void); /* of live objects and cached ranges that are mappings of their own */
size_t large_cached_bytes(void);  /* all, */
size_t large_learned_bytes(void); /* and those kept by what was learned */
uint64_t large_cache_oldest_ms(void);
uint64_t large_due_ms(void);

struct large_stats {
  size_t live_count, live_bytes;
  size_t cached_bytes;
  size_t mapping_count; /* objects and cached ranges that are mappings of their own */
  size_t mapping_bytes;
  uint64_t made, freed;
  uint64_t cache_puts, cache_hits, cache_hits_of_site, cache_misses;
  uint64_t evictions;
};
void large_stats(struct large_stats *out);

#endif
