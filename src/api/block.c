/* Where the blocks of malloc's slow paths come from: one attempt, without retries.
 *
 *   small    bin_refill -> inbox, slabs, those of other pools, extents; checked_take where blocks are checked
 *   large    large_alloc -> BigCache, extents, mappings
 *   where memory is short   packed_take
 */
#include "api/alloc.h"

#include "budget/usage.h"
#include "checked/checked.h"
#include "heap/bin.h"
#include "large/guarded.h"
#include "large/large.h"
#include "large/packed.h"
#include "large/range.h"
#include "large/stash.h"
#include "reclaim/background.h"
#include "threads/inherited.h"
#include "threads/private.h"
#include "threads/registry.h"

#define STASH_DELAY_MS_MIN 100

/* From now on the thread's free of such an object may leave the range in its stash. The stashes are open while a thread
 * looks at what they hold, or while the program is small, and while no observer wants to see each large object. */
static void stash_note(void *block, size_t size, size_t alignment) {
  struct heap *heap = heap_of_thread();
  size_t units = large_stash_units(block, size, alignment);
  if (heap == NULL || heap_life(heap) != 0 || units == 0)
    return;
  if (heap->stash == NULL && (heap->stash = stash_make()) == NULL)
    return;
  stash_expect(heap->stash, units);
  if (stashes_are(STASHES_OPEN))
    return;
  size_t bytes_max = range_cache_max() / STASH_SHARE;
  if (bytes_max == 0 || option_value(OPTION_TARGET_MB) != 0 ||
      option_value(OPTION_PURGE_DELAY_MS) < STASH_DELAY_MS_MIN || large_is_watched() || checked_is_on() ||
      guarded_is_on || usage_is_short() || usage_keep_max() != SIZE_MAX || background_is_missed())
    return;
  range_offer_kept();
  stash_open(bytes_max);
}

static void *large_block(size_t size, size_t alignment, uintptr_t site, size_t *dirty) {
  struct pool *pool = private_current();
  size_t reserved = large_length(size);
  if (UNLIKELY(pool != NULL)) {
    if (!private_reserve(pool, reserved))
      return NULL;
    /* No room for lines, because a limit counts whole ranges. */
    alignment = max_size(alignment, (size_t)LARGE_COLORS * CACHE_LINE);
  }
  void *block = large_alloc(size, alignment, site, dirty);
  if (UNLIKELY(pool != NULL))
    private_object_add(pool, block, reserved);
  if (UNLIKELY(load_relaxed(&observers_large_made)) && block != NULL)
    observers.large_made(block, large_bytes(block), site);
  if (LIKELY(pool == NULL && block != NULL && alignment <= UNIT_BYTES))
    stash_note(block, size, alignment);
  housekeep();
  return block;
}

static void *small_block(unsigned cls, size_t size, uintptr_t site);

static ALWAYS_INLINE void *small_block_inlined(unsigned cls, size_t size, uintptr_t site) {
  struct heap *heap = heap_of_thread();
  if (LIKELY(heap != NULL) && UNLIKELY(heap->inherited_calls > 0))
    inherited_step(heap);
  while (LIKELY(heap != NULL) && UNLIKELY(!pool_lock(heap_pool(heap))))
    heap = private_current() == NULL ? heap_replace() : NULL;
  if (UNLIKELY(heap == NULL))
    return NULL;
  heap_follow_tally(heap);
  void *block = heap->front.split ? split_pop(&heap->front.bins[cls]) : hak_bin_pop(&heap->front.bins[cls]);
  heap->counters.slow_calls_filled += block != NULL;
  if (UNLIKELY(block == NULL) && UNLIKELY(heap_is_counted(heap))) {
    bool is_held = true;
    block = observers.small_sample(heap, cls, size, site, &is_held);
    if (UNLIKELY(!is_held))
      return small_block(cls, size, site); /* by another heap */
    if (block) {
      housekeep();
      return block;
    }
  }
  if (block == NULL)
    block = bin_refill(heap, cls);
  housekeep_of_small(heap, cls);
  return block;
}

static NOINLINE void *small_block(unsigned cls, size_t size, uintptr_t site) {
  return small_block_inlined(cls, size, site);
}

/* Tells whether a block of the class is free in the pool, or ready in the heap's bin. */
static bool has_free(struct heap *heap, unsigned cls) {
  struct pool *pool = heap_pool(heap);
  if (UNLIKELY(!pool_lock(pool)))
    return false;
  bool is_there = slab_set_has_free(&pool->slabs, cls) || bin_count(heap, cls) > 0;
  pool_unlock(pool);
  return is_there;
}

