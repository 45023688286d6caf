/* page_map.h: maps any address to hakmem's data about it.
 *
 *   top[address >> 32]  ->  leaf of those 4 GiB, 272 KiB:
 *        entries[65536]      one word a 64 KiB unit
 *        rows[2048]          for each 2 MiB  ->  row, 18 KiB, NULL until one is needed:
 *             records[32]         one cache line a unit: a slab's or a large object's descriptor,
 *                                 kept at its first unit
 *             arenas[]            one byte a unit: of which bank's arena it is a part (pages/arena.h)
 *             forks               how many forks there had been when its memory was fresh (pages/fresh.h)
 *             states[32]          for the slab that starts there: an array of its blocks' states, if they are checked
 *             bitmaps[8][32]      512 bytes a unit: the free blocks of the slab that starts there. The first cache line
 *                                 of each bitmap comes first, then the second one of each, and so on: most slabs
 *                                 have blocks for one line or two, so the other pages are never touched
 *        starts[32]          a bit for each 2 MiB in which a mapping of a large object ever began
 *        dense[32], huge[32] the same for each 2 MiB that were resident at the last look, and that were copied to a
 *                            huge page (pages/collapse.h)
 *
 * Leaves and rows are cut from chunks, touched only where used, and never unmapped; the pages of the rows of released
 * address space go. Each 2 MiB of an arena has a row. A mapping of a large object has the leaf, the row and the entry
 * of its first unit only, however long it is. Any thread may look up any address at any time: without a leaf the entry
 * is 0. Only map_move_begin takes a lock.
 *   M1  An entry with a pool id is written only by the holder of that pool's lock, while it opens or closes the slab.
 *       The entries of a large object are written only by the thread that owns the object, or its freed range.
 */
#pragma once

#include "base/words.h"

/* Kinds of pools (hakmem/inline.h, F4). Entries of kind 0 are marks. They never match a heap's key. */
enum entry_kind {
  KIND_MARK = 0,
  KIND_ORDINARY = 1, /* from here on, the pools of threads: blocks of one kind may be in the same bins */
  KIND_SHARED = 13,  /* no bin takes their blocks */
  KIND_PRIVATE = 14, /* only bins of that very pool do */
  KIND_NONE = 15,    /* of no pool */
};
#define KINDS_ORDINARY ((unsigned)KIND_SHARED - KIND_ORDINARY)

enum entry_mark {
  ENTRY_NONE = 0,       /* not ours, inside a mapping, or between the ends of a free extent */
  ENTRY_LARGE = 1,      /* first unit of a large object */
  ENTRY_LARGE_BODY = 2, /* its other units, if it is an extent */
  ENTRY_LARGE_FREE = 3, /* a freed large range; the mark may stay after the range was given up */
  ENTRY_EXTENT = 4,     /* first and last unit of a free extent */
  ENTRY_SPARE = 5,      /* with a class: a chunk of spare blocks (threads/spare.h) */
  ENTRY_PACKED = 6,     /* a unit of a chunk of packed blocks (large/packed.h) */
  ENTRY_GUARDED = 7,    /* a unit of an observer's guarded blocks */
};
#define ENTRY_MARKS ((1u << HAK_ENTRY_CLASS_SHIFT) - 1)

#define RECORD_BYTES ((size_t)64)
#define BITMAP_WORDS ((size_t)64) /* of one unit: 64 KiB / 16 B blocks */
#define BITMAP_LINE_WORDS (CACHE_LINE / sizeof(uint64_t))

struct map_row {
  char records[ROW_UNITS][RECORD_BYTES];
  _Alignas(CACHE_LINE) _Atomic uint8_t arenas[ROW_UNITS];
  _Atomic uint32_t forks;
  _Alignas(CACHE_LINE) _Atomic(_Atomic uint16_t *) states[ROW_UNITS];
  _Alignas(CACHE_LINE) uint64_t bitmaps[BITMAP_WORDS / BITMAP_LINE_WORDS][ROW_UNITS][BITMAP_LINE_WORDS];
};

struct map_leaf {
  uint32_t entries[LEAF_UNITS];
  struct map_row *rows[LEAF_ROWS];
  _Atomic uint64_t starts[LEAF_ROWS / 64];
  _Atomic uint64_t dense[LEAF_ROWS / 64], huge[LEAF_ROWS / 64];
};

static inline uint32_t entry_key(uint32_t pool_id, unsigned kind) {
  return pool_id << HAK_ENTRY_ID_SHIFT | kind << HAK_ENTRY_KIND_SHIFT;
}
static inline uint32_t entry_of(uint32_t key, unsigned cls) { return key | cls << HAK_ENTRY_CLASS_SHIFT; }
static inline unsigned entry_class(uint32_t entry) { return entry >> HAK_ENTRY_CLASS_SHIFT & 0xff; }
static inline uint32_t entry_pool_id(uint32_t entry) { return entry >> HAK_ENTRY_ID_SHIFT; }
static inline bool entry_is_of(uint32_t entry, uint32_t key) { return (entry ^ key) < HAK_ENTRY_END; }
/* Tells whether two entries are of the same kind and class. */
static inline bool entries_are_alike(uint32_t entry, uint32_t other) { return (uint16_t)(entry ^ other) == 0; }

/* Makes the missing leaves for a range; map_cover: the missing rows, too. They never wait. False when memory is out;
 * what was made stays. */
bool map_cover_leaves(const void *address, size_t size);
bool map_cover(const void *address, size_t size);

/* Call before a mapping moves to an unknown address, because such a move cannot be undone: makes the leaf and the row
 * that its first unit may need there, and takes a lock, which is held until map_move_end. Meanwhile another move would
 * wait in the kernel. False when memory is out. target: where the mapping is now; NULL: it did not move. */
