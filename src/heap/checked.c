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
#define STATE_LIVE 2u                       /* and above */
#define SLACK_MAX (UINT16_MAX - STATE_LIVE)
#define OLDER_MAX 7u /* forks of forks from here on share the secret */

/* A free block and its state. */
struct kept {
  void *block;
  _Atomic uint16_t *state;
};

/* The first `ring_max` places are the ring, with zeros where nothing was freed yet; the ready blocks follow. Without
 * places, nothing can be taken or put. Other threads read the counts; filled: blocks that came from the slabs, less
 * those that went back. */
struct checked_class {
  struct kept *places;
  uint32_t block_bytes;
  uint8_t ready_count, ready_max;
  uint8_t ready_stay; /* so many stay, so that there is a choice */
  uint8_t ring_next, ring_max;
  uint8_t order; /* of the piece of metadata that holds the places */
  _Atomic uint64_t given, taken_back, filled;
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

#define STATES_PER_UNIT (UNIT_BYTES / BLOCK_ALIGNMENT)
#define STATES_SHIFT (37 * CACHE_LINE / sizeof(uint16_t))

/* The states of 2 MiB; those of a slab's blocks lie from its first unit on. Made when needed, for good. The order
 * differs from unit to unit, because first states at multiples of 8 KiB would share a few sets of the cache. */
struct states {
  _Atomic uint16_t units[SUPERSLAB_UNITS][STATES_PER_UNIT];
};

/* Two threads may make one at the same time; then one piece is lost. */
static bool states_cover(const void *block) {
  _Atomic(void *) *place = map_states(block);
  void *none = NULL;
  if (LIKELY(atomic_load_explicit(place, memory_order_acquire) != NULL))
    return true;
  struct states *states = metadata_take_forever(sizeof *states);
  if (states != NULL)
    atomic_compare_exchange_strong(place, &none, states);
  return states != NULL;
}

/* Returns the state of a block of the class. NULL: the address, in a unit of the class, is not the start of one. The
 * end of a slab, too short for a block, has a state of its own: "never used". */
static inline _Atomic uint16_t *state_of(const void *block, unsigned cls) {
  const struct size_class *class = &size_classes[cls];
  uintptr_t base = round_down((uintptr_t)block, UNIT_BYTES << class->order);
  size_t offset = (uintptr_t)block - base;
  size_t index = (size_t)(offset * class->reciprocal >> RECIPROCAL_SHIFT);
  struct states *states = atomic_load_explicit(map_states(block), memory_order_acquire);
  if (UNLIKELY(index * class->bytes != offset || states == NULL))
    return NULL;
  size_t number = base >> HAK_UNIT_SHIFT, unit = number & (SUPERSLAB_UNITS - 1);
  return &states->units[unit + index / STATES_PER_UNIT][(index ^ number * STATES_SHIFT) % STATES_PER_UNIT];
}

static inline size_t size_by(unsigned cls, uint16_t state) { return class_bytes(cls) - (state - STATE_LIVE); }

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

/* Makes a free block live. */
static inline void *block_begin(struct kept kept, size_t bytes, size_t size) {
  if (checked.is_zeroed && atomic_load_explicit(kept.state, memory_order_relaxed) == 1 &&
      UNLIKELY(!is_zero(kept.block, bytes)))
    fault_written_after_free(kept.block);
  size = max_size(size, less(bytes, SLACK_MAX));
  canary_set((char *)kept.block + size);
  atomic_store_explicit(kept.state, (uint16_t)(bytes - size + STATE_LIVE), memory_order_relaxed);
  return kept.block;
}

/* Ends the program unless the block is one, lives, and its canary is unchanged. Returns its state. */
static inline _Atomic uint16_t *state_of_live(void *block, unsigned cls, uint16_t *value) {
  _Atomic uint16_t *state = state_of(block, cls);
  if (UNLIKELY(state == NULL))
    fault_not_a_block(block);
  *value = atomic_load_explicit(state, memory_order_relaxed);
  if (UNLIKELY(*value < STATE_LIVE)) {
    if (*value == 0)
      fault_not_a_block(block);
    fault_double_free(block);
  }
  if (checked.has_canary && UNLIKELY(!canary_is_there((char *)block + size_by(cls, *value))))
    fault_written_beyond(block);
  return state;
}

static inline _Atomic uint16_t *retire(void *block, unsigned cls) {
  uint16_t value;
  _Atomic uint16_t *state = state_of_live(block, cls, &value);
  if (UNLIKELY(!atomic_compare_exchange_strong_explicit(state, &value, 1, memory_order_acq_rel, memory_order_relaxed)))
    fault_double_free(block); /* by two threads at once */
  if (checked.is_zeroed)
    memset(block, 0, class_bytes(cls));
  return state;
}

void checked_retire(void *block, uint32_t entry) { retire(block, entry_class(entry)); }

size_t checked_size(const void *block, uint32_t entry) {
  _Atomic uint16_t *state = state_of(block, entry_class(entry));
  uint16_t value = state ? atomic_load_explicit(state, memory_order_relaxed) : 0;
  return value < STATE_LIVE ? 0 : size_by(entry_class(entry), value);
}

size_t checked_resize(void *block, uint32_t entry, size_t size, bool *resized) {
  unsigned cls = entry_class(entry);
  uint16_t value;
  _Atomic uint16_t *state = state_of_live(block, cls, &value);
  size_t bytes = class_bytes(cls), before = size_by(cls, value);
  size_t room = checked_room;
  *resized = size + room <= bytes && size >= bytes / 2 && bytes - size <= SLACK_MAX;
  if (*resized) {
    char *end = (char *)block + min_size(size, before);
    memset(end, 0, min_size((size_t)((char *)block + before + room - end), bytes));
    canary_set((char *)block + size);
    atomic_store_explicit(state, (uint16_t)(bytes - size + STATE_LIVE), memory_order_relaxed);
  }
  return before;
}

/* --- caches --- */

static struct pool *pool_of_class(unsigned cls) {
  return pool_by_id(atomic_load_explicit(&checked_first_id, memory_order_relaxed) + cls % CHECKED_POOLS);
}

static inline void count_add(_Atomic uint64_t *count, uint64_t change) {
  atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + change, memory_order_relaxed);
}

