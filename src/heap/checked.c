#include "heap/checked.h"

#include "base/options.h"
#include "heap/slow_path.h"
#include "os/fault.h"
#include "pages/metadata.h"
#include "pages/page_map.h"

#include <string.h>

#define READY_MAX 16u
#define READY_START 4u /* doubles when it is not enough */
#define RING_MAX 64u
#define READY_BYTES_MAX ((size_t)16 * 1024) /* of a class; at least READY_START blocks */
#define RING_BYTES_MAX ((size_t)64 * 1024)  /* of a class; at least one block */
#define OLDER_MAX 7u                        /* forks of forks from here on share the secret */

/* A free block and its state. */
struct kept {
  void *block;
  _Atomic uint16_t *state;
};

/* The free blocks of a class in one thread, numbered in a ring of places: from `first` on the ready ones, from `middle`
 * on those in quarantine, up to `end`. Without places, nothing can be taken or put. Other threads read the numbers;
 * filled: blocks that came from the slabs, less those that went back. So first + filled blocks were given out, and
 * `end` were freed. */
struct checked_class {
  struct kept *places;
  _Atomic uint64_t first, end;
  uint64_t middle;
  uint64_t reciprocal; /* of size_classes, as are the next one and slab_order */
  uint32_t block_bytes;
  uint16_t mask;  /* of a number: its place */
  uint16_t limit; /* on ready and waiting blocks together */
  uint16_t stay;  /* so many ready ones stay, so that there is a choice */
  uint8_t ready_max, ring_max;
  uint8_t order; /* of the piece of metadata that holds the places */
  uint8_t slab_order;
  _Atomic uint64_t filled;
};

struct checked_cache {
  struct {
    _Alignas(CACHE_LINE) struct checked_class of;
  } classes[HAK_CLASS_COUNT];
  uint64_t random;
};
_Atomic uint32_t checked_first_id;
size_t checked_room;

static struct {
  bool has_canary, is_zeroed, is_random;
  uint32_t ring_max;
  uint32_t older_count;
  struct secret {
    uint64_t mask, factor;
  } secret, older[OLDER_MAX];
} checked;

/* --- secrets and chance --- */

/* A live block of before a fork has the canary of an older secret, so the child keeps the old ones. The process has one
 * thread then. */
static void secret_draw(void) {
  if (checked.older_count == OLDER_MAX)
    return;
  if (checked.secret.factor != 0)
    checked.older[checked.older_count++] = checked.secret;
  os_random(&checked.secret, sizeof checked.secret);
  checked.secret.factor |= 1;
}

/* The lowest byte, which a string's end would overwrite first, is not zero. */
static inline uint64_t canary_of(const char *end, struct secret secret) {
  uint64_t word = ((uintptr_t)end ^ secret.mask) * secret.factor;
  return (word ^ word >> 32) | 1;
}

static inline void canary_set(char *end) {
  uint64_t word = canary_of(end, checked.secret);
  if (LIKELY(checked.has_canary))
    memcpy(end, &word, sizeof word);
}

static NOINLINE bool canary_is_older(const char *end, uint64_t word) {
  for (uint32_t i = 0; i < checked.older_count; i++)
    if (word == canary_of(end, checked.older[i]))
      return true;
  return false;
}

static inline bool canary_is_there(const char *end) {
  uint64_t word;
  memcpy(&word, end, sizeof word);
  return LIKELY(word == canary_of(end, checked.secret)) || canary_is_older(end, word);
}

/* Returns a number below `count`: Wang Yi's wyrand. It is fast, not cryptographic: who sees many addresses may foresee
 * the next ones. */
static inline uint32_t random_below(struct checked_cache *cache, uint32_t count) {
  cache->random += UINT64_C(0xa0761d6478bd642f);
  __uint128_t product = (__uint128_t)cache->random * (cache->random ^ UINT64_C(0xe7037ed1a0b428db));
  uint64_t bits = (uint64_t)(product >> 64) ^ (uint64_t)product;
  return (uint32_t)((bits >> 32) * count >> 32);
}

