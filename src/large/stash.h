/* stash.h: freed ranges of large objects that one thread keeps for itself, in front of the BigCache.
 *
 * A thread that asks for one length again and again gets its own ranges back without a lock, newest first. Its stash
 * has a place for each of a few lengths: a chain of ranges. If a free finds a place full and a later malloc finds it
 * empty, its capacity grows from n to 2n + 1. So a thread that only frees what others allocate keeps nothing, nor does
 * one that allocates and frees once.
 *   T1  Only the owner of the heap puts ranges into its stash and links the chains. Any thread may take a range out, by
 *       an exchange of its word: the range then belongs to that thread. Its node stays in the chain, empty, until the
 *       owner comes by.
 *   T2  A stashed range has its place's length. It counts as USAGE_LARGE, like a live object, and readers subtract what
 *       all stashes hold. Its entries are those of a live object, too, because 16 neighbours share a cache line of
 *       entries; only `ended` in its record differs.
 *   T3  Each word has the round in which the range was put. What was not used for a whole round goes to the BigCache
 *       (range_evict_stashed), as freed when that round began. So the purge delay holds, also while the owner sleeps.
 *   T4  Stashes are never freed. The stash of an ended thread is emptied by age, like any other.
 * The owner's steps leave a stash consistent after each instruction, but for a node in no chain (owner_step_begin). A
 * range that another thread has in hand at a fork is lost to the child, like an object of that thread.
 */
#pragma once

#include "base/options.h"
#include "base/probe.h"
#include "large/big_cache.h"
#include "os/fault.h"
#include "pages/page_map.h"

#define STASH_PLACES 16u
#define STASH_PLACES_SHIFT 28u /* of a product of 32 bits */
#define STASH_RANGES 128u      /* of one stash; node 0 stands for none */
#define STASH_BYTES_MAX ((size_t)256 << 20)
#define STASH_SHARE 2u /* of the bytes that the preset caches: all stashes */

/* A node's word: the range's record, its length in units above the address, and the round in the low bits. 0: empty. */
#define STASH_ROUNDS ((uint64_t)RECORD_BYTES)
#define STASH_UNITS_SHIFT HAK_ADDRESS_BITS
_Static_assert(STASH_BYTES_MAX / UNIT_BYTES < (size_t)1 << (64 - STASH_UNITS_SHIFT), "a length fits the word");
_Static_assert(STASH_PLACES == 1u << (32 - STASH_PLACES_SHIFT), "the hash of a length is a place");

struct stash_place {
  uint32_t units;        /* 0: no length yet */
  uint8_t top;           /* the node that was filled last */
  uint8_t count, wanted; /* nodes in the chain; how many it may have */
  bool was_full;         /* a free found no room, since `wanted` was raised */
};

/* The place that served a steady site's request for so many units. The site's next request for as many needs no search
 * (stash_take_again). */
#define STASH_HABITS 8u
struct stash_habit {
  uint32_t units; /* of the request (stash_units_of), not of the range; 0: none */
  uint32_t site;  /* hash */
  uint16_t note;  /* of the site, while it is steady */
  uint8_t place;
};

struct stash {
  /* owner only */
  _Alignas(CACHE_LINE) struct stash_place places[STASH_PLACES];
  struct stash_habit habits[STASH_HABITS];
  uint64_t held_units;        /* put and not taken by the owner; less robbed_units: what is held */
  uint64_t robbed_seen;       /* robbed_units at the last sweep */
  uint8_t free;               /* the first empty node that is in no chain, by `next` */
  uint8_t next_place;         /* where to look for a place that may change its length */
  uint8_t next[STASH_RANGES]; /* in the chain of a place, or of the free nodes */
  /* the owner writes, all read */
  _Atomic uint8_t node_last; /* no node behind this one was ever used */
  _Atomic uint32_t last_put; /* stashes_state when a range was put last, which then was open; 0: none was */
  _Atomic uint64_t puts, takes;
  struct stash *next_stash; /* const */
  /* all write */
  _Alignas(CACHE_LINE) _Atomic uint64_t robbed_units; /* taken by others */
  _Alignas(CACHE_LINE) _Atomic uint64_t words[STASH_RANGES];
};