static struct checked_class *class_in(struct checked_cache *cache, unsigned cls) { return &cache->classes[cls].of; }
static struct kept *ready_of(const struct checked_class *class) { return class->places + class->ring_max; }

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
  size_t size = (ring_max + ready_max) * sizeof(struct kept);
  unsigned order = METADATA_ORDER_MIN;
  while (((size_t)1 << order) < size)
    order++;
  struct kept *places = ready_max > class->ready_max ? metadata_take(order) : NULL;
  if (places == NULL)
    return;
  memset(places, 0, size);
  if (class->places != NULL) {
    memcpy(places, class->places, (ring_max + class->ready_count) * sizeof(struct kept));
    metadata_give(class->places, class->order);
  }
  class->places = places;
  class->block_bytes = (uint32_t)bytes;
  class->ready_max = (uint8_t)ready_max;
  class->ready_stay = (uint8_t)(ready_max / 4);
  class->ring_max = (uint8_t)ring_max;
  class->order = (uint8_t)order;
}

static inline __attribute__((always_inline)) void *ready_pop(struct checked_cache *cache, struct checked_class *class,
                                                             size_t size) {
  hak_assert(class->ready_count > 0);
  uint32_t last = --class->ready_count;
  struct kept *ready = ready_of(class), *place = &ready[checked.is_random ? random_below(cache, last + 1) : last];
  struct kept taken = *place;
  *place = ready[last];
  count_add(&class->given, 1);
  return block_begin(taken, class->block_bytes, size);
}

void *checked_take_ready(unsigned cls, size_t size) {
  struct heap *heap = heap_if_idle();
  if (UNLIKELY(heap == NULL || heap->checked == NULL))
    return NULL;
  struct checked_class *class = class_in(heap->checked, cls);
  owner_step_begin(); /* before the look: a handler may take the last block */
  void *block = LIKELY(class->ready_count > class->ready_stay) ? ready_pop(heap->checked, class, size) : NULL;
  owner_step_end();
  return block;
}

/* If the pool's lock is never given, the blocks are lost. */
static void slabs_give(unsigned cls, void *const *blocks, size_t count) {
  struct pool *pool = pool_of_class(cls);
  if (!pool_lock(pool))
    return;
  slab_set_give(&pool->slabs, cls, blocks, count);
  pool_unlock(pool);
}

static void give_to_slabs(struct checked_class *class, unsigned cls, void *const *blocks, size_t count) {
  slabs_give(cls, blocks, count);
  count_add(&class->filled, -(uint64_t)count);
}

static void ready_fill(struct checked_class *class, unsigned cls) {
  struct pool *pool = pool_of_class(cls);
  void *slots[READY_MAX];
  size_t wanted = class->ready_max - class->ready_count;
  if (!pool_lock(pool))
    return;
  size_t taken = slab_set_take(&pool->slabs, cls, slots + wanted, wanted);
  pool_unlock(pool);
  void **first = slots + wanted - taken;
  count_add(&class->filled, taken);
  for (size_t i = 0; i < taken; i++)
    if (!states_cover(first[i])) { /* out of memory */
      give_to_slabs(class, cls, first, taken);
      return;
    }
  for (size_t i = 0; i < taken; i++)
    ready_of(class)[class->ready_count++] = (struct kept){.block = first[i], .state = state_of(first[i], cls)};
}