/* --- states --- */

/* The states of 2 MiB: an array for each slab, at its first unit. The table is made when needed, for good. An array is
 * replaced when the unit serves a class of more blocks. Then none of its blocks lives. */
struct states {
  _Atomic(_Atomic uint16_t *) units[SUPERSLAB_UNITS];
  uint8_t orders[SUPERSLAB_UNITS]; /* of the pieces of metadata, under the lock of the slab's pool */
};

static struct states *states_made(const void *block) {
  _Atomic(void *) *place = map_states(block);
  void *none = NULL, *there = atomic_load_explicit(place, memory_order_acquire);
  if (LIKELY(there != NULL))
    return there;
  void *states = metadata_take_forever(sizeof(struct states));
  if (states == NULL || atomic_compare_exchange_strong(place, &none, states))
    return states;
  return none; /* another thread made one at the same time; this one is lost */
}

static char *slab_base(const void *block, unsigned order) {
  return (char *)round_down((uintptr_t)block, UNIT_BYTES << order);
}

/* Makes the array for a block's slab, if it is missing. The lock of the slab's pool is held. */
static bool states_cover(const void *block, unsigned cls) {
  char *base = slab_base(block, size_classes[cls].order);
  size_t bytes = (class_slab_bytes(cls) / class_bytes(cls) + 1) * sizeof(uint16_t); /* 1: the end, if any */
  if (class_slab_bytes(cls) % class_bytes(cls) == 0)
    bytes -= sizeof(uint16_t);
  unsigned order = METADATA_ORDER_MIN;
  while ((size_t)1 << order < bytes)
    order++;
  struct states *states = states_made(base);
  if (UNLIKELY(states == NULL))
    return false;
  size_t unit = map_unit_in_row(base);
  _Atomic uint16_t *array = atomic_load_explicit(&states->units[unit], memory_order_relaxed);
  if (LIKELY(array != NULL && states->orders[unit] >= order))
    return true;
  _Atomic uint16_t *longer = metadata_take(order);
  if (longer != NULL)
    memset((void *)longer, 0, (size_t)1 << order);
  atomic_store_explicit(&states->units[unit], longer, memory_order_release);
  if (array != NULL)
    metadata_give((void *)array, states->orders[unit]);
  states->orders[unit] = (uint8_t)order;
  return longer != NULL;
}

/* Returns the state of a block of the class. NULL: the address, in a unit of the class, is not the start of one. The
 * end of a slab, too short for a block, has a state of its own: "never used". */
static ALWAYS_INLINE _Atomic uint16_t *state_in(struct map_leaf *leaf, const void *block, uint64_t reciprocal,
                                                size_t bytes, unsigned order) {
  uintptr_t base = round_down((uintptr_t)block, UNIT_BYTES << order);
  size_t offset = (uintptr_t)block - base;
  size_t index = (size_t)(offset * reciprocal >> RECIPROCAL_SHIFT);
  struct states *states = atomic_load_explicit(map_leaf_states(leaf, block), memory_order_acquire);
  if (UNLIKELY(index * bytes != offset || states == NULL))
    return NULL;
  _Atomic uint16_t *array =
      atomic_load_explicit(&states->units[base >> HAK_UNIT_SHIFT & (SUPERSLAB_UNITS - 1)], memory_order_acquire);
  return LIKELY(array != NULL) ? array + index : NULL;
}
static inline _Atomic uint16_t *state_of(const void *block, unsigned cls) {
  const struct size_class *class = &size_classes[cls];
  return state_in(map_leaf(block), block, class->reciprocal, class->bytes, class->order);
}

static inline size_t size_by(size_t bytes, uint16_t state) { return bytes - (state - STATE_LIVE); }

/* --- blocks --- */

typedef uint64_t vector __attribute__((vector_size(BLOCK_ALIGNMENT), may_alias));
#define PREFETCH_BYTES (4 * CACHE_LINE)
#define STRIDE 4u /* vectors that are read at a time, from each end */