/* The present round, and flags. */
extern _Atomic uint32_t stashes_state;
#define STASHES_OPEN 0x80000000u /* ranges may be put */
#define STASHES_LIVE 0x40000000u /* some may be held */
#define STASHES_USED 0x20000000u /* one was put in the round that ended last */
#define STASHES_ROUND (STASHES_USED - 1)
static inline bool stashes_are(uint32_t flag) { return (load_relaxed(&stashes_state) & flag) != 0; }
static inline uint32_t stash_present_round(void) { return load_relaxed(&stashes_state) & STASHES_ROUND; }

extern _Atomic uint32_t stash_units_max; /* bound on what one stash holds */

/* Makes a stash; NULL when memory is out. */
struct stash *stash_make(void);

/* The owner could not take a range of this length: the place for it grows if a free found it full before. */
void stash_expect(struct stash *stash, size_t units);

/* bytes_max: of all stashes, and of one if there is only one. Each of many may hold a quarter. */
void stash_open(size_t bytes_max);
/* Call before the last thread that ages the stashes stops. From then on nothing is put into them. They keep what they
 * hold. */
void stash_close(void);

/* Ends the present round. If nothing was put during it and nothing is held, closes the stashes. One thread at
 * a time. */
void stash_next_round(void);
/* Takes a range of so many units that was put before this round; NULL: there is none. *at: the stash where to begin,
 * NULL: with the first one; then the stash of the range, where the caller may go on. */
struct large *stash_take_any(uint32_t before_round, size_t units_min, size_t units_max, struct stash **at);
#define STASH_ANY_ROUND UINT32_MAX

struct stash_stats {
  size_t bytes;
  uint64_t puts, takes;
};
void stash_stats(struct stash_stats *out);
/* Returns the bytes that all stashes hold. It looks at each of them. */
size_t stash_bytes(void);
size_t stash_count(void);

/* Only one thread can end an object whose entry was ENTRY_LARGE. For any other this is a double free. If the object's
 * memory serves others by now, the entry tells. */
static inline void large_end_mark(struct large *range, void *object) {
  if (UNLIKELY(atomic_exchange_explicit(&range->ended, true, memory_order_acq_rel)) ||
      UNLIKELY(map_leaf_read(map_leaf(object), object) != ENTRY_LARGE))
    fault_double_free(object);
}

/* A fork may find the owner between two stores that this separates. */
static inline void stash_stepped(void) { atomic_signal_fence(memory_order_seq_cst); }

/* Returns the range of a node's word, NULL from an empty one. */
static inline struct large *stash_range(uint64_t word) {
  return (struct large *)(word & (((uint64_t)1 << STASH_UNITS_SHIFT) - STASH_ROUNDS));
}

/* Puts a node that was taken out of its chain to those that are in none. */
static inline void stash_node_free(struct stash *stash, unsigned node) {
  stash_stepped();
  stash->next[node] = stash->free;
  stash_stepped();
  stash->free = (uint8_t)node;
}

static inline unsigned stash_hash(size_t units) { return (uint32_t)units * (uint32_t)MIX_STEP >> STASH_PLACES_SHIFT; }

/* Takes the first node out of a place's chain. Returns its range, NULL: another thread took it. */
static inline struct large *stash_pop(struct stash *stash, struct stash_place *place) {
  unsigned node = place->top;
  uint64_t word = atomic_exchange_explicit(&stash->words[node], 0, memory_order_acquire);
  place->top = stash->next[node];
  stash_node_free(stash, node);
  place->count--;
  return stash_range(word);
}

static inline struct stash_habit *stash_habit_of(struct stash *stash, size_t units, uint32_t site) {
  return &stash->habits[(site ^ units) % STASH_HABITS];
}
/* Whole units below the last byte of a request above a unit: never 0, and right for any size. */
static inline size_t stash_units_of(size_t size) { return (size - 1) / UNIT_BYTES; }

/* Makes a range that the owner has taken an object. alignment: at most UNIT_BYTES. A color that it has already is that
 * of its base, maybe for another alignment. */
static ALWAYS_INLINE void *stash_object(struct stash *stash, struct large *range, size_t size, size_t alignment,
                                        uintptr_t site) {
  hak_assert(size <= large_range_bytes(range) && alignment <= UNIT_BYTES);
  stash->held_units -= range->units;
  bool has_room = large_has_room(large_range_bytes(range), size);
  if (UNLIKELY(!has_room) || UNLIKELY(range->color == 0) || alignment > CACHE_LINE)
    range->color = has_room ? large_color_of(range->base, alignment) : 0;
  range->site = site_hash(site);
  store_relaxed(&range->ended, false);
  add_as_owner(&stash->takes, 1);
  void *object = large_object(range);
  HAK_PROBE(large_alloc, object, size, large_range_bytes(range), site);
  return object;
}

