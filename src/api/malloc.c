/* malloc and free: gives the fast path (hakmem/inline.h) its names, and holds the entries of malloc's slow paths.
 * free's are in free.c.
 *
 *   hak_malloc_slow  small: bin_refill -> inbox, slabs, units      large: large_alloc -> BigCache, extents, mappings
 *                    where memory is short: packed_take
 */
#include "api/alloc.h"

#include "base/counters.h"
#include "budget/usage.h"
#include "checked/checked_cache.h"
#include "heap/bins.h"
#include "heap/hands.h"
#include "heap/slow_path.h"
#include "large/guarded.h"
#include "large/large.h"
#include "large/packed.h"
#include "large/range.h"
#include "large/stash.h"
#include "pages/page_map.h"
#include "pages/superslab.h"
#include "reclaim/background.h"
#include "reclaim/due.h"
#include "threads/inherited.h"
#include "threads/private.h"
#include "threads/registry.h"
#include "threads/spare.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* Above this calloc takes a large object. Its pages are often known to be zero and cost nothing until they are used. A
 * block of a slab would have to be cleared, which makes it resident. */
#define CALLOC_SMALL_MAX ((size_t)64 * 1024)
#define ROUNDING_SHARE 8 /* unless that rounds it up by more than this fraction */

void *hak_malloc(size_t size) { return hak_malloc_inlined(size); }
void hak_free(void *block) { hak_free_inlined(block); }

/* A static link takes only the objects that are referenced. This reference brings the constructor along with malloc. */
__attribute__((used)) static void (*const start_with_malloc)(void) = hak_start;

/* Tries again after giving back all free memory, and once more if the program's callback returned 1. The caller is in a
 * slow path. The callback runs outside it, because it frees. */
#define HOPELESS_BYTES ((size_t)1 << 40)

COLD static bool may_try_again(unsigned attempt, size_t size, bool *is_begun) {
  struct pool *pool = private_current();
  if (pool != NULL && private_forbids(pool, size)) { /* nothing outside the heap can help */
    heap_flush_all(heap_current());
    return attempt == 1;
  }
  if (attempt == 1) {
    if (size > HOPELESS_BYTES) /* giving memory back cannot make room for it */
      return false;
    counter_note(memory_retries);
    if (heap_current() != NULL && heap_current()->inherited_calls > 0)
      inherited_return(heap_current());
    memory_release();
    return true;
  }
  bool again = limit_callback_call(size, is_begun);
  if (again && *is_begun) /* the freed memory may be held in a shape that does not fit */
    memory_release();
  return again && *is_begun;
}

/* From now on the thread's free of such an object may leave the range in its stash. The stashes are open while a thread
 * looks at what they hold, or while the program is small, and while no observer wants to see each large object. */
#define STASH_SHARE 2 /* of the bytes that the preset caches */
#define STASH_DELAY_MS_MIN 100

static void stash_note(void *block, size_t size) {
  struct heap *heap = heap_of_thread();
  size_t units = large_stash_units(block, size);
  if (heap == NULL || heap_life(heap) != 0 || units == 0)
    return;
  if (heap->stash == NULL && (heap->stash = stash_make()) == NULL)
    return;
  stash_expect(heap->stash, units);
  if (load_relaxed(&stash_round) != 0)
    return;
  size_t bytes_max = ((size_t)option_value(OPTION_LARGE_CACHE_MB) << 20) / STASH_SHARE;
  if (bytes_max == 0 || option_value(OPTION_TARGET_MB) != 0 ||
      option_value(OPTION_PURGE_DELAY_MS) < STASH_DELAY_MS_MIN || advice_is_wanted() || sites_are_counted() ||
      checked_is_on() || guarded_is_on || usage_is_short() || usage_keep_max() != SIZE_MAX ||
      (!background_is_awake() && due_holds_much()))
    return;
  range_offer_kept();
  stash_open(bytes_max);
}