/* The length is a multiple of 16. The strides from both ends meet or overlap in the middle, so that the loop's end
 * is the only branch. */
static inline bool is_zero(const void *block, size_t bytes) {
  const vector *at = block, *end = at + bytes / BLOCK_ALIGNMENT;
  vector any = {0, 0};
  if (bytes < STRIDE * BLOCK_ALIGNMENT) {
    for (; at < end; at++)
      any |= *at;
    return (any[0] | any[1]) == 0;
  }
  do {
    end -= STRIDE;
    any |= (at[0] | at[1]) | (at[2] | at[3]);
    any |= (end[0] | end[1]) | (end[2] | end[3]);
    at += STRIDE;
  } while (at < end);
  return (any[0] | any[1]) == 0;
}

/* Makes a free block live. bytes - size is at most CHECKED_SLACK_MAX. */
static inline void *block_begin(struct kept kept, size_t bytes, size_t size) {
  if (LIKELY(checked.is_zeroed) && LIKELY(atomic_load_explicit(kept.state, memory_order_relaxed) == 1) &&
      UNLIKELY(!is_zero(kept.block, bytes)))
    fault_written_after_free(kept.block);
  canary_set((char *)kept.block + size);
  atomic_store_explicit(kept.state, (uint16_t)(bytes - size + STATE_LIVE), memory_order_relaxed);
  return kept.block;
}

/* Ends the program unless the block, whose state it is, lives, and its canary is unchanged. */
static ALWAYS_INLINE void check_live(void *block, size_t bytes, const _Atomic uint16_t *state, uint16_t *value) {
  if (UNLIKELY(state == NULL))
    fault_not_a_block(block);
  *value = atomic_load_explicit(state, memory_order_relaxed);
  if (UNLIKELY(*value < STATE_LIVE)) {
    if (*value == 0)
      fault_not_a_block(block);
    fault_double_free(block);
  }
  if (LIKELY(checked.has_canary) && UNLIKELY(!canary_is_there((char *)block + size_by(bytes, *value))))
    fault_written_beyond(block);
}

static ALWAYS_INLINE void retire(void *block, size_t bytes, _Atomic uint16_t *state) {
  uint16_t value;
  check_live(block, bytes, state, &value);
  if (UNLIKELY(!atomic_compare_exchange_strong_explicit(state, &value, 1, memory_order_acq_rel, memory_order_relaxed)))
    fault_double_free(block); /* by two threads at once */
  if (LIKELY(checked.is_zeroed))
    memset(block, 0, bytes);
}

void checked_retire(void *block, uint32_t entry) {
  unsigned cls = entry_class(entry);
  retire(block, class_bytes(cls), state_of(block, cls));
}

size_t checked_size(const void *block, uint32_t entry) {
  _Atomic uint16_t *state = state_of(block, entry_class(entry));
  uint16_t value = state ? atomic_load_explicit(state, memory_order_relaxed) : 0;
  return value < STATE_LIVE ? 0 : size_by(class_bytes(entry_class(entry)), value);
}

size_t checked_resize(void *block, uint32_t entry, size_t size, bool *resized) {
  unsigned cls = entry_class(entry);
  uint16_t value;
  _Atomic uint16_t *state = state_of(block, cls);
  size_t bytes = class_bytes(cls);
  check_live(block, bytes, state, &value);
  size_t before = size_by(bytes, value);
  size_t room = checked_room;
  *resized = size + room <= bytes && size >= bytes / 2 && bytes - size <= CHECKED_SLACK_MAX;
  if (*resized) {
    char *end = (char *)block + min_size(size, before);
    memset(end, 0, min_size((size_t)((char *)block + before + room - end), bytes));
    canary_set((char *)block + size);
    atomic_store_explicit(state, (uint16_t)(bytes - size + STATE_LIVE), memory_order_relaxed);
  }
  return before;
}

/* --- caches --- */

struct pool *checked_pool(unsigned cls) {
  return pool_by_id(atomic_load_explicit(&checked_first_id, memory_order_relaxed) + cls % CHECKED_POOLS);
}

