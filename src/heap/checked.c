#include "heap/checked.h"

#include "base/options.h"
#include "os/fault.h"
#include "pages/metadata.h"
#include "pages/page_map.h"

#include <string.h>

#define READY_MAX 16u
#define RING_MAX 64u
#define READY_BYTES_MAX ((size_t)16 * 1024) /* of a class; at least READY_MIN blocks */
#define READY_MIN 4u
#define RING_BYTES_MAX ((size_t)64 * 1024) /* of a class; at least one block */
#define STATE_LIVE 2u                      /* and above */
#define SLACK_MAX (UINT16_MAX - STATE_LIVE)
#define SECRETS_MAX 8u /* forks of forks from here on share the secret */

/* A free block and its state. */
struct kept {
  void *block;
  _Atomic uint16_t *state;
};

struct checked_class {
  uint32_t ready_count, ready_max;
  uint32_t ring_next, ring_max;
  uint64_t given, taken_back; /* blocks, to and from the program */
  struct kept ready[READY_MAX];
  struct kept ring[RING_MAX]; /* zeros where nothing was freed yet */
};

struct checked_cache {
  uint64_t random;
  _Atomic size_t bytes; /* of the blocks in it; written by the owner */
  struct checked_class classes[HAK_CLASS_COUNT];
};
_Atomic uint32_t checked_first_id;

static struct {
  bool has_canary, is_zeroed, is_random;
  uint32_t ring_max;
  _Atomic uint32_t secret_count;
  struct {
    uint64_t mask, factor;
  } secrets[SECRETS_MAX];
} checked;

/* --- secrets and chance --- */

/* A live block of before a fork has the canary of an older secret, so the child keeps the old ones. */
static void secret_draw(void) {
  uint32_t count = atomic_load_explicit(&checked.secret_count, memory_order_relaxed);
  if (count == SECRETS_MAX)
    return;
  os_random(&checked.secrets[count], sizeof checked.secrets[count]);
  checked.secrets[count].factor |= 1;
  atomic_store_explicit(&checked.secret_count, count + 1, memory_order_release);
}

/* The lowest byte, which a string's end would overwrite first, is not zero. */
static inline uint64_t canary_of(const char *end, uint32_t secret) {
  uint64_t word = ((uintptr_t)end ^ checked.secrets[secret].mask) * checked.secrets[secret].factor;
  return (word ^ word >> 32) | 1;
}

static inline uint32_t secret_now(void) {
  return atomic_load_explicit(&checked.secret_count, memory_order_acquire) - 1;
}

static inline void canary_set(char *end) {
  uint64_t word = canary_of(end, secret_now());
  if (checked.has_canary)
    memcpy(end, &word, sizeof word);
}