/* The owner takes the range that it put last for objects of this length, because its lines are in the caches. Returns
 * the object or NULL. alignment: at most UNIT_BYTES. */
void *stash_take(struct stash *stash, size_t size, size_t alignment, uintptr_t site);

/* The same for a request like a former one. It calls nothing, so it saves no registers. NULL: use stash_take. */
static ALWAYS_INLINE void *stash_take_again(struct stash *stash, size_t size, uintptr_t site) {
  uint32_t hash = site_hash(site);
  size_t units = stash_units_of(size);
  const struct stash_habit *habit = stash_habit_of(stash, units, hash);
  if (UNLIKELY(habit->units != units) || UNLIKELY(habit->site != hash) ||
      UNLIKELY(load_relaxed(&site_notes[hash % SITE_NOTES]) != habit->note))
    return NULL;
  struct stash_place *place = &stash->places[habit->place];
  if (UNLIKELY(place->top == 0))
    return NULL;
  struct large *range = stash_pop(stash, place);
  if (UNLIKELY(range == NULL))
    return NULL;
  range->steady = true; /* it may have been another site's */
  return stash_object(stash, range, size, BLOCK_ALIGNMENT, site);
}

/* Returns an empty node that is in no chain; 0: there is none. */
static inline unsigned stash_node(struct stash *stash) {
  unsigned node = stash->free;
  if (node != 0) {
    stash->free = stash->next[node];
  } else {
    node = load_relaxed(&stash->node_last) + 1u;
    if (node == STASH_RANGES)
      return 0;
    store_relaxed(&stash->node_last, (uint8_t)node);
  }
  stash_stepped();
  return LIKELY(load_relaxed(&stash->words[node]) == 0) ? node : 0; /* else a fork found it filled and unlinked */
}

/* The owner puts an object into a place for its length. */
static ALWAYS_INLINE bool stash_put_at(struct stash *stash, struct stash_place *place, struct large *range,
                                       void *object) {
  uint32_t state = load_relaxed(&stashes_state);
  if (UNLIKELY(place->count >= place->wanted)) {
    place->was_full = true;
    return false;
  }
  if (UNLIKELY((state & STASHES_OPEN) == 0) ||
      UNLIKELY(stash->held_units + range->units > load_relaxed(&stash_units_max) + load_relaxed(&stash->robbed_units)))
    return false;
  unsigned node = stash_node(stash);
  if (UNLIKELY(node == 0))
    return false;
  HAK_PROBE(large_free, object, large_range_bytes(range));
  large_end_mark(range, object);
  uint64_t word = (uintptr_t)range | (uint64_t)range->units << STASH_UNITS_SHIFT | (state & (STASH_ROUNDS - 1));
  stash->held_units += range->units;
  place->count++;
  stash->next[node] = place->top;
  store_relaxed(&stash->last_put, state);
  add_as_owner(&stash->puts, 1);
  atomic_store_explicit(&stash->words[node], word, memory_order_release);
  stash_stepped();
  place->top = (uint8_t)node;
  return true;
}

/* Tells whether a live object's range may be in a stash. A mapping must be longer than extents are, so that its length
 * tells what it is, and large_free is to note first what of it is resident. */
static ALWAYS_INLINE bool stash_admits(const struct large *range) {
  return large_is_stashable(range) && !range->guarded && range->owner == 0 &&
         (LIKELY(!range->mapping) || (large_range_bytes(range) >= MAPPING_BYTES_MIN &&
                                      (range->noted || range->huge || option_value(OPTION_HUGE) == HUGE_OFF)));
}

/* The owner puts an object whose entry was ENTRY_LARGE. If there is no room, it first drops the nodes that others have
 * emptied. False: the object must be freed in another way. */
bool stash_put(struct stash *stash, struct large *range, void *object);

/* The same without a call, so it saves no registers. False: use stash_put. */
static ALWAYS_INLINE bool stash_put_again(struct stash *stash, struct large *range, void *object) {
  struct stash_place *place = &stash->places[stash_hash(range->units)];
  return LIKELY(place->units == range->units) && stash_admits(range) && stash_put_at(stash, place, range, object);
}