static struct checked_class *class_in(struct checked_cache *cache, unsigned cls) { return &cache->classes[cls].of; }

static inline uint64_t count_of(const _Atomic uint64_t *count) {
  return atomic_load_explicit(count, memory_order_relaxed);
}
static inline void count_set(_Atomic uint64_t *count, uint64_t value) {
  atomic_store_explicit(count, value, memory_order_relaxed);
}
static inline struct kept *place_of(const struct checked_class *class, uint64_t number) {
  return &class->places[number & class->mask];
}
static size_t ready_count(const struct checked_class *class) {
  return (size_t)(class->middle - count_of(&class->first));
}

static bool cache_open(struct heap *heap) {
  if (heap->checked == NULL) {
    struct checked_cache *cache = metadata_take_forever(sizeof *cache);
    if (cache != NULL)
      os_random(&cache->random, sizeof cache->random);
    heap->checked = cache;
  }
  return heap->checked != NULL;
}

/* Makes room for more ready blocks of a class, up to its bound. What there is stays if memory is out. */
static void class_grow(struct checked_class *class, unsigned cls) {
  size_t bytes = class_bytes(cls), most = min_size(max_size(READY_BYTES_MAX / bytes, READY_START), READY_MAX);
  size_t ready_max = min_size(max_size((size_t)class->ready_max * 2, READY_START), most);
  size_t ring_max = min_size(max_size(RING_BYTES_MAX / bytes, 1), checked.ring_max);
  size_t limit = ring_max + ready_max, count = 1;
  while (count < limit)
    count *= 2;
  unsigned order = METADATA_ORDER_MIN;
  while (((size_t)1 << order) < count * sizeof(struct kept))
    order++;
  struct kept *places = ready_max > class->ready_max ? metadata_take(order) : NULL;
  if (places == NULL)
    return;
  if (class->places != NULL) {
    for (uint64_t i = count_of(&class->first), end = count_of(&class->end); i != end; i++)
      places[i & (count - 1)] = *place_of(class, i);
    metadata_give(class->places, class->order);
  }
  class->places = places;
  class->reciprocal = size_classes[cls].reciprocal;
  class->block_bytes = (uint32_t)bytes;
  class->slab_order = size_classes[cls].order;
  class->mask = (uint16_t)(count - 1);
  class->limit = (uint16_t)limit;
  class->stay = (uint16_t)(ready_max / 4);
  class->ready_max = (uint8_t)ready_max;
  class->ring_max = (uint8_t)ring_max;
  class->order = (uint8_t)order;
}

/* Takes one of `count` ready blocks. The first one moves to its place. */
static ALWAYS_INLINE void *ready_pop(struct checked_cache *cache, struct checked_class *class, size_t count,
                                     size_t size) {
  hak_assert(count > 0 && count == ready_count(class));
  uint64_t first = count_of(&class->first);
  uint32_t drawn = LIKELY(checked.is_random) ? random_below(cache, (uint32_t)count) : (uint32_t)count - 1;
  struct kept *place = place_of(class, first + drawn), taken = *place;
  *place = *place_of(class, first);
  count_set(&class->first, first + 1);
  return block_begin(taken, class->block_bytes, size);
}

void *checked_take_ready(unsigned cls, size_t size) {
  struct heap *heap = heap_if_idle();
  if (UNLIKELY(heap == NULL || heap->checked == NULL))
    return NULL;
  struct checked_cache *cache = heap->checked;
  struct checked_class *class = class_in(cache, cls);
  owner_step_begin(); /* before the look: a handler may take the last block */
  size_t count = ready_count(class);
  if (UNLIKELY(count <= class->stay)) {
    owner_step_end();
    return NULL;
  }
  void *block = ready_pop(cache, class, count, size);
  owner_step_end();
  return block;
}

/* If the pool's lock is never given, the blocks are lost. */
static void slabs_give(unsigned cls, void *const *blocks, size_t count) {
  struct pool *pool = checked_pool(cls);
  if (!pool_lock(pool))
    return;
  slab_set_give(&pool->slabs, cls, blocks, count);
  pool_unlock(pool);
}