static void *large_block(size_t size, size_t alignment, uintptr_t site, bool *zeroed) {
  struct pool *pool = private_current();
  size_t reserved = large_length(size);
  if (UNLIKELY(pool != NULL)) {
    if (!private_reserve(pool, reserved))
      return NULL;
    alignment =
        max_size(alignment, (size_t)LARGE_COLORS * CACHE_LINE); /* no room for lines: a limit counts whole ranges */
  }
  void *block = large_alloc(size, alignment, site, zeroed);
  if (UNLIKELY(pool != NULL))
    private_object_add(pool, block, reserved);
  if (UNLIKELY(load_relaxed(&observers_large_made)) && block != NULL)
    observers.large_made(block, large_bytes(block), site);
  if (LIKELY(pool == NULL && block != NULL && alignment <= BLOCK_ALIGNMENT))
    stash_note(block, size);
  housekeep();
  return block;
}

static void *small_block(unsigned cls, size_t size, uintptr_t site) {
  struct heap *heap = heap_of_thread();
  if (LIKELY(heap != NULL) && UNLIKELY(heap->inherited_calls > 0))
    inherited_step(heap);
  while (LIKELY(heap != NULL) && UNLIKELY(!pool_lock(heap_pool(heap))))
    heap = private_current() == NULL ? heap_replace() : NULL;
  if (UNLIKELY(heap == NULL))
    return NULL;
  heap_follow_tally(heap);
  void *block = hak_bin_pop(&heap->front.bins[cls]);
  heap->counters.slow_calls_filled += block != NULL;
  if (UNLIKELY(block == NULL && heap->split)) {
    block = observers.small_sample(heap, cls, size, site);
    if (block) {
      housekeep();
      return block;
    }
  }
  if (block == NULL)
    block = bin_refill(heap, cls);
  bins_tick(heap);
  pool_unlock(heap_pool(heap));
  housekeep();
  return block;
}

/* Tells whether a block of the class is free in the pool, or ready in the heap's bin: malloc does not pop from the bin
 * of a split heap. */
static bool has_free(struct heap *heap, unsigned cls) {
  struct pool *pool = heap_pool(heap);
  if (UNLIKELY(!pool_lock(pool)))
    return false;
  bool is_there = slab_set_has_free(&pool->slabs, cls) || bin_blocks(heap, cls) > 0;
  pool_unlock(pool);
  return is_there;
}

#define LARGER_BYTES 256u /* a substitute block may be twice as large plus this */

/* Returns the alignment of all blocks of the class, which is at least what was asked for. */
static size_t alignment_of(unsigned cls) { return class_bytes(cls) & -class_bytes(cls); }

