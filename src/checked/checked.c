#include "checked/checked_cache.h"

#include "base/options.h"
#include "budget/usage.h"
#include "os/os.h"
#include "pages/metadata.h"
#include "pages/run.h"

#define READY_MAX 16u
#define KEPT_MAX 64u  /* ready ones and the reserve */
#define KEPT_START 4u /* doubles when it is not enough */
#define RING_MAX 64u
#define KEPT_BYTES_MAX ((size_t)16 * 1024) /* of a class; at least KEPT_START blocks */
#define RING_BYTES_MAX ((size_t)64 * 1024) /* of a class; at least one block */

_Atomic uint32_t checked_first_id;
size_t checked_room;

#define LANE_BYTES_MAX ((size_t)16 * 1024) /* longer blocks would cost more memory than lanes are worth */

/* Threads of different lanes take from different slabs. So they seldom write to states and blocks in one cache line. */
struct pool *checked_pool(const struct heap *heap, unsigned cls) {
  bool has_lanes = LIKELY(!usage_is_short()) && class_bytes(cls) <= LANE_BYTES_MAX;
  uint32_t lane = has_lanes ? heap_pool(heap)->id % CHECKED_LANES : 0;
  uint32_t first = load_relaxed(&checked_first_id);
  return pool_by_id(first + lane * CLASS_GROUPS + cls % CLASS_GROUPS);
}

/* Returns the heap's cache, which it makes if there is none; NULL: memory is out. Other threads may read its counts at
 * once (checked_cached_bytes). */
static struct checked_cache *cache_open(struct heap *heap) {
  struct checked_cache *cache = cache_of(heap);
  if (LIKELY(cache != NULL) || (cache = metadata_take_forever(sizeof *cache)) == NULL)
    return cache;
  os_random(&cache->random, sizeof cache->random);
  atomic_store_explicit(&heap->checked, cache, memory_order_release);
  return cache;
}

static struct kept *reserve_of(const struct checked_class *class) { return class->places + class->mask + 1; }
static size_t reserve_room(const struct checked_class *class) {
  return sub_sat((size_t)(class->kept_max + 1 - class->ready_max), reserve_count(class));
}

static void filled_add(struct checked_cache *cache, const struct checked_class *class, uint64_t count) {
  size_t cls = (size_t)((const char *)class - (const char *)cache->classes) / sizeof *class;
  add_as_owner(&cache->filled[cls], count);
}

/* Call before the ready blocks change, and next_draw after it. */
static void next_put_back(struct checked_class *class) {
  if (class->next.block != NULL)
    *place_of(class, load_relaxed(&class->first)) = class->next;
  cache_stepped();
  class->next.block = NULL;
}

/* Returns the order of the piece of metadata that holds the ring and the reserve, through which blocks become ready. */
static unsigned places_order(size_t ring, size_t kept_max, size_t ready_max) {
  size_t behind = max_size(kept_max + 1, 2 * ready_max) - ready_max;
  return metadata_order((ring + behind) * sizeof(struct kept));
}

/* Makes room for more blocks of a class, up to its bound. What there is stays if memory is out. */
static void class_grow(struct checked_class *class, unsigned cls) {
  size_t bytes = class_bytes(cls), most = min_size(max_size(KEPT_BYTES_MAX / bytes, KEPT_START), KEPT_MAX);
  size_t kept_max = min_size(max_size((size_t)class->kept_max * 2, KEPT_START), most);
  size_t ready_max = min_size(kept_max, READY_MAX) + 1;
  size_t ring_max = min_size(max_size(RING_BYTES_MAX / bytes, 1), checked.ring_max), count = 1;
  while (count < ring_max + ready_max)
    count *= 2;
  struct kept *places = kept_max > class->kept_max ? metadata_take(places_order(count, kept_max, ready_max)) : NULL;
  if (places == NULL)
    return;
  if (class->places != NULL) {
    next_put_back(class);
    for (uint64_t i = load_relaxed(&class->first), end = load_relaxed(&class->end); i != end; i++)
      places[i & (count - 1)] = *place_of(class, i);
    memcpy(places + count, reserve_of(class), reserve_count(class) * sizeof *places);
    metadata_give(class->places, places_order(class->mask + 1u, class->kept_max, class->ready_max));
  }
  class->places = places;
  class->inverse = size_classes[cls].inverse;
  class->block_bytes = (uint32_t)bytes;
  class->slab_mask = slab_mask_of(cls);
  class->mask = (uint8_t)(count - 1);
  class->stay = (uint8_t)((ready_max + 3) / 4 - 1);
  class->ready_max = (uint8_t)ready_max;
  class->kept_max = (uint8_t)kept_max;
  class->ring_max = (uint8_t)ring_max;
}