/* Returns the alignment of all blocks of the class, which is at least what was asked for. */
static size_t alignment_of(unsigned cls) { return class_bytes(cls) & -class_bytes(cls); }

/* Call when no slab can be opened for a class: returns a free block of a larger class. */
COLD static void *block_in_place_of(unsigned cls, uintptr_t site) {
  struct heap *heap = heap_current();
  size_t bytes_max = SUBSTITUTE_BYTES_MAX(class_bytes(cls));
  for (unsigned other = cls + 1; heap && other < HAK_CLASS_COUNT && class_bytes(other) <= bytes_max; other++)
    if (class_bytes(other) % alignment_of(cls) == 0 && has_free(heap, other)) {
      void *block = small_block(other, class_bytes(other), site);
      if (block != NULL)
        return block;
    }
  return NULL;
}

/* Returns a packed block (large/packed.h), or NULL. */
COLD static void *packed_block(size_t size, size_t alignment, uintptr_t site) {
  if (size > PACKED_BYTES_MAX || alignment > PACKED_BYTES_MAX || private_current() != NULL)
    return NULL;
  void *block = packed_take(size, alignment);
  if (UNLIKELY(load_relaxed(&observers_large_made)) && block != NULL)
    observers.large_made(block, packed_bytes(block), site);
  housekeep();
  return block;
}

#define SLAB_ORDER_LONG 3u         /* slabs from 512 KiB on */
#define SLAB_BLOCK_BYTES_MAX 2048u /* when memory is tight, longer blocks are packed */

/* Tells whether blocks are packed at all. Packed blocks have no quarantine, so checked blocks are packed only from a
 * sixteenth of a limit on. Long ones (of long slabs, and short large objects) are packed from the start: the quarantine
 * of their class would have one place at most. */
static bool is_packing(bool is_long) {
  return UNLIKELY(usage_is_short()) && (!checked_is_on() || (packed_is_sealed && (is_long || usage_is_filling())));
}

#define PACKED_FIRST 48u /* this many requests for a class without a slab are packed */

#define ROUNDING_SHARE 8u /* long classes round up by more than this fraction, short ones never */

/* When memory is short, a slab is too much for a few blocks, so the first blocks of a class are packed
 * (large/packed.h). So are those that their class rounds up by much, and when memory is tight all longer ones. */
COLD static bool slab_pays_when_short(struct heap *heap, unsigned cls, size_t size) {
  unsigned order = size_classes[cls].order;
  if (heap == NULL || private_current() != NULL)
    return true;
  if (order >= SLAB_ORDER_LONG && checked_is_on())
    return false;
  size_t bytes = class_bytes(cls);
  if (bytes > SLAB_BLOCK_BYTES_MAX && (usage_is_tight() || bytes - size > bytes / ROUNDING_SHARE))
    return false;
  struct pool *pool = checked_is_on() ? checked_pool(heap, cls) : heap_pool(heap);
  if (UNLIKELY(!pool_lock(pool)))
    return true;
  bool pays = pool->slabs.classes[cls].slab_count > 0 || pool->packed_first[cls] == PACKED_FIRST;
  pool->packed_first[cls] += !pays;
  pool_unlock(pool);
  return pays;
}

static bool slab_pays(struct heap *heap, unsigned cls, size_t size) {
  return LIKELY(!is_packing(size_classes[cls].order >= SLAB_ORDER_LONG)) || slab_pays_when_short(heap, cls, size);
}

static NOINLINE void *checked_block(unsigned cls, size_t size, size_t alignment, uintptr_t site) {
  struct heap *heap = heap_of_thread();
  void *block = NULL;
  if (UNLIKELY(load_relaxed(&observers_large_made)))
    block = observers.checked_sample(size, alignment, site);
  if (UNLIKELY(block != NULL)) {
    housekeep();
    return block;
  }
  bool pays = slab_pays(heap, cls, size);
  block = heap ? checked_take(heap, cls, size, pays) : NULL;
  if (UNLIKELY(block == NULL && packed_is_sealed)) {
    block = packed_block(size, alignment, site);
    if (block != NULL || pays)
      return block;
    block = checked_take(heap, cls, size, true); /* a slab may fit where no chunk does */
  }
  if (UNLIKELY(load_relaxed(&observers_large_made)) && block != NULL)
    observers.large_made(block, size, site);
  housekeep();
  return block;
}