/* Call when no slab can be opened for a class: returns a free block of a larger class. */
COLD static void *block_in_place_of(unsigned cls, uintptr_t site) {
  struct heap *heap = heap_current();
  for (unsigned other = cls + 1;
       heap && other < HAK_CLASS_COUNT && class_bytes(other) <= 2 * class_bytes(cls) + LARGER_BYTES; other++)
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

/* Tells whether blocks are packed at all. Packed blocks do not wait in a quarantine, so checked ones are packed from a
 * sixteenth of a limit on. Those of long slabs, which would wait in none that is longer than one block, are packed from
 * the start on. */
static bool is_packing(unsigned order) {
  return UNLIKELY(usage_is_short()) &&
         (!checked_is_on() || (packed_is_sealed && (order >= SLAB_ORDER_LONG || usage_is_filling())));
}

#define PACKED_FIRST 48u /* this many requests for a class without a slab are packed */

/* When memory is short, a slab is too much for a few blocks, so the first blocks of a class are packed
 * (large/packed.h). So are all blocks of the longest classes, and when memory is tight all longer ones. */
COLD static bool slab_pays_when_short(struct heap *heap, unsigned cls) {
  unsigned order = size_classes[cls].order;
  if (heap == NULL || private_current() != NULL)
    return true;
  if (order == UNIT_ORDER_MAX || (order >= SLAB_ORDER_LONG && checked_is_on()))
    return false;
  if (class_bytes(cls) > SLAB_BLOCK_BYTES_MAX && usage_is_tight())
    return false;
  struct pool *pool = checked_is_on() ? checked_pool(heap, cls) : heap_pool(heap);
  if (UNLIKELY(!pool_lock(pool)))
    return true;
  bool pays = pool->slabs.slab_count[cls] > 0 || pool->packed_first[cls] == PACKED_FIRST;
  pool->packed_first[cls] += !pays;
  pool_unlock(pool);
  return pays;
}

static bool slab_pays(struct heap *heap, unsigned cls) {
  return LIKELY(!is_packing(size_classes[cls].order)) || slab_pays_when_short(heap, cls);
}

static void *checked_block(unsigned cls, size_t size, size_t alignment, uintptr_t site) {
  struct heap *heap = heap_of_thread();
  void *block = NULL;
  if (UNLIKELY(load_relaxed(&observers_large_made)))
    block = observers.checked_sample(size, alignment, site);
  if (UNLIKELY(block != NULL)) {
    housekeep();
    return block;
  }
  bool pays = slab_pays(heap, cls);
  block = heap ? checked_take(heap, cls, size, pays) : NULL;
  if (UNLIKELY(block == NULL && packed_is_sealed)) {
    block = packed_block(size, alignment, site);
    if (block != NULL || pays)
      return block;
    block = checked_take(heap, cls, size, true); /* units may be free among slabs */
  }
  if (UNLIKELY(load_relaxed(&observers_large_made)) && block != NULL)
    observers.large_made(block, size, site);
  housekeep();
  return block;
}

/* Returns a block of the class, or an equivalent one. A request for exactly the size of a class may rely on the class's
 * alignment. */
static void *block_of(unsigned cls, size_t size, size_t alignment, uintptr_t site) {
  if (checked_is_on())
    return checked_block(cls, size, alignment, site);
  struct heap *heap = heap_current();
  alignment = size == class_bytes(cls) ? alignment_of(cls) : BLOCK_ALIGNMENT;
  void *block = NULL;
  if (LIKELY(slab_pays(heap, cls)) || has_free(heap, cls))
    block = small_block(cls, size, site);
  else
    block = packed_block(size, alignment, site);
  if (UNLIKELY(block == NULL) && usage_is_unread()) /* it may be refused for that alone */
    return NULL;
  if (UNLIKELY(block == NULL))
    block = block_in_place_of(cls, site);
  if (UNLIKELY(block == NULL))
    block = small_block(cls, size, site);
  if (UNLIKELY(block == NULL))
    block = packed_block(size, alignment, site);
  return block;
}

/* Allocates a large object. When memory is short, the shortest ones are not rounded up to units. */
static void *large_or_packed(size_t size, size_t alignment, uintptr_t site, bool *zeroed) {
  void *block = is_packing(0) ? packed_block(size, alignment, site) : NULL;
  if (UNLIKELY(block != NULL)) {
    *zeroed = packed_is_sealed;
    return block;
  }
  block = large_block(size, alignment, site, zeroed);
  if (checked_is_on() && block != NULL && !*zeroed) { /* no block shows what others left */
    large_clear(block, size);
    *zeroed = true;
  }
  return block;
}

#define APART_BYTES_MIN ((size_t)16 * 1024) /* longer blocks may be large objects */
#define APART_FIRST 32u                     /* of a class in the process */

/* Where blocks are checked and large objects guarded, the first blocks of a long class are large objects, too: they lie
 * between pages without access, and their memory goes back when they are freed. In the cache of a thread it would stay.
 * A class of which more are asked for is served by slabs, which need no system call and no page fault. Lost counts do
 * no harm. */
static bool is_apart(unsigned cls) {
  static _Atomic uint8_t counts[HAK_CLASS_COUNT];
  if (LIKELY(!checked_is_on() || class_bytes(cls) <= APART_BYTES_MIN) || !guarded_is_on || usage_is_short())
    return false;
  uint8_t count = load_relaxed(&counts[cls]);
  if (count < APART_FIRST)
    store_relaxed(&counts[cls], (uint8_t)(count + 1));
  return count < APART_FIRST;
}

/* After a refusal, usage_look reads the limits without a lock, and it tries again. */
void *block_attempt(size_t size, size_t alignment, unsigned cls, uintptr_t site, bool *zeroed) {
  if (UNLIKELY(cls != 0 && is_apart(cls)))
    cls = 0;
  void *block = cls ? block_of(cls, size, alignment, site) : large_or_packed(size, alignment, site, zeroed);
  if (UNLIKELY(block == NULL) && usage_look())
    block = cls ? block_of(cls, size, alignment, site) : large_or_packed(size, alignment, site, zeroed);
  return block;
}

/* As block_attempt with retries. Keeps errno on success, sets ENOMEM on failure. */
static void *block_or_null(size_t size, size_t alignment, unsigned cls, uintptr_t site, bool *zeroed) {
  int kept = errno;
  void *block = NULL;
  bool is_begun = slow_path_begin_inlined();
  *zeroed = false;
  if (LIKELY(is_begun)) {
    for (unsigned attempt = 0; block == NULL && attempt < ATTEMPTS_MAX; attempt++) {
      if (UNLIKELY(attempt > 0) && !may_try_again(attempt, size, &is_begun))
        break;
      block = block_attempt(size, alignment, cls, site, zeroed);
    }
  }
  if (LIKELY(is_begun)) {
    slow_path_end_inlined();
    background_start_if_due(site, BACKGROUND_ALLOCATES);
  } else {
    block = spare_take(size, alignment, cls);
    counter_note(spare_calls);
  }
  if (UNLIKELY(block == NULL))
    counter_note(memory_refusals);
  errno = LIKELY(block != NULL) ? kept : ENOMEM;
  return block;
}

/* Refills the hand of a split heap. It does no periodic work, because it is frequent. */
static NOINLINE void *malloc_slow_split(size_t size, uintptr_t site) {
  struct heap *heap = heap_current();
  void *block = NULL;
  if (size - 1 < HAK_SMALL_MAX && heap->split_seen == load_relaxed(&split_wanted) &&
      LIKELY(hak_thread == (uintptr_t)heap)) { /* no flag is set */
    bins_step_begin(heap);
    block = sample_refill(heap, hak_class_of(size));
    bins_step_end(heap);
  }
  return LIKELY(block != NULL) ? block : malloc_slow_from(size, site);
}

/* Returns a large object of the calling thread's stash, or NULL. */
static inline void *stashed_block(size_t size, uintptr_t site) {
  struct heap *heap = heap_if_idle();
  if (UNLIKELY(heap == NULL) || heap->stash == NULL || UNLIKELY(heap_life(heap) != 0) ||
      UNLIKELY(load_relaxed(&observers_large_made)))
    return NULL;
  owner_step_begin();
  void *block = stash_take(heap->stash, size, site);
  owner_step_end();
  return block;
}

static NOINLINE void *malloc_checked_slow(size_t size, size_t alignment, uintptr_t site) {
  bool zeroed;
  return block_or_null(size, alignment, checked_class(size, alignment), site, &zeroed);
}

static ALWAYS_INLINE void *malloc_checked_inlined(size_t size, size_t alignment, uintptr_t site) {
  unsigned cls = checked_class(size, alignment);
  void *block = NULL;
  size = max_size(size, 1);
  if (UNLIKELY(alignment > BLOCK_ALIGNMENT)) /* the class may be much longer */
    size = max_size(size, less(class_bytes(cls), CHECKED_SLACK_MAX));
  if (LIKELY(cls != 0 && !load_relaxed(&observers_large_made)))
    block = checked_take_ready(cls, size);
  return LIKELY(block != NULL) ? block : malloc_checked_slow(size, alignment, site);
}

void *malloc_checked(size_t size, size_t alignment, uintptr_t site) {
  return malloc_checked_inlined(size, alignment, site);
}

/* The same, of the usual alignment and any size. */
static NOINLINE void *malloc_checked_usual(size_t size, uintptr_t site) {
  return LIKELY(size <= PTRDIFF_MAX) ? malloc_checked_inlined(size, BLOCK_ALIGNMENT, site)
                                     : malloc_slow_from(size, site);
}

static NOINLINE void *malloc_large_slow(size_t size, uintptr_t site) {
  bool zeroed;
  return LIKELY(size <= PTRDIFF_MAX) ? block_or_null(size, BLOCK_ALIGNMENT, 0, site, &zeroed) : failed(ENOMEM);
}

static NOINLINE void *malloc_large(size_t size, uintptr_t site) {
  void *block = stashed_block(size, site);
  return LIKELY(block != NULL) ? block : malloc_large_slow(size, site);
}

/* Callers tail-call this function, so its return address is the program's call site. */
NOINLINE void *hak_malloc_slow(size_t size) {
  if (checked_is_on())
    return malloc_checked_usual(size, CALL_SITE);
  if (size > HAK_SMALL_MAX)
    return malloc_large(size, CALL_SITE);
  const struct heap *heap = heap_current();
  return UNLIKELY(heap != NULL && heap->split) ? malloc_slow_split(size, CALL_SITE) : malloc_slow_from(size, CALL_SITE);
}

NOINLINE void *malloc_slow_from(size_t size, uintptr_t site) {
  bool zeroed;
  if (UNLIKELY(size > PTRDIFF_MAX))
    return failed(ENOMEM);
  if (checked_is_on())
    return malloc_checked(size, BLOCK_ALIGNMENT, site);
  if (size > HAK_SMALL_MAX)
    return malloc_large(size, site);
  size = max_size(size, 1);
  return block_or_null(size, BLOCK_ALIGNMENT, hak_class_of(size), site, &zeroed);
}

void *aligned_block(size_t alignment, size_t size, uintptr_t site) {
  bool zeroed;
  if (alignment > BLOCK_ALIGNMENT) {
    if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX)
      return failed(ENOMEM);
    if (checked_is_on())
      return malloc_checked(size, alignment, site);
    unsigned cls = class_aligned(size, alignment);
    if (cls == 0)
      return block_or_null(max_size(size, 1), alignment, 0, site, &zeroed);
    size = class_bytes(cls);
  }
  return hak_malloc_inlined(size);
}