/* Makes blocks of the reserve ready, up to as many as may be, and draws the next one. Returns false if too few are. */
static bool ready_refill(struct checked_cache *cache, struct checked_class *class) {
  size_t reserve = reserve_count(class), count = min_size(reserve, sub_sat(class->ready_max, class->ready));
  uint64_t first = load_relaxed(&class->first);
  next_put_back(class);
  for (size_t i = 0; i < count; i++)
    *place_of(class, --first) = reserve_of(class)[--reserve];
  reserve_set(class, reserve);
  filled_add(cache, class, count);
  cache_stepped();
  store_relaxed(&class->first, first);
  class->ready += (uint8_t)count;
  if (class->ready <= class->stay)
    return false;
  next_draw(cache, class, load_relaxed(&class->first));
  return true;
}

/* Moves half of the ready blocks to the reserve. Returns false if it has no room. */
static bool ready_shrink(struct checked_cache *cache, struct checked_class *class) {
  size_t reserve = reserve_count(class), count = min_size(reserve_room(class), class->ready_max / 2);
  uint64_t first = load_relaxed(&class->first);
  if (count == 0)
    return false;
  next_put_back(class);
  for (size_t i = 0; i < count; i++)
    reserve_of(class)[reserve++] = *place_of(class, first++);
  store_relaxed(&class->first, first);
  cache_stepped();
  filled_add(cache, class, -(uint64_t)count);
  reserve_set(class, reserve);
  class->ready -= (uint8_t)count;
  next_draw(cache, class, load_relaxed(&class->first));
  return true;
}

bool checked_make_room(struct checked_class *class) {
  struct checked_cache *cache = cache_if_idle();
  owner_step_begin();
  bool is_made = cache != NULL && !has_room(class) && ready_shrink(cache, class);
  owner_step_end();
  return is_made;
}

bool checked_draw(unsigned cls) {
  struct checked_cache *cache = cache_if_idle();
  if (cache == NULL)
    return false;
  owner_step_begin();
  bool is_drawn = class_in(cache, cls)->next.block != NULL || ready_refill(cache, class_in(cache, cls));
  owner_step_end();
  return is_drawn;
}

/* Gives blocks to their pools' slabs. If a pool's lock is never given, its blocks are lost. */
static void slabs_give(unsigned cls, void **blocks, size_t count) {
  while (count > 0) {
    uint32_t id = entry_pool_id(map_entry(blocks[0]));
    size_t same = 1;
    for (size_t i = 1; i < count; i++)
      if (entry_pool_id(map_entry(blocks[i])) == id) {
        void *block = blocks[i];
        blocks[i] = blocks[same];
        blocks[same++] = block;
      }
    struct pool *pool = pool_by_id(id);
    if (pool_lock(pool)) {
      slab_set_give(&pool->slabs, cls, blocks, same);
      pool_unlock(pool);
    }
    blocks += same;
    count -= same;
  }
}

/* Gives blocks to the slabs: those that are the longest in the reserve, then the ready ones that waited last. The first
 * ready ones move into their places. */
