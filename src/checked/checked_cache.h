/* checked_cache.h: a thread's free blocks that are checked: what most mallocs and frees of the preset `secure` do,
 * without a lock. checked.c has the rest. */
#pragma once

#include "checked/checked_block.h"
#include "heap/slow_path.h"

#define CHECKED_PREFETCH_FREED (4 * CACHE_LINE)
#define CHECKED_PREFETCH_NEXT (2 * CACHE_LINE)

/* The free blocks of a class in one thread, numbered in a ring of places: from `first` on the ready ones, from `middle`
 * on those in quarantine, up to `end`. Behind the ring lies the reserve, a stack. Without places, nothing can be taken
 * or put. The one at `first` is the next one: it was drawn among the ready ones. Other threads read the numbers;
 * filled: blocks that became ready from the reserve, less those that went there. So first + filled blocks were given
 * out, and `end` were freed. */
struct checked_class {
  struct kept *places;
  _Atomic uint64_t first, end;
  uint64_t middle;
  uint64_t reciprocal; /* of size_classes, as are the next one and slab_order */
  uint32_t block_bytes;
  uint16_t mask;  /* of a number: its place */
  uint16_t limit; /* on ready and waiting blocks together */
  uint8_t stay;   /* so many ready ones stay, so that there is a choice */
  uint8_t ready_max, ring_max;
  uint8_t kept_max; /* on ready blocks and the reserve together */
  uint8_t order;    /* of the piece of metadata that holds the places */
  uint8_t slab_order;
  _Atomic uint16_t reserve;
  _Atomic uint64_t filled;
};

struct checked_cache {
  struct {
    _Alignas(CACHE_LINE) struct checked_class of;
  } classes[HAK_CLASS_COUNT];
  uint64_t random;
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

static inline struct checked_class *class_in(struct checked_cache *cache, unsigned cls) {
  return &cache->classes[cls].of;
}
static inline uint64_t count_of(const _Atomic uint64_t *count) { return load_relaxed(count); }
static inline void count_set(_Atomic uint64_t *count, uint64_t value) { store_relaxed(count, value); }
static inline size_t reserve_count(const struct checked_class *class) { return load_relaxed(&class->reserve); }
static inline void reserve_set(struct checked_class *class, size_t count) {
  store_relaxed(&class->reserve, (uint16_t)count);
}
static inline struct kept *place_of(const struct checked_class *class, uint64_t number) {
  return &class->places[number & class->mask];
}
static inline size_t ready_count(const struct checked_class *class) {
  return (size_t)(class->middle - count_of(&class->first));
}

/* Draws the next one of `count` ready blocks, which is more than 0. It will be written soon. */
static ALWAYS_INLINE void next_draw(struct checked_cache *cache, struct checked_class *class, size_t count) {
  uint64_t first = count_of(&class->first);
  uint32_t drawn = LIKELY(checked.is_random) ? checked_random_below(cache, (uint32_t)count) : (uint32_t)count - 1;
  struct kept *place = place_of(class, first + drawn), next = *place, *front = place_of(class, first);
  *place = *front;
  *front = next;
  for (size_t at = 0; at < CHECKED_PREFETCH_NEXT; at += CACHE_LINE)
    __builtin_prefetch((char *)next.block + at, 1);
  __builtin_prefetch((const void *)next.state, 1);
}

/* Takes the next block, of `count` ready ones. */
static ALWAYS_INLINE void *next_take(struct checked_cache *cache, struct checked_class *class, size_t count,
                                     size_t size) {
  hak_assert(count > 0 && count == ready_count(class));
  uint64_t first = count_of(&class->first);
  struct kept taken = *place_of(class, first);
  count_set(&class->first, first + 1);
  if (LIKELY(count > 1))
    next_draw(cache, class, count - 1);
  return block_begin(taken, class->block_bytes, size);
}

/* Puts a block behind the last one. If the quarantine is full, its oldest block is ready then. */
static inline void kept_put(struct checked_class *class, struct kept freed) {
  uint64_t end = count_of(&class->end);
  hak_assert(end - count_of(&class->first) < class->limit);
  *place_of(class, end) = freed;
  count_set(&class->end, end + 1);
  class->middle += end - class->middle >= class->ring_max;
}

static inline bool has_room(const struct checked_class *class) {
  return count_of(&class->end) - count_of(&class->first) < class->limit;
}

/* Makes blocks of the reserve ready, up to as many as may be. Returns false if too few are. */
bool ready_refill(struct checked_cache *cache, struct checked_class *class);
/* Moves half of the ready blocks to the reserve. Returns false if it has no room. */
bool ready_shrink(struct checked_cache *cache, struct checked_class *class);

/* Returns a block of the calling thread's cache, or NULL. The block is at most CHECKED_SLACK_MAX longer than `size`. */
static ALWAYS_INLINE void *checked_take_ready(unsigned cls, size_t size) {
  struct heap *heap = heap_if_idle();
  struct checked_cache *cache = LIKELY(heap != NULL) ? heap->checked : NULL;
  if (UNLIKELY(cache == NULL))
    return NULL;
  struct checked_class *class = class_in(cache, cls);
  void *block = NULL;
  owner_step_begin(); /* before the look: a handler may take the last block */
  if (LIKELY(ready_count(class) > class->stay) || ready_refill(cache, class))
    block = next_take(cache, class, ready_count(class), size);
  owner_step_end();
  return block;
}

/* Frees a block into the calling thread's cache, after the checks of checked_retire. False if there is no room, or if
 * it is no checked block; then nothing happened. Blocks must be checked. */
static ALWAYS_INLINE bool checked_free_ready(void *block) {
  struct heap *heap = heap_if_idle();
  struct checked_cache *cache = LIKELY(heap != NULL) ? heap->checked : NULL;
  if (UNLIKELY(!map_covers(block) || cache == NULL) || UNLIKELY(load_relaxed(&observers_large_freed)))
    return false;
  struct map_leaf *leaf = map_leaf(block);
  uint32_t entry = __atomic_load_n(map_leaf_entry(leaf, block), __ATOMIC_RELAXED);
  if (UNLIKELY(!entry_is_checked(entry)))
    return false;
  for (size_t at = 0; at < CHECKED_PREFETCH_FREED; at += CACHE_LINE) /* while the checks wait for state and canary */
    __builtin_prefetch((char *)block + at, 1);
  struct checked_class *class = class_in(cache, entry_class(entry));
  owner_step_begin(); /* before the look: a handler may fill the last place */
  bool is_kept = LIKELY(has_room(class)) || ready_shrink(cache, class);
  if (LIKELY(is_kept)) {
    _Atomic uint16_t *state = state_in(leaf, block, class->reciprocal, class->block_bytes, class->slab_order);
    retire(block, class->block_bytes, state);
    kept_put(class, (struct kept){.block = block, .state = state});
  }
  owner_step_end();
  return is_kept;
}