/* Call where no slab is to be opened, or none could be (is_tried): returns an equivalent block. A request for exactly
 * the size of a class may rely on the class's alignment. */
COLD static void *block_when_short(unsigned cls, size_t size, uintptr_t site, bool is_tried) {
  size_t alignment = size == class_bytes(cls) ? alignment_of(cls) : BLOCK_ALIGNMENT;
  void *block = is_tried ? NULL : packed_block(size, alignment, site);
  if (block == NULL && usage_is_unread()) /* it may be refused for that alone */
    return NULL;
  if (block == NULL)
    block = block_in_place_of(cls, site);
  if (block == NULL)
    block = small_block(cls, size, site);
  return block != NULL ? block : packed_block(size, alignment, site);
}

/* Returns a block of the class, or an equivalent one. */
static ALWAYS_INLINE void *block_of(unsigned cls, size_t size, size_t alignment, uintptr_t site) {
  if (checked_is_on())
    return checked_block(cls, size, alignment, site);
  if (UNLIKELY(!slab_pays(heap_current(), cls, size)) && !has_free(heap_current(), cls))
    return block_when_short(cls, size, site, false);
  void *block = small_block_inlined(cls, size, site);
  return LIKELY(block != NULL) ? block : block_when_short(cls, size, site, true);
}

/* With guards, each object is a mapping, and the system allows a process 65,530. Many make forks slow, too. */
#define GUARDED_SHORT_MAX 1024u

/* Tells whether a large object of up to 256 KiB is packed, because whole units are too much for the program's own
 * limit, which is near, or because checked objects cannot have guards. */
static bool short_is_packed(size_t size) {
  if (size > LARGE_SHORT_UNITS * UNIT_BYTES)
    return false;
  if (checked_is_on())
    return packed_is_sealed && (!guarded_is_on || range_mapping_count() >= GUARDED_SHORT_MAX);
  return usage_own_limit_is_near();
}

/* Allocates a large object. When memory is short, the shortest ones are not rounded up to units. */
static NOINLINE void *large_or_packed(size_t size, size_t alignment, uintptr_t site, size_t *dirty) {
  bool is_packed = is_packing(size <= LARGE_SHORT_UNITS * UNIT_BYTES) || short_is_packed(size);
  void *block = is_packed ? packed_block(size, alignment, site) : NULL;
  if (UNLIKELY(block != NULL)) {
    *dirty = packed_is_sealed ? 0 : SIZE_MAX;
    return block;
  }
  block = large_block(size, alignment, site, dirty);
  if (checked_is_on() && block != NULL && *dirty > 0) { /* no block shows what others left */
    large_clear(block, min_size(*dirty, large_bytes(block)));
    *dirty = 0;
  }
  return block;
}

#define APART_BYTES_MIN ((size_t)16 * 1024) /* longer blocks may be large objects */
#define APART_FIRST 32u                     /* of a class in the process */

/* Where blocks are checked and large objects guarded, the first blocks of a long class are large objects, too: they lie
 * between pages without access, and their memory goes back when they are freed. In the cache of a thread it would stay.
 * A class of which more are asked for is served by slabs: no system call, no page fault. Lost counts do no harm. */
static bool is_apart(unsigned cls) {
  static _Atomic uint8_t counts[HAK_CLASS_COUNT] SPARSE;
  if (LIKELY(!checked_is_on() || class_bytes(cls) <= APART_BYTES_MIN) || !guarded_is_on || usage_is_short())
    return false;
  uint8_t count = load_relaxed(&counts[cls]);
  if (count < APART_FIRST)
    store_relaxed(&counts[cls], (uint8_t)(count + 1));
  return count < APART_FIRST;
}

/* After a refusal, usage_look reads the limits without a lock, and it tries again. */
void *block_attempt(size_t size, size_t alignment, unsigned cls, uintptr_t site, size_t *dirty) {
  if (UNLIKELY(cls != 0 && is_apart(cls)))
    cls = 0;
  for (bool is_first = true;; is_first = false) {
    void *block =
        LIKELY(cls != 0) ? block_of(cls, size, alignment, site) : large_or_packed(size, alignment, site, dirty);
    if (LIKELY(block != NULL) || !is_first || !usage_look())
      return block;
  }
}
