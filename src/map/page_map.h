/* page_map.h: from any address to what hakmem knows about it.
 *
 *   top[address >> 30]  ->  leaf of that GiB:
 *        entries[16384]      one word a 64 KiB unit
 *        superslabs[512]     one record a superslab (map/superslab.h)
 *        arenas[512]         one byte for 2 MiB: is it part of an arena (map/extent.h)
 *        records[16384]      one cache line a unit: a slab's or a large object's descriptor,
 *                            kept at its first unit
 *        bitmaps[16384]      512 bytes a unit: the free blocks of the slab that starts there
 *
 * A leaf is mapped whole and touched only where used; it is never unmapped. Any address may be looked
 * up at any time, by any thread: no leaf and no slab both read as entry 0.
 *   M1  An entry with a heap id is written only by the holder of heap id's lock, while it opens or
 *       closes the slab; the words of a large object only by whoever owns the object or the cache.
 */
#ifndef HAK_MAP_PAGE_MAP_H
#define HAK_MAP_PAGE_MAP_H

#include "base/words.h"

/* Entries of id 0 are marks. They never match a heap's key, whose id is 1 or more. */
enum entry_mark {
  ENTRY_NONE = 0,       /* not ours, or a free unit of a superslab */
  ENTRY_LARGE = 1,      /* first unit of a large object */
  ENTRY_LARGE_BODY = 2, /* its other units */
  ENTRY_LARGE_FREE = 3, /* a freed large range; what is left of its marks after the range was given up */
  ENTRY_EXTENT = 4,     /* first and last unit of a free extent */
};

#define RECORD_BYTES ((size_t)64)
#define BITMAP_WORDS ((size_t)64) /* of one unit: 64 KiB / 16 B blocks */

#define LEAF_SUPERSLABS_OFFSET (LEAF_UNITS * sizeof(uint32_t))
#define LEAF_ARENAS_OFFSET (LEAF_SUPERSLABS_OFFSET + LEAF_SUPERSLABS * RECORD_BYTES)
#define LEAF_RECORDS_OFFSET (LEAF_ARENAS_OFFSET + LEAF_SUPERSLABS)
#define LEAF_BITMAPS_OFFSET (LEAF_RECORDS_OFFSET + LEAF_UNITS * RECORD_BYTES)
#define LEAF_BITMAPS_END (LEAF_BITMAPS_OFFSET + LEAF_UNITS * BITMAP_WORDS * sizeof(uint64_t))
#define LEAF_TABLE_BYTES ((LEAF_BITMAPS_END + UNIT_BYTES - 1) & ~(UNIT_BYTES - 1)) /* whole pages, of any size */

static inline uint32_t entry_key(uint32_t heap_id) { return heap_id << HAK_ENTRY_ID_SHIFT; }
static inline uint32_t entry_of(uint32_t key, unsigned cls) { return key | cls << HAK_ENTRY_CLASS_SHIFT; }
static inline unsigned entry_class(uint32_t entry) { return entry >> HAK_ENTRY_CLASS_SHIFT & 0xff; }
static inline uint32_t entry_heap_id(uint32_t entry) { return entry >> HAK_ENTRY_ID_SHIFT; }
static inline bool entry_is_of(uint32_t entry, uint32_t key) { return (entry ^ key) < HAK_ENTRY_END; }

/* Entry of the unit around an address; ENTRY_NONE for any address hakmem has nothing at. */
static inline uint32_t map_entry(const void *address) {
  uintptr_t gib = (uintptr_t)address >> HAK_LEAF_SHIFT;
  uintptr_t entries = gib < HAK_MAP_TOP_COUNT ? __atomic_load_n(&hak_map_top[gib], __ATOMIC_ACQUIRE) : 0;
  if (entries == 0)
    return ENTRY_NONE;
  return __atomic_load_n((uint32_t *)(entries + ((uintptr_t)address >> HAK_UNIT_SHIFT) * 4), __ATOMIC_RELAXED);
}

/* Makes the leaves for a range. False when memory is out. Takes the page map's lock if one is missing;
 * the second form only tries to. */
bool map_cover(const void *address, size_t size);
bool map_cover_without_waiting(const void *address, size_t size);

/* Is there a leaf around this address? The functions below need one. */
static inline bool map_covers(const void *address) {
  uintptr_t gib = (uintptr_t)address >> HAK_LEAF_SHIFT;
  return gib < HAK_MAP_TOP_COUNT && __atomic_load_n(&hak_map_top[gib], __ATOMIC_ACQUIRE) != 0;
}

/* hak_map_top holds a leaf's address less its first unit's offset: that spares the fast path a mask. */
static inline uintptr_t map_bias(uintptr_t gib) {
  return (gib << (HAK_LEAF_SHIFT - HAK_UNIT_SHIFT)) * sizeof(uint32_t);
}
static inline char *map_leaf(const void *address) {
  uintptr_t gib = (uintptr_t)address >> HAK_LEAF_SHIFT;
  return (char *)(__atomic_load_n(&hak_map_top[gib], __ATOMIC_ACQUIRE) + map_bias(gib));
}
static inline size_t map_unit_in_leaf(const void *address) {
  return ((uintptr_t)address >> HAK_UNIT_SHIFT) & (LEAF_UNITS - 1);
}

/* One look-up for all that a leaf knows around an address. */
struct map_view {
  char *leaf;
  size_t unit; /* in the leaf */
};
static inline struct map_view map_view(const void *address) {
  return (struct map_view){.leaf = map_leaf(address), .unit = map_unit_in_leaf(address)};
}
static inline uint32_t map_view_entry(struct map_view view) {
  return __atomic_load_n((uint32_t *)(void *)view.leaf + view.unit, __ATOMIC_RELAXED);
}
static inline void *map_view_record(struct map_view view, size_t unit) {
  return view.leaf + LEAF_RECORDS_OFFSET + unit * RECORD_BYTES;
}
static inline uint64_t *map_view_bitmap(struct map_view view, size_t unit) {
  return (uint64_t *)(void *)(view.leaf + LEAF_BITMAPS_OFFSET) + unit * BITMAP_WORDS;
}

static inline void *map_record(const void *address) {
  return map_leaf(address) + LEAF_RECORDS_OFFSET + map_unit_in_leaf(address) * RECORD_BYTES;
}
static inline uint64_t *map_bitmap(const void *address) {
  return (uint64_t *)(map_leaf(address) + LEAF_BITMAPS_OFFSET) + map_unit_in_leaf(address) * BITMAP_WORDS;
}
static inline void *map_superslab_record(const void *address) {
  size_t index = ((uintptr_t)address >> SUPERSLAB_SHIFT) & (LEAF_SUPERSLABS - 1);
  return map_leaf(address) + LEAF_SUPERSLABS_OFFSET + index * RECORD_BYTES;
}

static inline unsigned char *map_arena_mark(const void *address) {
  size_t index = ((uintptr_t)address >> SUPERSLAB_SHIFT) & (LEAF_SUPERSLABS - 1);
  return (unsigned char *)map_leaf(address) + LEAF_ARENAS_OFFSET + index;
}

void map_entries_set(const void *address, size_t units, uint32_t entry);
/* Changes one entry if it is `from`; of several threads that try, one succeeds. */
bool map_entry_change(const void *address, uint32_t from, uint32_t to);

/* Held across a fork, so that the child finds the map whole. */
void map_lock_for_fork(void);
void map_unlock_after_fork(bool child);

/* Bytes mapped for leaves. */
size_t map_bytes(void);

#endif
