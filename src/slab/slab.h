/* slab.h: slabs, which are runs of equal blocks, and the set of slabs that one pool owns.
 *
 * A slab is 2^order units (base/size_class.h). Its record and its bitmap lie in the page map; nothing is stored in its
 * blocks. Only a thread that holds the owning pool's lock may touch record and bitmap; all functions here need it.
 *   S1  popcount(bitmap) == free_count; a set bit is a free block
 *   S2  between slab_open and slab_close the class does not change, and each unit's entry names the set's pool and the
 *       class
 *   S3  a slab is in exactly one list of its class, by fullness. One whose holes are being purged is in none. Nor is a
 *       full one, unless the set lists them: so a block that comes back to a full slab touches no other record
 *   S4  no word of the bitmap before hint has a bit set
 *   S5  slab_bytes is the sum of the open slabs' lengths
 *   S6  the class of an empty slab is in `kept`
 * slab_set_is_valid checks S1 to S4 and S6 on the slabs in lists.
 */
#pragma once

#include "base/counters.h"
#include "base/size_class.h"

/* Lists by fullness. Blocks are taken from the fullest slabs, so that the emptier ones become empty. Slabs without a
 * free block have a list of their own, if they are listed. */
#define FULLNESS_LISTS 4
#define FULLNESS_FULL FULLNESS_LISTS

#define SLABS_MANY 5u /* open slabs of a class: from so many on it is in slab_set's `many` */

#define CLASS_WORDS ((HAK_CLASS_COUNT + 63) / 64) /* of a set of classes (base/bits.h) */

struct slab;

/* Where a walk over holes goes on. */
struct hole_walk {
  struct slab *next; /* in the list, if is_inside */
  unsigned class, list;
  bool is_inside;
};

#define SLAB_COUNTERS(DO) DO(refills_from_slab) DO(slabs_opened) DO(slabs_closed)
struct slab_counters {
  SLAB_COUNTERS(COUNTER_FIELD)
};

struct slab_set {
  uint32_t key;       /* const: entry_key of the owning pool */
  bool lists_full;    /* const: of a set whose slabs may be closed all at once */
  bool has_states;    /* const: each open slab has an array of its blocks' states (checked/checked.h) */
  bool has_news;      /* a slab was opened or closed; cleared by the caller who acts on it */
  size_t slab_bytes;  /* of open slabs */
  size_t freed_bytes; /* of blocks put back, not reported to usage_freed_add yet */
  size_t limit_bytes; /* no slab is opened beyond; 0: no limit */
  size_t other_bytes; /* what the owner has besides slabs, and counts against the limit */
  struct slab_counters counters;
  _Atomic size_t taken_bytes; /* of blocks outside the bitmaps; any thread may read it */
  uint64_t kept[CLASS_WORDS]; /* S6; others may be in it, too */
  struct hole_walk walk;

  /* All zero while no slab is open: */
  uint64_t many[CLASS_WORDS]; /* the classes of at least SLABS_MANY */
  struct slab_class {
    _Alignas(CACHE_LINE) struct slab *lists[FULLNESS_LISTS + 1]; /* [0]: a quarter or less is free; last: none is */
    size_t taken_blocks;                                         /* blocks outside the bitmaps */
    uint32_t slab_count;                                         /* open slabs */
  } classes[HAK_CLASS_COUNT];                                    /* one line each, which pass between threads */
};

static inline size_t slab_set_taken_bytes(const struct slab_set *set) { return load_relaxed(&set->taken_bytes); }

/* Takes up to `wanted` free blocks of a class and writes them to slots[-1], slots[-2], ... in address order. So popping
 * from the top of a bin walks up through memory. Opens a new slab only if there is no free block at all. Returns how
 * many blocks it took; 0 when memory is out. */
size_t slab_set_take(struct slab_set *set, unsigned cls, void **slots, size_t wanted);
bool slab_set_has_free(const struct slab_set *set, unsigned cls);

