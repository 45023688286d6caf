/* checked_cache.h: a thread's free blocks that are checked: what most mallocs and frees of the preset `secure` do,
 * without a lock. checked.c has the rest. */
#pragma once

#include "checked/checked_block.h"
#include "heap/slow_path.h"

#define CHECKED_PREFETCH_FREED (4 * CACHE_LINE)
#define CHECKED_PREFETCH_NEXT (2 * CACHE_LINE)

/* The free blocks of a class in one thread, numbered in a ring of places: from `first` on the ready ones, behind them
 * those in quarantine, up to `end`. Behind the ring lies the reserve, a stack. Without places, nothing can be taken or
 * put. `next` was drawn among the ready ones. It has no place of its own: the one of `first` is empty meanwhile. Other
 * threads read the numbers; filled: blocks that became ready from the reserve, less those that went there. So first +
 * filled blocks were given out, and `end` were freed. */
struct checked_class {
  struct kept next; /* block: NULL if none is drawn */
  struct kept *places;
  uint64_t inverse; /* of size_classes */
  _Atomic uint64_t first, end;
  uint32_t block_bytes;
  int32_t slab_mask; /* of an address: its slab's */
  uint8_t mask;      /* of a number: its place */
  uint8_t waiting;   /* blocks in quarantine, ring_max at most */
  uint8_t ready;     /* blocks, the next one included */
  uint8_t stay;      /* a draw needs more ready blocks than these, so that there is a choice */
  uint8_t ready_max, ring_max;
  uint8_t kept_max; /* on ready blocks and the reserve together */
  _Atomic uint8_t reserve;
};

struct checked_cache {
  struct {
    _Alignas(CACHE_LINE) struct checked_class of;
  } classes[HAK_CLASS_COUNT];
  uint64_t random;
  _Atomic uint64_t filled[HAK_CLASS_COUNT];
};
_Static_assert(sizeof(struct checked_class) == CACHE_LINE, "a class is one cache line");

/* Returns a number below `count`: Wang Yi's wyrand. It is fast, not cryptographic: an attacker who sees many addresses
 * may predict the next ones. */
static inline uint32_t checked_random_below(struct checked_cache *cache, uint32_t count) {
  cache->random += UINT64_C(0xa0761d6478bd642f);
  __uint128_t product = (__uint128_t)cache->random * (cache->random ^ UINT64_C(0xe7037ed1a0b428db));
  uint64_t bits = (uint64_t)(product >> 64) ^ (uint64_t)product;
  return (uint32_t)((bits >> 32) * count >> 32);
}

static ALWAYS_INLINE struct checked_class *class_in(struct checked_cache *cache, unsigned cls) {
  struct checked_class *class = &cache->classes[cls].of;
  __asm__("" : "+r"(class)); /* or the compiler would compute it anew from both for each access */
  return class;
}
/* The same by a page-map entry; class_of_bytes: by the bytes of a block of a tiny class, or up to 15 more. */
static ALWAYS_INLINE struct checked_class *class_of_entry(struct checked_cache *cache, uint32_t entry) {
  return (void *)((char *)cache->classes +
                  (entry & 0xffu << HAK_ENTRY_CLASS_SHIFT) * (CACHE_LINE >> HAK_ENTRY_CLASS_SHIFT));
}
static ALWAYS_INLINE struct checked_class *class_of_bytes(struct checked_cache *cache, size_t bytes) {
  return (void *)((char *)cache->classes + round_down(bytes, BLOCK_ALIGNMENT) * (CACHE_LINE / BLOCK_ALIGNMENT));
}
/* For the owner. NULL: it has none yet. */
static ALWAYS_INLINE struct checked_cache *cache_of(const struct heap *heap) { return load_relaxed(&heap->checked); }
/* NULL: there is none, or the thread is busy. */
static ALWAYS_INLINE struct checked_cache *cache_if_idle(void) {
  const struct heap *heap = heap_if_idle();
  return LIKELY(heap != NULL) ? cache_of(heap) : NULL;
}

static inline size_t reserve_count(const struct checked_class *class) { return load_relaxed(&class->reserve); }
static inline void reserve_set(struct checked_class *class, size_t count) {
  store_relaxed(&class->reserve, (uint8_t)count);
}
static inline struct kept *place_of(const struct checked_class *class, uint64_t number) {
  return &class->places[number & class->mask];
}

/* The owner may end between two stores that this separates, in a signal handler (checked_recover). */
static inline void cache_stepped(void) { atomic_signal_fence(memory_order_seq_cst); }

/* Draws the next one of the ready blocks, of which there is one at least. It will be written soon. */
static ALWAYS_INLINE void next_draw(struct checked_cache *cache, struct checked_class *class, uint64_t first) {
  uint32_t count = class->ready;
  uint32_t drawn = LIKELY(checked.is_random) ? checked_random_below(cache, count) : count - 1;
  struct kept *place = place_of(class, first + drawn), next = *place;
  *place = *place_of(class, first);
  cache_stepped();
  class->next = next;
  for (size_t at = 0; at < CHECKED_PREFETCH_NEXT; at += CACHE_LINE)
    __builtin_prefetch((char *)next.block + at, 1);
  __builtin_prefetch((const void *)next.state, 1);
}