static void kept_give(struct checked_cache *cache, unsigned cls, size_t count) {
  struct checked_class *class = class_in(cache, cls);
  void *blocks[RING_MAX + KEPT_MAX + 1];
  size_t reserve = reserve_count(class), of_reserve = min_size(count, reserve), of_ready = count - of_reserve;
  uint64_t first = load_relaxed(&class->first);
  next_put_back(class);
  for (size_t i = 0; i < of_reserve; i++)
    blocks[i] = reserve_of(class)[i].block;
  for (size_t i = 0; i < of_ready; i++) {
    struct kept *last = place_of(class, first + class->ready - 1 - i);
    blocks[of_reserve + i] = last->block;
    *last = *place_of(class, first + i);
  }
  slabs_give(cls, blocks, count);
  memmove(reserve_of(class), reserve_of(class) + of_reserve, (reserve - of_reserve) * sizeof(struct kept));
  reserve_set(class, reserve - of_reserve);
  store_relaxed(&class->first, first + of_ready);
  filled_add(cache, class, -(uint64_t)of_ready);
  class->ready -= (uint8_t)of_ready;
}

/* Fills the reserve, which is empty, for all ready blocks that are missing, or by half. */
static void reserve_fill(struct heap *heap, struct checked_class *class, unsigned cls) {
  struct pool *pool = checked_pool(heap, cls);
  void *slots[KEPT_MAX];
  size_t wanted = sub_sat(max_size(class->ready_max, class->kept_max / 2), class->ready);
  if (!pool_lock(pool))
    return;
  size_t taken = slab_set_take(&pool->slabs, cls, slots + wanted, wanted);
  pool_unlock(pool);
  void **blocks = slots + wanted - taken;
  for (size_t i = 0; i < taken; i++)
    reserve_of(class)[i] = (struct kept){.block = blocks[i], .state = state_of(blocks[i], cls)};
  reserve_set(class, taken);
}

static bool slabs_have_free(const struct heap *heap, unsigned cls) {
  struct pool *pool = checked_pool(heap, cls);
  if (!pool_lock(pool))
    return false;
  bool is_there = slab_set_has_free(&pool->slabs, cls);
  pool_unlock(pool);
  return is_there;
}

void *checked_take(struct heap *heap, unsigned cls, size_t size, bool may_open) {
  struct checked_cache *cache = cache_open(heap);
  if (cache == NULL)
    return NULL;
  struct checked_class *class = class_in(cache, cls);
  if (!ready_refill(cache, class) && (LIKELY(may_open) || slabs_have_free(heap, cls))) {
    class_grow(class, cls);
    reserve_fill(heap, class, cls);
    ready_refill(cache, class);
  }
  if (class->ready == 0)
    return NULL;
  if (class->next.block == NULL)
    next_draw(cache, class, load_relaxed(&class->first));
  return block_begin(next_take(cache, class), class->block_bytes, size);
}

void checked_deliver(void *block, uint32_t entry) { slabs_give(entry_class(entry), &block, 1); }

void checked_put(struct heap *heap, void *block, uint32_t entry) {
  unsigned cls = entry_class(entry);
  struct checked_cache *cache = cache_open(heap);
  struct checked_class *class = cache != NULL ? class_in(cache, cls) : NULL;
  if (class != NULL && !has_room(class) && !ready_shrink(cache, class))
    class_grow(class, cls);
  if (class == NULL || class->places == NULL) {
    checked_deliver(block, entry);
    return;
  }
  if (!has_room(class) && !ready_shrink(cache, class)) {
    kept_give(cache, cls, class->kept_max / 2);
    ready_shrink(cache, class);
  }
  kept_put(class, (struct kept){.block = block, .state = state_of(block, cls)});
}

/* A draw moves the first block to the place of the drawn one. Tells whether it came no further. */
static bool first_is_twice(const struct checked_class *class) {
  uint64_t first = load_relaxed(&class->first), end = load_relaxed(&class->end), i = first + 1;
  while (i < end && place_of(class, i)->block != place_of(class, first)->block)
    i++;
  return class->next.block == NULL && i < end;
}

/* A block that a step had in hand is lost. One that was drawn has a place in the ring again: that of the first one,
 * which a draw has moved, or which is lost then. */