/* The ready blocks that waited last go back, and the first ones take their places. */
static void ready_give(struct checked_class *class, unsigned cls, size_t count) {
  void *blocks[RING_MAX + READY_MAX];
  uint64_t first = count_of(&class->first);
  for (size_t i = 0; i < count; i++) {
    struct kept *last = place_of(class, class->middle - 1 - i);
    blocks[i] = last->block;
    *last = *place_of(class, first + i);
  }
  slabs_give(cls, blocks, count);
  count_set(&class->first, first + count);
  count_set(&class->filled, count_of(&class->filled) - count);
}

/* Takes up to `wanted` blocks that have states to slots[-1] downwards. Returns how many. */
static size_t take_with_states(struct pool *pool, unsigned cls, void **slots, size_t wanted) {
  size_t taken = slab_set_take(&pool->slabs, cls, slots, wanted);
  void **blocks = slots - taken;
  for (size_t i = 0; i < taken; i++)
    if (!states_cover(blocks[i], cls)) { /* out of memory */
      slab_set_give(&pool->slabs, cls, blocks, taken);
      return 0;
    }
  return taken;
}

static void ready_fill(struct checked_class *class, unsigned cls) {
  struct pool *pool = checked_pool(cls);
  void *slots[READY_MAX];
  size_t wanted = less(class->ready_max, ready_count(class));
  if (!pool_lock(pool))
    return;
  size_t taken = take_with_states(pool, cls, slots + wanted, wanted);
  pool_unlock(pool);
  void **blocks = slots + wanted - taken;
  uint64_t first = count_of(&class->first) - taken;
  for (size_t i = 0; i < taken; i++)
    *place_of(class, first + i) = (struct kept){.block = blocks[i], .state = state_of(blocks[i], cls)};
  count_set(&class->filled, count_of(&class->filled) + taken);
  count_set(&class->first, first);
}

static bool slabs_have_free(unsigned cls) {
  struct pool *pool = checked_pool(cls);
  if (!pool_lock(pool))
    return false;
  bool is_there = slab_set_has_free(&pool->slabs, cls);
  pool_unlock(pool);
  return is_there;
}

void *checked_take(struct heap *heap, unsigned cls, size_t size, bool may_open) {
  if (!cache_open(heap))
    return NULL;
  struct checked_class *class = class_in(heap->checked, cls);
  if (ready_count(class) <= class->stay && (LIKELY(may_open) || slabs_have_free(cls))) {
    class_grow(class, cls);
    ready_fill(class, cls);
  }
  size_t count = ready_count(class);
  return count > 0 ? ready_pop(heap->checked, class, count, size) : NULL;
}

/* Puts a block behind the last one. If the quarantine is full, its oldest block is ready then. */
static inline void keep(struct checked_class *class, struct kept freed) {
  uint64_t end = count_of(&class->end);
  hak_assert(end - count_of(&class->first) < class->limit);
  *place_of(class, end) = freed;
  count_set(&class->end, end + 1);
  class->middle += end - class->middle >= class->ring_max;
}

static inline bool has_room(const struct checked_class *class) {
  return count_of(&class->end) - count_of(&class->first) < class->limit;
}

bool checked_free_ready(void *block) {
  struct heap *heap = heap_if_idle();
  if (UNLIKELY(!map_covers(block) || heap == NULL || heap->checked == NULL) ||
      UNLIKELY(atomic_load_explicit(&observers_large_freed, memory_order_relaxed)))
    return false;
  struct map_leaf *leaf = map_leaf(block);
  uint32_t entry = __atomic_load_n(map_leaf_entry(leaf, block), __ATOMIC_RELAXED);
  if (UNLIKELY(!entry_is_checked(entry)))
    return false;
  for (size_t at = 0; at < PREFETCH_BYTES; at += CACHE_LINE) /* while the checks wait for the state and the canary */
    __builtin_prefetch((char *)block + at, 1);
  unsigned cls = entry_class(entry);
  struct checked_class *class = class_in(heap->checked, cls);
  owner_step_begin(); /* before the look: a handler may fill the last place */
  if (UNLIKELY(!has_room(class))) {
    owner_step_end();
    return false;
  }
  _Atomic uint16_t *state = state_in(leaf, block, class->reciprocal, class->block_bytes, class->slab_order);
  retire(block, class->block_bytes, state);
  keep(class, (struct kept){.block = block, .state = state});
  owner_step_end();
  return true;
}

