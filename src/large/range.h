/* range.h: the memory of large objects: an extent, or a mapping of its own. A range is made for an object
 * (large/large.h), waits in the BigCache after the object's end, or ends.
 */
#pragma once

#include "base/options.h"
#include "budget/usage.h"
#include "large/big_cache.h"

/* Make a range, whose bytes are in USAGE_LARGE. NULL when memory is out. *dirty: so many of its bytes, from the first
 * on, may not read as zero. Of range_mapped and range_guarded all do. range_guarded makes some thousand at most. */
struct large *range_from_extents(size_t bytes, size_t bytes_fresh, size_t alignment, size_t *dirty);
struct large *range_mapped(size_t bytes, size_t alignment);
/* For an object that grows, of resident memory only. As much memory behind the range is free as well, if there is such
 * an extent. So what earlier objects left as they grew serves the next one, which asks for other lengths on its way. */
struct large *range_with_room(size_t bytes);
struct large *range_guarded(size_t size, size_t room, size_t alignment);
/* Maps memory for a range, with the page map's leaf and row for its first unit. */
char *range_map(size_t bytes, size_t alignment);
/* Makes the record of a range that exists, and counts an object. from: where its bytes are counted. An extent's have
 * begun to move. */
struct large *range_made(char *base, size_t bytes, bool mapping, enum usage from);

/* Makes an extent of a mapping, so that its pages serve anything, unless it stays a mapping (struct large) or there are
 * too many such extents. The content stays. False: unchanged. */
bool range_become_extent(struct large *range);

/* Ends an unused range, which is counted in `from`: it becomes a resident free extent, or is unmapped. Returns the
 * bytes unmapped. */
size_t range_end(struct large *range, uint64_t freed_ms, enum usage from);
/* Unmaps what the kernel refused to unmap before, as far as it allows that now: tries at most so many ranges. One
 * thread at a time. */
void ranges_unmap_again(unsigned most);
/* Caches the range of an object that ended, or ends it. Ranges of sites whose sizes vary are not cached: they rarely
 * fit later requests. A short mapping becomes an extent first. Spare ranges are mappings of any size, and each mapping
 * makes forks slower: they end at once. */
void range_cache_or_end(struct large *range);

/* Evicts cached ranges, oldest first. Mappings are unmapped. Of extents, those that the preset decides about become
 * resident free extents, and the pages of the others go back to the system. Returns the bytes given back. */
size_t range_evict(struct purge purge);

/* Counts the end of an object whose range does not go to the cache, and begins the move of its bytes. */
void range_leaves(const struct large *range);

/* Takes a range that is kept for objects: as big_cache_take, and a stashed one (large/stash.h) before a new mapping. */
struct large *range_kept(size_t bytes, size_t alignment, uint32_t site);

/* Moves at most so many stashed ranges of at least units_min that were put before this round to the BigCache, as freed
 * at freed_ms. Returns how many. */
size_t range_evict_stashed(uint32_t before_round, size_t units_min, uint64_t freed_ms, size_t most);

/* Returns how many bytes of freed ranges the BigCache may hold: the option `large_cache_mb`. */
static inline size_t range_cache_max(void) { return (size_t)option_value(OPTION_LARGE_CACHE_MB) << 20; }

/* Lets slabs and large objects take the memory of kept ranges before new memory. */
void range_offer_kept(void);

/* Sets the page-map entries of a range: ENTRY_LARGE of a live one, ENTRY_LARGE_FREE of a freed one. */
void range_entries_set(const struct large *range, uint32_t first);
/* Sets the length. Of a mapping, call it before its end is unmapped, and after it grew. */
static inline void range_units_set(struct large *range, size_t bytes) {
  __atomic_store_n(&range->units, (uint32_t)(bytes / UNIT_BYTES), __ATOMIC_RELAXED);
}
/* Returns the entry of an address that has none: what it would be if mappings had entries for all of their units. */
uint32_t range_entry_inside(const void *address);
/* Notes that the mapping of this object ended. range_was_unmapped: that was a short time ago. */
void range_unmapped_note(const void *object);
bool range_was_unmapped(const void *address);

/* Mappings of live objects and cached ranges. range_length_changed: the caller changed the length of one. */
size_t range_mapping_count(void);
size_t range_mapping_bytes(void);
void range_length_changed(size_t bytes, size_t wanted);
/* Ranges that came from stashes to the cache. */
uint64_t range_unstashed_count(void);