void checked_recover(struct heap *heap) {
  struct checked_cache *cache = cache_of(heap);
  for (unsigned cls = 1; cache != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = class_in(cache, cls);
    if (class->places == NULL)
      continue;
    if (first_is_twice(class))
      add_as_owner(&class->first, 1);
    next_put_back(class);
    for (uint64_t i = load_relaxed(&class->first), end = load_relaxed(&class->end); i < end; i++)
      place_of(class, i)->state = state_of(place_of(class, i)->block, cls); /* it may be half written */
    class->waiting = (uint8_t)min_size(ring_count(class), class->ring_max);
    class->ready = (uint8_t)(ring_count(class) - class->waiting);
  }
}

static void class_end(struct checked_class *class) {
  metadata_give(class->places, places_order(class->mask + 1u, class->kept_max, class->ready_max));
  class->places = NULL;
  class->next.block = NULL;
  class->waiting = class->ready = class->stay = class->ready_max = class->kept_max = 0;
}

void checked_flush(struct heap *heap) {
  struct checked_cache *cache = cache_of(heap);
  for (unsigned cls = 1; cache != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = class_in(cache, cls);
    if (class->places == NULL)
      continue;
    class->ready = (uint8_t)ring_count(class); /* nothing waits any more */
    class->waiting = 0;
    kept_give(cache, cls, class->ready + reserve_count(class));
    class_end(class);
  }
}

/* Numbers may be half changed. What was given out and freed keeps its count. */
void checked_drop(struct heap *heap) {
  struct checked_cache *cache = cache_of(heap);
  for (unsigned cls = 1; cache != NULL && cls < HAK_CLASS_COUNT; cls++) {
    struct checked_class *class = class_in(cache, cls);
    if (class->places == NULL)
      continue;
    filled_add(cache, class, -ring_count(class));
    store_relaxed(&class->first, load_relaxed(&class->end));
    reserve_set(class, 0);
    class_end(class);
  }
}

void checked_in_child(struct heap *self) {
  if (!checked_is_on())
    return;
  secret_draw();
  struct checked_cache *cache = self != NULL ? cache_of(self) : NULL;
  if (cache != NULL)
    os_random(&cache->random, sizeof cache->random);
}

/* For any thread. */
static const struct checked_cache *cache_to_read(const struct heap *heap) {
  return atomic_load_explicit(&heap->checked, memory_order_acquire);
}

/* The owner may change the numbers meanwhile, so the difference may be negative. */
size_t checked_cached_bytes(const struct heap *heap) {
  const struct checked_cache *cache = cache_to_read(heap);
  size_t bytes = 0;
  for (unsigned cls = 1; cache != NULL && cls < HAK_CLASS_COUNT; cls++) {
    const struct checked_class *class = &cache->classes[cls].of;
    int64_t blocks = (int64_t)(ring_count(class) + reserve_count(class));
    bytes += blocks > 0 ? (size_t)blocks * class_bytes(cls) : 0;
  }
  return bytes;
}

struct class_counts checked_counts(const struct heap *heap, unsigned cls) {
  const struct checked_cache *cache = cache_to_read(heap);
  if (cache == NULL)
    return (struct class_counts){0};
  const struct checked_class *class = &cache->classes[cls].of;
  return (struct class_counts){.allocated = load_relaxed(&class->first) + load_relaxed(&cache->filled[cls]),
                               .freed = load_relaxed(&class->end)};
}

void checked_begin(struct pool *const pools[CHECKED_POOLS]) {
  checked.has_canary = option_value(OPTION_CANARY) == SWITCH_ON;
  checked_room = checked.has_canary ? CANARY_BYTES : 0;
  checked.is_zeroed = option_value(OPTION_ZERO_FREED) == SWITCH_ON;
  checked.is_random = option_value(OPTION_RANDOM_ORDER) == SWITCH_ON;
  checked.ring_max = (uint32_t)option_value(OPTION_QUARANTINE);
  zero_begin();
  checked.is_usual = checked.has_canary && checked.is_zeroed && zero_is_wide;
  checked.key = pools[0]->id << HAK_ENTRY_ID_SHIFT;
  secret_draw();
  runs_are_wiped = true;
  for (unsigned i = 0; i < CHECKED_POOLS; i++)
    pools[i]->slabs.has_states = true;
  atomic_store_explicit(&checked_first_id, pools[0]->id, memory_order_release);
}