void checked_deliver(void *block, uint32_t entry) { slabs_give(entry_class(entry), &block, 1); }

void checked_put(struct heap *heap, void *block, uint32_t entry) {
  unsigned cls = entry_class(entry);
  struct checked_class *class = cache_open(heap) ? class_in(heap->checked, cls) : NULL;
  if (class != NULL && !has_room(class))
    class_grow(class, cls);
  if (class == NULL || class->places == NULL) {
    checked_deliver(block, entry);
    return;
  }
  if (!has_room(class))
    ready_give(class, cls, class->ready_max / 2);
  keep(class, (struct kept){.block = block, .state = state_of(block, cls)});
}

static void class_end(struct checked_class *class) {
  metadata_give(class->places, class->order);
  class->places = NULL;
  class->limit = class->stay = class->ready_max = 0;
}

void checked_flush(struct heap *heap) {
  for (unsigned cls = 1; heap->checked != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = class_in(heap->checked, cls);
    if (class->places == NULL)
      continue;
    class->middle = count_of(&class->end); /* nothing waits any more */
    ready_give(class, cls, ready_count(class));
    class_end(class);
  }
}

/* Numbers may be half changed. What was given out and freed keeps its count. */
void checked_drop(struct heap *heap) {
  for (unsigned cls = 1; heap->checked != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = class_in(heap->checked, cls);
    if (class->places == NULL)
      continue;
    uint64_t given = count_of(&class->first) + count_of(&class->filled), end = count_of(&class->end);
    count_set(&class->first, end);
    count_set(&class->filled, given - end);
    class->middle = end;
    class_end(class);
  }
}

void checked_in_child(struct heap *self) {
  if (!checked_is_on())
    return;
  secret_draw();
  if (self != NULL && self->checked != NULL)
    os_random(&self->checked->random, sizeof self->checked->random);
}

/* The owner may change the numbers meanwhile, so the difference may be negative. */
size_t checked_cached_bytes(const struct heap *heap) {
  size_t bytes = 0;
  for (unsigned cls = 1; heap->checked != NULL && cls < HAK_CLASS_COUNT; cls++) {
    const struct checked_class *class = &heap->checked->classes[cls].of;
    int64_t blocks = (int64_t)(count_of(&class->end) - count_of(&class->first));
    bytes += blocks > 0 ? (size_t)blocks * class_bytes(cls) : 0;
  }
  return bytes;
}

struct class_counts checked_counts(const struct heap *heap, unsigned cls) {
  if (heap->checked == NULL)
    return (struct class_counts){0};
  const struct checked_class *class = &heap->checked->classes[cls].of;
  return (struct class_counts){.allocated = count_of(&class->first) + count_of(&class->filled),
                               .freed = count_of(&class->end)};
}

void checked_begin(struct pool *const pools[CHECKED_POOLS]) {
  checked.has_canary = option_value(OPTION_CANARY) == SWITCH_ON;
  checked_room = checked.has_canary ? CANARY_BYTES : 0;
  checked.is_zeroed = option_value(OPTION_ZERO_FREED) == SWITCH_ON;
  checked.is_random = option_value(OPTION_RANDOM_ORDER) == SWITCH_ON;
  checked.ring_max = (uint32_t)option_value(OPTION_QUARANTINE);
  secret_draw();
  slabs_are_wiped = true;
  atomic_store_explicit(&checked_first_id, pools[0]->id, memory_order_release);
}