/* Tells whether a new block is known to be zero. */
static bool is_clear(const void *block) {
  if (!checked_is_on())
    return false;
  uint32_t entry = map_entry(block);
  return entry_is_checked(entry) ? checked.is_zeroed : entry == ENTRY_LARGE; /* large_or_packed cleared it */
}

void *hak_calloc(size_t count, size_t size) {
  size_t bytes;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX))
    return failed(ENOMEM);
  if (bytes <= CALLOC_SMALL_MAX || (bytes <= HAK_SMALL_MAX && large_length(bytes) - bytes > bytes / ROUNDING_SHARE)) {
    void *block = hak_malloc_ready(bytes);
    if (LIKELY(block != NULL)) {
      HAK_OWNER_STEPPED();
      return memset(block, 0, bytes);
    }
    block = hak_malloc_slow(bytes);
    return block == NULL || is_clear(block) ? block : memset(block, 0, bytes);
  }
  bool zeroed = false;
  void *block = bytes > HAK_SMALL_MAX && !checked_is_on() ? stashed_block(bytes, CALL_SITE) : NULL;
  if (block == NULL)
    block = block_or_null(bytes, BLOCK_ALIGNMENT, 0, CALL_SITE, &zeroed);
  if (block && !zeroed)
    large_clear(block, bytes);
  return block;
}