void *checked_take(struct heap *heap, unsigned cls, size_t size) {
  if (!cache_open(heap))
    return NULL;
  struct checked_class *class = class_in(heap->checked, cls);
  if (class->ready_count <= class->ready_stay) {
    class_grow(class, cls);
    ready_fill(class, cls);
  }
  return class->ready_count > 0 ? ready_pop(heap->checked, class, size) : NULL;
}

/* Puts a block into the ring, and what was there longest into ready, which has room. */
static inline void keep(struct checked_class *class, struct kept freed) {
  count_add(&class->taken_back, 1);
  if (LIKELY(class->ring_max > 0)) {
    struct kept *place = &class->places[class->ring_next], oldest = *place;
    *place = freed;
    class->ring_next = (uint8_t)(class->ring_next + 1 == class->ring_max ? 0 : class->ring_next + 1);
    if (oldest.block == NULL)
      return;
    freed = oldest;
  }
  hak_assert(class->ready_count < class->ready_max);
  ready_of(class)[class->ready_count++] = freed;
}

bool checked_free_ready(void *block, unsigned cls) {
  struct heap *heap = heap_if_idle();
  if (UNLIKELY(heap == NULL || heap->checked == NULL))
    return false;
  for (size_t at = 0; at < PREFETCH_BYTES; at += CACHE_LINE) /* while the checks wait for the state and the canary */
    __builtin_prefetch((char *)block + at, 1);
  struct checked_class *class = class_in(heap->checked, cls);
  owner_step_begin(); /* before the look: a handler may fill the last place */
  bool has_room = LIKELY(class->ready_count < class->ready_max);
  if (has_room)
    keep(class, (struct kept){.block = block, .state = retire(block, cls)});
  owner_step_end();
  return has_room;
}

void checked_deliver(void *block, uint32_t entry) { slabs_give(entry_class(entry), &block, 1); }

static void ready_give(struct checked_class *class, unsigned cls, size_t count) {
  void *blocks[READY_MAX];
  for (size_t i = 0; i < count; i++)
    blocks[i] = ready_of(class)[--class->ready_count].block;
  give_to_slabs(class, cls, blocks, count);
}

void checked_put(struct heap *heap, void *block, uint32_t entry) {
  unsigned cls = entry_class(entry);
  struct checked_class *class = cache_open(heap) ? class_in(heap->checked, cls) : NULL;
  if (class != NULL && class->ready_count == class->ready_max)
    class_grow(class, cls);
  if (class == NULL || class->places == NULL) {
    checked_deliver(block, entry);
    return;
  }
  if (class->ready_count == class->ready_max)
    ready_give(class, cls, class->ready_max / 2);
  keep(class, (struct kept){.block = block, .state = state_of(block, cls)});
}

static void class_end(struct checked_class *class) {
  if (class->places != NULL)
    metadata_give(class->places, class->order);
  class->places = NULL;
  class->ready_count = class->ready_max = class->ready_stay = class->ring_next = class->ring_max = 0;
}

void checked_flush(struct heap *heap) {
  for (unsigned cls = 1; heap->checked != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = class_in(heap->checked, cls);
    if (class->places == NULL)
      continue;
    ready_give(class, cls, class->ready_count);
    for (uint32_t i = 0; i < class->ring_max; i++)
      if (class->places[i].block != NULL)
        give_to_slabs(class, cls, &class->places[i].block, 1);
    class_end(class);
  }
}

static uint64_t count_of(const _Atomic uint64_t *count) { return atomic_load_explicit(count, memory_order_relaxed); }

void checked_drop(struct heap *heap) {
  for (unsigned cls = 1; heap->checked != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = class_in(heap->checked, cls);
    if (class->places == NULL)
      continue;
    class_end(class);
    atomic_store_explicit(&class->filled, count_of(&class->given) - count_of(&class->taken_back), memory_order_relaxed);
  }
}

void checked_in_child(struct heap *self) {
  if (!checked_is_on())
    return;
  secret_draw();
  if (self != NULL && self->checked != NULL)
    os_random(&self->checked->random, sizeof self->checked->random);
}

/* The owner may change the counts meanwhile, so the difference may be negative. */
size_t checked_cached_bytes(const struct heap *heap) {
  size_t bytes = 0;
  for (unsigned cls = 1; heap->checked != NULL && cls < HAK_CLASS_COUNT; cls++) {
    const struct checked_class *class = &heap->checked->classes[cls].of;
    int64_t blocks = (int64_t)(count_of(&class->filled) + count_of(&class->taken_back) - count_of(&class->given));
    bytes += blocks > 0 ? (size_t)blocks * class_bytes(cls) : 0;
  }
  return bytes;
}

struct class_counts checked_counts(const struct heap *heap, unsigned cls) {
  if (heap->checked == NULL)
    return (struct class_counts){0};
  const struct checked_class *class = &heap->checked->classes[cls].of;
  return (struct class_counts){.allocated = count_of(&class->given), .freed = count_of(&class->taken_back)};
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