static inline bool canary_is_there(const char *end) {
  uint64_t word;
  memcpy(&word, end, sizeof word);
  uint32_t secret = secret_now();
  while (UNLIKELY(word != canary_of(end, secret)))
    if (secret-- == 0)
      return false;
  return true;
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

/* The states of 2 MiB; those of a slab's blocks begin at the place of its first unit. Made when needed, for good. */
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

/* Returns the state of a block of the class. NULL: the address, in a unit of the class, is not the start of one. */
static inline _Atomic uint16_t *state_of(const void *block, unsigned cls) {
  const struct size_class *class = &size_classes[cls];
  uintptr_t base = round_down((uintptr_t)block, UNIT_BYTES << class->order);
  size_t offset = (uintptr_t)block - base;
  size_t index = (size_t)(offset * class->reciprocal >> RECIPROCAL_SHIFT);
  struct states *states = atomic_load_explicit(map_states(block), memory_order_acquire);
  if (UNLIKELY(index * class->bytes != offset || index >= class->block_count || states == NULL))
    return NULL;
  size_t unit = (base >> HAK_UNIT_SHIFT) & (SUPERSLAB_UNITS - 1);
  return &states->units[unit + index / STATES_PER_UNIT][index % STATES_PER_UNIT];
}

static inline size_t size_by(unsigned cls, uint16_t state) { return class_bytes(cls) - (state - STATE_LIVE); }

/* --- blocks --- */

#define PAIR_BYTES ((size_t)16)
typedef uint64_t pair __attribute__((vector_size(PAIR_BYTES), may_alias));
#define STRIDE 4u /* pairs that are handled at a time */

/* The blocks' lengths are multiples of 16. Longer than STRIDE, the last stride overlaps the one before it, so that the
 * only branch is the loop's. */
static inline bool is_zero(const void *block, size_t bytes) {
  const pair *at = block, *end = at + bytes / PAIR_BYTES;
  pair any = {0, 0};
  if (bytes >= STRIDE * PAIR_BYTES) {
    for (; at < end - STRIDE; at += STRIDE)
      any |= at[0] | at[1] | at[2] | at[3];
    at = end - STRIDE;
  }
  for (; at < end; at++)
    any |= *at;
  return (any[0] | any[1]) == 0;
}

#define CLEAR_BYTES_MAX ((size_t)2048) /* longer blocks are cleared by the C library */

static inline void clear(void *block, size_t bytes) {
  const pair zeros = {0, 0};
  pair *at = block, *end = at + bytes / PAIR_BYTES;
  if (bytes > CLEAR_BYTES_MAX) {
    memset(block, 0, bytes);
    return;
  }
  if (bytes >= STRIDE * PAIR_BYTES) {
    for (; at < end - STRIDE; at += STRIDE) {
      at[0] = at[1] = at[2] = at[3] = zeros;
      __asm__("" ::: "memory");
    }
    at = end - STRIDE;
  }
  for (; at < end; at++) {
    *at = zeros;
    __asm__("" ::: "memory"); /* a call of memset would cost more */
  }
}

/* Makes a free block live. */
static inline void *block_begin(struct kept kept, unsigned cls, size_t size) {
  size_t bytes = class_bytes(cls);
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
    clear(block, class_bytes(cls));
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
  size_t room = checked.has_canary ? CANARY_BYTES : 0;
  *resized = size + room <= bytes && size >= bytes / 2 && bytes - size <= SLACK_MAX;
  if (*resized) {
    char *end = (char *)block + min_size(size, before);
    memset(end, 0, min_size((size_t)((char *)block + before + room - end), bytes));
    canary_set((char *)block + size);
    atomic_store_explicit(state, (uint16_t)(bytes - size + STATE_LIVE), memory_order_relaxed);
  }
  return before;
}

unsigned checked_class(size_t size, size_t alignment) {
  size_t bytes = max_size(size, 1) + (checked.has_canary ? CANARY_BYTES : 0);
  if (bytes > HAK_SMALL_MAX || size > HAK_SMALL_MAX)
    return 0;
  return alignment <= BLOCK_ALIGNMENT ? hak_class_of(bytes) : class_aligned(bytes, alignment);
}

/* --- caches --- */

static struct pool *pool_of_class(unsigned cls) {
  return pool_by_id(atomic_load_explicit(&checked_first_id, memory_order_relaxed) + cls % CHECKED_POOLS);
}

/* Makes the cache of a heap, which keeps it. Pages of classes that are not used stay untouched. */
static bool cache_open(struct heap *heap, unsigned cls) {
  if (heap->checked == NULL) {
    struct checked_cache *cache = metadata_take_forever(sizeof *cache);
    if (cache == NULL)
      return false;
    os_random(&cache->random, sizeof cache->random);
    heap->checked = cache;
  }
  struct checked_class *class = &heap->checked->classes[cls];
  size_t bytes = class_bytes(cls);
  class->ready_max = (uint32_t)min_size(max_size(READY_BYTES_MAX / bytes, READY_MIN), READY_MAX);
  class->ring_max = (uint32_t)min_size(max_size(RING_BYTES_MAX / bytes, 1), checked.ring_max);
  return true;
}

static inline void bytes_add(struct checked_cache *cache, size_t bytes) {
  atomic_store_explicit(&cache->bytes, atomic_load_explicit(&cache->bytes, memory_order_relaxed) + bytes,
                        memory_order_relaxed);
}

static inline void *ready_pop(struct checked_cache *cache, unsigned cls, size_t size) {
  struct checked_class *class = &cache->classes[cls];
  uint32_t last = --class->ready_count;
  uint32_t place = checked.is_random ? random_below(cache, last + 1) : last;
  struct kept kept = class->ready[place];
  class->ready[place] = class->ready[last];
  class->given++;
  bytes_add(cache, -class_bytes(cls));
  return block_begin(kept, cls, size);
}

/* A quarter stays, so that there is a choice. */
void *checked_take_ready(struct checked_cache *cache, unsigned cls, size_t size) {
  const struct checked_class *class = &cache->classes[cls];
  return LIKELY(class->ready_count > class->ready_max / 4) ? ready_pop(cache, cls, size) : NULL;
}

static void ready_fill(struct checked_cache *cache, unsigned cls) {
  struct checked_class *class = &cache->classes[cls];
  struct pool *pool = pool_of_class(cls);
  void *slots[READY_MAX];
  size_t wanted = class->ready_max - class->ready_count;
  lock_take(&pool->lock);
  size_t taken = slab_set_take(&pool->slabs, cls, slots + wanted, wanted);
  lock_give(&pool->lock);
  void **first = slots + wanted - taken;
  for (size_t i = 0; i < taken; i++)
    if (!states_cover(first[i])) { /* out of memory: the blocks go back */
      lock_take(&pool->lock);
      slab_set_give(&pool->slabs, cls, first, taken);
      lock_give(&pool->lock);
      return;
    }
  for (size_t i = 0; i < taken; i++)
    class->ready[class->ready_count++] = (struct kept){.block = first[i], .state = state_of(first[i], cls)};
  bytes_add(cache, taken * class_bytes(cls));
}

void *checked_take(struct heap *heap, unsigned cls, size_t size) {
  if (!cache_open(heap, cls))
    return NULL;
  struct checked_class *class = &heap->checked->classes[cls];
  if (class->ready_count <= class->ready_max / 4)
    ready_fill(heap->checked, cls);
  return class->ready_count > 0 ? ready_pop(heap->checked, cls, size) : NULL;
}

/* Puts a block into the ring, and what was there longest into ready, which has room. */
static inline void keep(struct checked_cache *cache, struct kept kept, unsigned cls) {
  struct checked_class *class = &cache->classes[cls];
  class->taken_back++;
  bytes_add(cache, class_bytes(cls));
  if (class->ring_max > 0) {
    struct kept oldest = class->ring[class->ring_next];
    class->ring[class->ring_next] = kept;
    if (++class->ring_next == class->ring_max)
      class->ring_next = 0;
    if (oldest.block == NULL)
      return;
    kept = oldest;
  }
  class->ready[class->ready_count++] = kept;
}

bool checked_free_ready(struct checked_cache *cache, void *block, unsigned cls) {
  const struct checked_class *class = &cache->classes[cls];
  if (UNLIKELY(class->ready_count == class->ready_max))
    return false;
  struct kept kept = {.block = block, .state = retire(block, cls)};
  keep(cache, kept, cls);
  return true;
}

static void give_to_slabs(struct checked_cache *cache, unsigned cls, const struct kept *kept, size_t count) {
  struct pool *pool = pool_of_class(cls);
  void *blocks[READY_MAX];
  for (size_t i = 0; i < count; i++)
    blocks[i] = kept[i].block;
  lock_take(&pool->lock);
  slab_set_give(&pool->slabs, cls, blocks, count);
  lock_give(&pool->lock);
  bytes_add(cache, -(count * class_bytes(cls)));
}

void checked_deliver(void *block, uint32_t entry) {
  struct pool *pool = pool_of_class(entry_class(entry));
  lock_take(&pool->lock);
  slab_set_give(&pool->slabs, entry_class(entry), &block, 1);
  lock_give(&pool->lock);
}

void checked_put(struct heap *heap, void *block, uint32_t entry) {
  unsigned cls = entry_class(entry);
  if (!cache_open(heap, cls)) {
    checked_deliver(block, entry);
    return;
  }
  struct checked_class *class = &heap->checked->classes[cls];
  if (class->ready_count == class->ready_max) {
    class->ready_count -= class->ready_max / 2;
    give_to_slabs(heap->checked, cls, class->ready + class->ready_count, class->ready_max / 2);
  }
  keep(heap->checked, (struct kept){.block = block, .state = state_of(block, cls)}, cls);
}

void checked_flush(struct heap *heap) {
  struct checked_cache *cache = heap->checked;
  for (unsigned cls = 1; cache != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = &cache->classes[cls];
    if (class->ready_max == 0)
      continue;
    if (class->ready_count > 0)
      give_to_slabs(cache, cls, class->ready, class->ready_count);
    class->ready_count = 0;
    for (uint32_t i = 0; i < class->ring_max; i++)
      if (class->ring[i].block != NULL) {
        give_to_slabs(cache, cls, &class->ring[i], 1);
        class->ring[i] = (struct kept){0};
      }
  }
}

void checked_drop(struct heap *heap) {
  struct checked_cache *cache = heap->checked;
  for (unsigned cls = 1; cache != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = &cache->classes[cls];
    if (class->ready_max == 0)
      continue;
    class->ready_count = class->ring_next = 0;
    memset(class->ring, 0, sizeof class->ring);
  }
  if (cache != NULL)
    atomic_store_explicit(&cache->bytes, 0, memory_order_relaxed);
}

void checked_in_child(struct heap *self) {
  if (!checked_is_on())
    return;
  secret_draw();
  if (self != NULL && self->checked != NULL)
    os_random(&self->checked->random, sizeof self->checked->random);
}

size_t checked_cached_bytes(const struct heap *heap) {
  return heap->checked ? atomic_load_explicit(&heap->checked->bytes, memory_order_relaxed) : 0;
}

struct class_counts checked_counts(const struct heap *heap, unsigned cls) {
  if (heap->checked == NULL)
    return (struct class_counts){0};
  return (struct class_counts){.allocated = heap->checked->classes[cls].given,
                               .freed = heap->checked->classes[cls].taken_back};
}

void checked_begin(struct pool *const pools[CHECKED_POOLS]) {
  checked.has_canary = option_value(OPTION_CANARY) == SWITCH_ON;
  checked.is_zeroed = option_value(OPTION_ZERO_FREED) == SWITCH_ON;
  checked.is_random = option_value(OPTION_RANDOM_ORDER) == SWITCH_ON;
  checked.ring_max = (uint32_t)option_value(OPTION_QUARANTINE);
  secret_draw();
  slabs_are_wiped = true;
  atomic_store_explicit(&checked_first_id, pools[0]->id, memory_order_release);
}