/* Puts blocks of one class back; the set must own them. A block that is free already, or an address that is no block,
 * ends the program (os/fault.h). */
void slab_set_give(struct slab_set *set, unsigned cls, void *const *blocks, size_t count);
/* The same for blocks of several classes. A block whose slab was closed meanwhile counts as free. */
void slab_set_give_mixed(struct slab_set *set, void *const *blocks, size_t count);
/* As slab_set_give, but ends at the first block that another set of its kind owns. Returns how many it put back.
 * are_freed: they count as freed (usage_freed). */
size_t slab_set_give_own(struct slab_set *set, unsigned cls, void *const *blocks, size_t count, bool are_freed);

/* Checks that the blocks of one class that are the set's could be put back; those of other sets of its kind are left
 * out. A free block, one that is there twice, or an address that is no block ends the program. Otherwise nothing
 * changes. */
void slab_set_check(struct slab_set *set, unsigned cls, void *const *blocks, size_t count);

/* Tells whether the limit allows `bytes` more. */
static inline bool slab_set_allows(const struct slab_set *set, size_t bytes) {
  return LIKELY(set->limit_bytes == 0) ||
         bytes <= sub_sat(sub_sat(set->limit_bytes, set->other_bytes), set->slab_bytes);
}

/* Closes the empty slabs that were kept for the next use. */
void slab_set_close_empty(struct slab_set *set);
/* The same of one class. It looks at so many slabs at most. */
void slab_set_close_empty_of(struct slab_set *set, unsigned cls, size_t looks_max);

/* Closes all slabs, even those with blocks that are taken, which no thread may use any more. The set lists full slabs,
 * and no holes are being purged. */
void slab_set_close_all(struct slab_set *set);

/* Holes are OS pages that lie wholly in free blocks. Nothing is stored in free blocks, so the pages may go back. A walk
 * over a set's slabs, which slab_set_holes_begin begins, takes three steps again and again (slab/holes.c), because the
 * lock must not be held over the system calls, nor for long:
 *   1  slab_set_holes_take, under the lock: finds holes and takes their slabs out of their lists. Blocks may still be
 *      put back into such a slab, but none is taken out. It goes on where the last call stopped, and looks at
 *      HOLE_LOOKS_MAX slabs at most
 *   2  the caller purges batch->holes, without the lock
 *   3  slab_set_holes_give, under the lock: puts the slabs into their lists again
 * All three happen in one slow path, so that no fork comes between, unless another thread keeps the lock for long. */
#define HOLES_MAX 512u /* more than the longest slab can have */
#define HOLE_LOOKS_MAX 512u

enum hole_search {
  HOLES_ALL,     /* of every slab */
  HOLES_SETTLED, /* of slabs that nothing was taken from or put into for the delay, if free enough */
};

struct hole_batch {
  enum hole_search search;
  uint32_t now_ms;   /* for HOLES_SETTLED: the low bits of the time */
  uint32_t delay_ms; /* for HOLES_SETTLED: how long a slab must have been left alone */
  unsigned slab_count, hole_count;
  struct slab *slabs[HOLES_MAX]; /* each has a hole at least */
  struct hole {
    char *start;
    size_t bytes;
  } holes[HOLES_MAX];
};

/* Fills the batch with slabs, but not with those that have no new holes since their last purge; it may stay empty.
 * False when the walk is at its end. */
void slab_set_holes_begin(struct slab_set *set);
bool slab_set_holes_take(struct slab_set *set, struct hole_batch *batch);
void slab_set_holes_give(struct slab_set *set, const struct hole_batch *batch);

/* Tells whether `address`, inside a slab of class cls, is the start of a block. */
bool slab_is_block_start(const void *address, unsigned cls);

#ifdef HAK_DEBUG
bool slab_set_is_valid(const struct slab_set *set);
/* Tells whether this is a block of the set and of class cls that is outside its slab's bitmap. */
bool slab_holds(const struct slab_set *set, const void *block, unsigned cls);
#endif