/* Takes the next block, which is drawn, and draws another if there is a choice. */
static ALWAYS_INLINE struct kept next_take(struct checked_cache *cache, struct checked_class *class) {
  struct kept taken = class->next;
  hak_assert(taken.block != NULL && class->ready > 0);
  uint64_t first = load_relaxed(&class->first) + 1;
  store_relaxed(&class->first, first);
  cache_stepped();
  if (LIKELY(--class->ready > class->stay))
    next_draw(cache, class, first);
  else
    class->next.block = NULL;
  return taken;
}

/* Puts a block behind the last one. If the quarantine is full, its oldest block is ready then. */
static ALWAYS_INLINE void kept_put(struct checked_class *class, struct kept freed) {
  uint64_t end = load_relaxed(&class->end);
  hak_assert(class->ready < class->ready_max);
  *place_of(class, end) = freed;
  cache_stepped();
  store_relaxed(&class->end, end + 1);
  if (LIKELY(class->waiting == class->ring_max))
    class->ready++;
  else
    class->waiting++;
}

/* Returns how many blocks are ready or wait in quarantine. */
static inline uint64_t ring_count(const struct checked_class *class) {
  return load_relaxed(&class->end) - load_relaxed(&class->first);
}
static inline bool has_room(const struct checked_class *class) { return class->ready < class->ready_max; }

/* Takes a block of a cache, which must be given a state. Nothing is called on the way, so no register is saved. False:
 * none is drawn. */
static ALWAYS_INLINE bool checked_take_drawn(struct checked_cache *cache, struct checked_class *class,
                                             struct kept *taken) {
  owner_step_begin(); /* before the look: a handler may take the block */
  bool is_drawn = LIKELY(class->next.block != NULL);
  if (is_drawn)
    *taken = next_take(cache, class);
  owner_step_end();
  return is_drawn;
}

/* Makes room for a free where there is none, or draws a block for a malloc. False: a slow path must. */
bool checked_make_room(struct checked_class *class);
bool checked_draw(unsigned cls);

/* What free finds out about a block for the calling thread's cache. */
struct checked_spot {
  struct map_leaf *leaf;
  struct checked_class *class;
};

/* False: it is no checked block, or the thread has no cache, or is busy. Blocks must be checked. */
static ALWAYS_INLINE bool checked_find(const void *block, struct checked_spot *spot) {
  struct checked_cache *cache = cache_if_idle();
  if (UNLIKELY(cache == NULL) || UNLIKELY(load_relaxed(&observers_large_freed)))
    return false;
  struct map_leaf *leaf = map_leaf_or_null(block);
  if (UNLIKELY(leaf == NULL))
    return false;
  uint32_t entry = __atomic_load_n(map_leaf_entry(leaf, block), __ATOMIC_RELAXED);
  if (UNLIKELY(entry - checked.key >= CHECKED_POOLS << HAK_ENTRY_ID_SHIFT))
    return false;
  *spot = (struct checked_spot){.leaf = leaf, .class = class_of_entry(cache, entry)};
  return true;
}

/* A block between the two halves of a free. */
struct checked_freed {
  struct checked_class *class;
  _Atomic uint16_t *state;
};

/* The first half of a free into the calling thread's cache: the checks of checked_retire. The caller must clear the
 * block, then call checked_free_end. False: nothing happened, and a slow path must free the block or tell what is wrong
 * with it. There is no room, it is no live block, or its canary is not of the present secret. */
static ALWAYS_INLINE bool checked_free_begin(void *block, bool has_canary, struct checked_freed *freed) {
  struct checked_spot spot;
  if (UNLIKELY(!checked_find(block, &spot)))
    return false;
  struct checked_class *class = spot.class;
  for (size_t at = 0; at < CHECKED_PREFETCH_FREED; at += CACHE_LINE) /* while the checks wait for state and canary */
    __builtin_prefetch((char *)block + at, 1);
  owner_step_begin(); /* before the look: a handler may fill the last place */
  _Atomic uint16_t *state = NULL;
  if (LIKELY(has_room(class)) &&
      LIKELY((state = state_in(spot.leaf, block, class->inverse, class->slab_mask)) != NULL)) {
    uint16_t value = load_relaxed(state);
    if (LIKELY(value >= STATE_LIVE) &&
        LIKELY(!has_canary || canary_is_ours((char *)block + size_by(class->block_bytes, value)))) {
      state_retire(block, state, value);
      *freed = (struct checked_freed){.class = class, .state = state};
      return true;
    }
  }
  owner_step_end();
  return false;
}

static ALWAYS_INLINE void checked_free_end(void *block, struct checked_freed freed) {
  kept_put(freed.class, (struct kept){.block = block, .state = freed.state});
  owner_step_end();
}