bool map_move_begin(void);
void map_move_end(const void *target);

/* Tells whether there is a leaf for this address. */
static inline bool map_covers(const void *address) {
  uintptr_t index = (uintptr_t)address >> HAK_LEAF_SHIFT;
  return index < HAK_MAP_TOP_COUNT && __atomic_load_n(&hak_map_top[index], __ATOMIC_ACQUIRE) != 0;
}

/* hak_map_top holds a leaf's address less its first unit's offset. This spares the fast path a mask. */
static inline uintptr_t map_bias(uintptr_t index) {
  return (index << (HAK_LEAF_SHIFT - HAK_UNIT_SHIFT)) * sizeof(uint32_t);
}

/* Returns the leaf of an address; NULL: there is none. */
static inline struct map_leaf *map_leaf_or_null(const void *address) {
  uintptr_t index = (uintptr_t)address >> HAK_LEAF_SHIFT;
  uintptr_t entries;
  if (LIKELY(index == HAK_LOAD_FIRST(hak_map_home.index))) {
    atomic_signal_fence(memory_order_acquire);
    return (struct map_leaf *)(HAK_PLAIN_LOAD(hak_map_home.entries) + map_bias(index));
  }
  if (UNLIKELY(index >= HAK_MAP_TOP_COUNT) || (entries = __atomic_load_n(&hak_map_top[index], __ATOMIC_ACQUIRE)) == 0)
    return NULL;
  return (struct map_leaf *)(entries + map_bias(index));
}

/* The following functions need the leaf to exist. */
static inline struct map_leaf *map_leaf(const void *address) {
  uintptr_t index = (uintptr_t)address >> HAK_LEAF_SHIFT;
  return (struct map_leaf *)(__atomic_load_n(&hak_map_top[index], __ATOMIC_ACQUIRE) + map_bias(index));
}
static inline uint32_t *map_leaf_entry(struct map_leaf *leaf, const void *address) {
  return &leaf->entries[((uintptr_t)address >> HAK_UNIT_SHIFT) & (LEAF_UNITS - 1)];
}
static inline uint32_t map_leaf_read(struct map_leaf *leaf, const void *address) {
  return __atomic_load_n(map_leaf_entry(leaf, address), __ATOMIC_RELAXED);
}
static inline size_t map_row_in_leaf(const void *address) {
  return ((uintptr_t)address >> ROW_SHIFT) & (LEAF_ROWS - 1);
}
static inline struct map_row *map_leaf_row(struct map_leaf *leaf, const void *address) {
  return __atomic_load_n(&leaf->rows[map_row_in_leaf(address)], __ATOMIC_ACQUIRE);
}
static inline struct map_row *map_row(const void *address) { return map_leaf_row(map_leaf(address), address); }
/* Returns the entry of the unit around an address; ENTRY_NONE for any address outside hakmem's memory. */
static inline uint32_t map_entry(const void *address) {
  uintptr_t index = (uintptr_t)address >> HAK_LEAF_SHIFT;
  if (UNLIKELY(index >= HAK_MAP_TOP_COUNT))
    return ENTRY_NONE;
  uintptr_t entries = __atomic_load_n(&hak_map_top[index], __ATOMIC_ACQUIRE);
  if (UNLIKELY(entries == 0))
    return ENTRY_NONE;
  return __atomic_load_n((uint32_t *)(entries + ((uintptr_t)address >> HAK_UNIT_SHIFT) * sizeof(uint32_t)),
                         __ATOMIC_RELAXED);
}
static inline size_t map_unit_in_row(const void *address) {
  return ((uintptr_t)address >> HAK_UNIT_SHIFT) & (ROW_UNITS - 1);
}

/* These need the row too. */
static inline void *map_record(const void *address) { return map_row(address)->records[map_unit_in_row(address)]; }
/* Returns the first word of a unit's bitmap; bitmap_word: the i-th one. */
static inline uint64_t *map_bitmap(const void *address) {
  return map_row(address)->bitmaps[0][map_unit_in_row(address)];
}
static inline uint64_t *bitmap_word(uint64_t *bitmap, size_t i) {
  return bitmap + i + i / BITMAP_LINE_WORDS * BITMAP_LINE_WORDS * (ROW_UNITS - 1);
}
static inline _Atomic(_Atomic uint16_t *) *map_row_states(struct map_row *row, const void *address) {
  return &row->states[map_unit_in_row(address)];
}

/* Release: range_entry_inside (large/range.h) reads what other threads set. */
void map_entries_set(const void *address, size_t units, uint32_t entry);
/* The same for one unit. */
static inline void map_entry_set(const void *address, uint32_t entry) {
  __atomic_store_n(map_leaf_entry(map_leaf(address), address), entry, __ATOMIC_RELEASE);
}
static inline uint32_t map_entry_acquire(const void *address) {
  return __atomic_load_n(map_leaf_entry(map_leaf(address), address), __ATOMIC_ACQUIRE);
}

/* Notes that a mapping begins here. Its row exists. */
void map_start_note(const void *address);
/* Returns the last unit, at or before this one and behind `end`, in whose row a mapping ever began; 0: there is none.
 * It has a row. */
uintptr_t map_start_before(uintptr_t unit, uintptr_t end);

/* Gives back the pages of the rows of a range that is about to be unmapped. No arena, slab or object may use a part of
 * the range, and no other thread may be able to get it yet. The rows may read as zero afterwards. */
void map_rows_purge(const char *base, size_t bytes);

/* Takes zeroed bytes, a multiple of CACHE_LINE, at such a multiple, which are never given back. It never waits. NULL
 * when memory is out. */
void *map_piece_take(size_t bytes);
/* Returns the bytes mapped for leaves, rows and such pieces. */
size_t map_bytes(void);
