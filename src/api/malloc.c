/* malloc and free: gives the fast path (hakmem/inline.h) its names, and holds the entries of the slow paths.
 *
 *   hak_malloc_slow  small: bin_refill -> inbox, slabs, units      large: large_alloc -> BigCache, extents, mappings
 *                    where memory is short: packed_take
 *   hak_free_slow    own small: bin_overflow -> bin_grow or flush  other pool's: outbox_put
 *                    large: large_free, packed_give                not ours: foreign_free
 */
#include "api/alloc.h"
#include "api/foreign.h"

#include "base/event.h"
#include "budget/usage.h"
#include "heap/bins.h"
#include "heap/checked.h"
#include "heap/deferred.h"
#include "heap/envelope.h"
#include "heap/private.h"
#include "heap/registry.h"
#include "heap/slow_path.h"
#include "heap/spare.h"
#include "large/large.h"
#include "large/packed.h"
#include "os/fault.h"
#include "pages/extent.h"
#include "pages/page_map.h"
#include "pages/superslab.h"
#include "reclaim/background.h"
#include "reclaim/reclaim.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define SWEEP_PERIOD 64   /* slow calls of a heap between two searches for a dead thread's heap */
#define CHECK_PERIOD 1024 /* slow calls between two checks of all structures, in check builds */

/* Above this calloc takes a large object. Its pages are often known to be zero and cost nothing until they are used. A
 * block of a slab would have to be cleared, which makes it resident. */
#define CALLOC_SMALL_MAX ((size_t)64 * 1024)
#define ROUNDING_SHARE 8 /* unless that rounds it up by more than this fraction */

void *hak_malloc(size_t size) { return hak_malloc_inlined(size); }
void hak_free(void *block) { hak_free_inlined(block); }

/* A static link takes only the objects that are referenced. This reference brings the constructor along with malloc. */
__attribute__((used)) static void (*const start_with_malloc)(void) = hak_start;

/* Does periodic work at the end of a slow path, without a lock. */
static void housekeep_heap(struct heap *heap) {
  heap->slow_calls++;
#ifdef HAK_DEBUG
  if (heap->slow_calls % CHECK_PERIOD == 0) {
    struct pool *pool = heap_pool(heap);
    lock_take(&pool->lock);
    hak_assert(heap_is_valid(heap) && superslabs_are_valid());
    pool_unlock(pool);
    hak_assert(extents_are_valid() && packed_is_valid());
  }
#endif
  reclaim_tick_of_heap(heap);
  if (UNLIKELY(heap->slow_calls % SWEEP_PERIOD == 0))
    heaps_sweep(1);
  if (UNLIKELY(atomic_load_explicit(&heap->flush_wanted, memory_order_relaxed))) {
    atomic_store_explicit(&heap->flush_wanted, false, memory_order_relaxed);
    heap_flush_all(heap);
  }
}

static _Atomic uint32_t deferred_workers; /* threads that may hold a link to a deferred block */
static void deferred_work_off(void);

/* The same for a thread that may have no heap, because it has large objects only. */
void housekeep(void) {
  if (UNLIKELY(deferred_waits()))
    deferred_work_off();
  if (heap_current())
    housekeep_heap(heap_current());
  reclaim_tick();
  background_tick();
  if (observers.tick != NULL)
    observers.tick();
}

/* Memory is out: gives back all free memory, and free address space too. */
COLD void memory_release(void) {
  usage_note_refusal();
  struct heap *heap = heap_current();
  if (heap)
    heap_flush_all(heap);
  reclaim_all();
}

/* Tries again after giving back all free memory, and once more if the program's callback returned 1. The caller is in a
 * slow path. The callback runs outside it, because it frees. */
#define HOPELESS_BYTES ((size_t)1 << 40)

static bool may_try_again(unsigned attempt, size_t size, bool *is_begun) {
  struct pool *pool = private_current();
  if (pool != NULL && private_forbids(pool, size)) { /* nothing outside the heap can help */
    heap_flush_all(heap_current());
    return attempt == 1;
  }
  if (attempt == 1) {
    if (size > HOPELESS_BYTES) /* giving memory back cannot make room for it */
      return false;
    event_note(EVENT_MEMORY_RETRY);
    memory_release();
    return true;
  }
  bool again = limit_callback_call(size, is_begun);
  if (again && *is_begun) /* the freed memory may be held in a shape that does not fit */
    memory_release();
  return again && *is_begun;
}

static void *large_block(size_t size, size_t alignment, uintptr_t site, bool *zeroed) {
  struct pool *pool = private_current();
  size_t reserved = large_good_size(size);
  if (UNLIKELY(pool != NULL) && !private_reserve(pool, reserved))
    return NULL;
  void *block = large_alloc(size, alignment, site, zeroed);
  if (UNLIKELY(pool != NULL))
    private_object_add(pool, block, reserved);
  if (UNLIKELY(atomic_load_explicit(&observers_large_made, memory_order_relaxed)) && block != NULL)
    observers.large_made(block, large_bytes(block), site);
  housekeep();
  return block;
}

/* Returns the calling thread's heap, which it makes if necessary. NULL when memory is out. */
static struct heap *heap_of_thread(void) {
  struct heap *heap = heap_current();
  return LIKELY(heap != NULL) ? heap : heap_attach();
}

static void *small_block(unsigned cls, size_t size, uintptr_t site) {
  struct heap *heap = heap_of_thread();
  while (LIKELY(heap != NULL) && UNLIKELY(!pool_lock(heap_pool(heap))))
    heap = private_current() == NULL ? heap_replace() : NULL;
  if (UNLIKELY(heap == NULL))
    return NULL;
  heap_follow_tally(heap);
  void *block = hak_bin_pop(&heap->front.bins[cls]);
  heap->counters.calls_filled += block != NULL;
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
  if (UNLIKELY(atomic_load_explicit(&observers_large_made, memory_order_relaxed)) && block != NULL)
    observers.large_made(block, packed_bytes(block), site);
  housekeep();
  return block;
}

#define PACKED_FIRST 48u /* this many requests for a class without a slab are packed */

/* Tells whether to take a block of a class from slabs. When memory is short, a slab is too much for a few blocks, so
 * the first blocks of a class are packed (large/packed.h). So are all blocks of the longest classes, and when memory is
 * tight all above 2 KiB. */
static bool slab_pays(struct heap *heap, unsigned cls) {
  if (LIKELY(!usage_is_short()) || heap == NULL || private_current() != NULL)
    return true;
  unsigned order = size_classes[cls].order;
  if (order == UNIT_ORDER_MAX || (order > 0 && usage_is_tight()))
    return false;
  struct pool *pool = heap_pool(heap);
  if (UNLIKELY(!pool_lock(pool)))
    return true;
  bool pays = pool->slabs.slab_count[cls] > 0 || pool->packed_first[cls] == PACKED_FIRST;
  pool->packed_first[cls] += !pays;
  pool_unlock(pool);
  return pays;
}

/* Returns a checked block. */
static void *checked_block(unsigned cls, size_t size, size_t alignment, uintptr_t site) {
  struct heap *heap = heap_of_thread();
  void *block = NULL;
  if (UNLIKELY(atomic_load_explicit(&observers_large_made, memory_order_relaxed)))
    block = observers.checked_sample(size, alignment, site);
  if (UNLIKELY(block != NULL)) {
    housekeep();
    return block;
  }
  block = heap ? checked_take(heap, cls, size) : NULL;
  if (UNLIKELY(atomic_load_explicit(&observers_large_made, memory_order_relaxed)) && block != NULL)
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
  bool is_packed = UNLIKELY(usage_is_short()) && !checked_is_on();
  void *block = is_packed ? packed_block(size, alignment, site) : NULL;
  if (LIKELY(block == NULL))
    block = large_block(size, alignment, site, zeroed);
  if (checked_is_on() && block != NULL && !*zeroed) { /* no block shows what others left */
    large_clear(block, size);
    *zeroed = true;
  }
  return block;
}

/* After a refusal, usage_look reads the limits without a lock, and it tries again. */
void *block_attempt(size_t size, size_t alignment, unsigned cls, uintptr_t site, bool *zeroed) {
  void *block = cls ? block_of(cls, size, alignment, site) : large_or_packed(size, alignment, site, zeroed);
  if (UNLIKELY(block == NULL) && usage_look())
    block = cls ? block_of(cls, size, alignment, site) : large_or_packed(size, alignment, site, zeroed);
  return block;
}

/* As block_attempt with retries. Keeps errno on success, sets ENOMEM on failure. */
static void *block_or_null(size_t size, size_t alignment, unsigned cls, uintptr_t site, bool *zeroed) {
  int kept = errno;
  void *block = NULL;
  bool is_begun = slow_path_begin();
  *zeroed = false;
  if (LIKELY(is_begun)) {
    for (unsigned attempt = 0; block == NULL && attempt < ATTEMPTS_MAX; attempt++) {
      if (UNLIKELY(attempt > 0) && !may_try_again(attempt, size, &is_begun))
        break;
      block = block_attempt(size, alignment, cls, site, zeroed);
    }
  }
  if (LIKELY(is_begun)) {
    slow_path_end();
    background_start_if_due(site, BACKGROUND_ALLOCATES);
  } else {
    block = spare_take(size, alignment, cls);
    event_note(EVENT_SPARE_CALL);
  }
  if (UNLIKELY(block == NULL))
    event_note(EVENT_MEMORY_REFUSED);
  errno = LIKELY(block != NULL) ? kept : ENOMEM;
  return block;
}

/* Refills the hand of a split heap. It does no periodic work, because it is frequent. */
static NOINLINE void *malloc_slow_split(size_t size, uintptr_t site) {
  struct heap *heap = heap_current();
  void *block = NULL;
  if (size - 1 < HAK_SMALL_MAX && heap->split_seen == atomic_load_explicit(&split_wanted, memory_order_relaxed) &&
      slow_path_begin()) {
    struct pool *pool = heap_pool(heap);
    if (LIKELY(lock_try(&pool->lock))) {
      block = sample_refill(heap, hak_class_of(size));
      pool_unlock(pool);
    }
    slow_path_end();
  }
  return LIKELY(block != NULL) ? block : malloc_slow_from(size, site);
}

static NOINLINE void *malloc_checked_slow(size_t size, size_t alignment, uintptr_t site) {
  bool zeroed;
  size = max_size(size, 1);
  return block_or_null(size, alignment, checked_class(size, alignment), site, &zeroed);
}

void *malloc_checked(size_t size, size_t alignment, uintptr_t site) {
  unsigned cls = checked_class(size, alignment);
  void *block = NULL;
  if (LIKELY(cls != 0 && !atomic_load_explicit(&observers_large_made, memory_order_relaxed)))
    block = checked_take_ready(cls, max_size(size, 1));
  return LIKELY(block != NULL) ? block : malloc_checked_slow(size, alignment, site);
}

/* Callers tail-call this function, so its return address is the program's call site. */
NOINLINE void *hak_malloc_slow(size_t size) {
  if (checked_is_on() && LIKELY(size <= PTRDIFF_MAX))
    return malloc_checked(size, BLOCK_ALIGNMENT, CALL_SITE);
  const struct heap *heap = heap_current();
  return UNLIKELY(heap != NULL && heap->split) ? malloc_slow_split(size, CALL_SITE) : malloc_slow_from(size, CALL_SITE);
}

NOINLINE void *malloc_slow_from(size_t size, uintptr_t site) {
  bool zeroed;
  if (UNLIKELY(size > PTRDIFF_MAX)) {
    errno = ENOMEM;
    return NULL;
  }
  if (checked_is_on())
    return malloc_checked(size, BLOCK_ALIGNMENT, site);
  size = max_size(size, 1);
  return block_or_null(size, BLOCK_ALIGNMENT, size <= HAK_SMALL_MAX ? hak_class_of(size) : 0, site, &zeroed);
}

void *aligned_block(size_t alignment, size_t size, uintptr_t site) {
  bool zeroed;
  if (alignment <= BLOCK_ALIGNMENT)
    return hak_malloc_inlined(size);
  if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX) {
    errno = ENOMEM;
    return NULL;
  }
  if (checked_is_on())
    return malloc_checked(size, alignment, site);
  unsigned cls = class_aligned(size, alignment);
  if (cls != 0)
    return hak_malloc_inlined(class_bytes(cls));
  return block_or_null(max_size(size, 1), alignment, 0, site, &zeroed);
}

void *hak_calloc(size_t count, size_t size) {
  size_t bytes;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX)) {
    errno = ENOMEM;
    return NULL;
  }
  if (bytes <= CALLOC_SMALL_MAX ||
      (bytes <= HAK_SMALL_MAX && large_good_size(bytes) - bytes > bytes / ROUNDING_SHARE)) {
    void *block = hak_malloc_inlined(bytes);
    return block ? memset(block, 0, bytes) : NULL;
  }
  bool zeroed;
  void *block = block_or_null(bytes, BLOCK_ALIGNMENT, 0, CALL_SITE, &zeroed);
  if (block && !zeroed)
    large_clear(block, bytes);
  return block;
}

/* Frees a block straight into its slab. */
static void small_deliver(void *block, uint32_t entry) {
  if (entry_is_checked(entry)) {
    memset(block, 0, sizeof(void *)); /* where the link was */
    checked_deliver(block, entry);
  } else if (entry_is_shared(entry))
    observers.shared_give(block, entry);
  else
    block_deliver(block, entry);
}

/* Frees a block that checked_retire has checked. */
static void free_retired(void *block, uint32_t entry) {
  struct heap *heap = heap_of_thread();
  if (heap != NULL)
    checked_put(heap, block, entry);
  else
    checked_deliver(block, entry);
  housekeep();
}

/* Returns the heap that the calling thread used last for a hak_heap, if the block is of its pool, else NULL. */
static struct heap *private_of(const struct heap *heap, uint32_t entry) {
  struct hak_front *front = heap->front.private_front;
  return UNLIKELY(entry_is_of(entry, HAK_KEY(front))) ? (struct heap *)front : NULL;
}

static void free_small(void *block, uint32_t entry) {
  if (checked_is_on()) { /* it was allocated before checks began */
    small_deliver(block, entry);
    return;
  }
  struct heap *heap = heap_of_thread();
  struct heap *own = NULL;
  if (LIKELY(heap != NULL))
    own = entry_is_of(entry, heap_pool(heap)->slabs.key) ? heap : private_of(heap, entry);
  if (own != NULL && UNLIKELY(!pool_lock(heap_pool(own)))) {
    if (heap_life(own) == 0)
      heap = heap_replace(); /* in another pool */
    own = NULL;
  }
  if (UNLIKELY(heap == NULL)) {
    small_deliver(block, entry);
  } else if (own != NULL) {
    heap_follow_tally(own);
    bin_overflow(own, entry_class(entry), block);
    bins_tick(own);
    pool_unlock(heap_pool(own));
    housekeep();
  } else {
    if (UNLIKELY(heap->split_seen != atomic_load_explicit(&split_wanted, memory_order_relaxed))) {
      if (pool_lock(heap_pool(heap))) {
        heap_follow_tally(heap);
        pool_unlock(heap_pool(heap));
      }
    }
    if (UNLIKELY(heap->split))
      tally_freed_of_other(heap, entry_class(entry));
    if (UNLIKELY(entry_is_shared(entry)))
      observers.shared_give(block, entry);
    else if (outbox_put(heap, block, entry))
      housekeep();
  }
}

void free_large(void *block, uint32_t entry) {
  if (UNLIKELY(atomic_load_explicit(&observers_large_freed, memory_order_relaxed)))
    observers.large_freed(block);
  if (LIKELY(entry == ENTRY_LARGE)) {
    private_object_remove(block);
    large_free(block);
  } else {
    packed_give(block);
  }
}

static bool is_in_unit(const void *block) { return ((uintptr_t)block & (UNIT_BYTES - 1)) != 0; }

static void free_other(void *block, uint32_t entry) {
  if (entry == ENTRY_LARGE_BODY || (entry == ENTRY_LARGE && is_in_unit(block)))
    fault_not_a_block(block);
  if (entry == ENTRY_LARGE_FREE || entry == ENTRY_EXTENT)
    fault_double_free(block);
  if (entry == ENTRY_LARGE || entry == ENTRY_PACKED) {
    free_large(block, entry);
    housekeep();
  } else if (entry == ENTRY_GUARDED) {
    observers.guarded_free(block, true);
  } else if (entry_is_spare(entry)) {
    spare_give(block, entry);
  } else if (address_in_arena(block)) {
    fault_no_block_here(block);
  } else {
    foreign_free(block);
  }
}

static void deferred_work_off(void) {
  atomic_fetch_add_explicit(&deferred_workers, 1, memory_order_seq_cst);
  for (void *block = deferred_take(), *next; block != NULL; block = next) {
    uint32_t entry = map_entry(block);
    next = deferred_next(block, entry);
    if (entry_pool_id(entry) != 0)
      small_deliver(block, entry);
    else
      free_large(block, entry);
  }
  atomic_fetch_sub_explicit(&deferred_workers, 1, memory_order_seq_cst);
}

void deferred_finish(void) {
  deferred_work_off();
  while (atomic_load_explicit(&deferred_workers, memory_order_seq_cst) != 0)
    os_yield();
}

/* Frees without waiting: a later slow path frees the block of a slab, the packed block or the large object. */
COLD static void free_deferred(void *block, uint32_t entry) {
  bool is_small = entry_pool_id(entry) != 0, is_large = entry == ENTRY_LARGE;
  if (entry == ENTRY_GUARDED) {
    observers.guarded_free(block, false);
    return;
  }
  if (!is_small && !is_large && entry != ENTRY_PACKED) {
    free_other(block, entry);
    return;
  }
  if ((is_small && !slab_is_block_start(block, entry_class(entry))) || (is_large && is_in_unit(block)))
    fault_not_a_block(block);
  if (is_large && large_free_unlocked(block))
    return;
  deferred_push(block, entry);
  event_note(EVENT_FREE_DEFERRED);
}

/* Puts another pool's block into an envelope that stays open, which takes no lock. */
static inline bool free_remote(void *block, uint32_t entry) {
  uintptr_t thread = hak_thread;
  if (UNLIKELY(thread <= THREAD_FLAGS || (thread & THREAD_FLAGS) != 0)) /* no heap, or busy */
    return false;
  owner_step_begin();
  bool is_put = outbox_put_ready(&((struct heap *)thread)->outbox, block, entry);
  owner_step_end();
  return is_put;
}

/* Frees a checked block by a slow path, or later. */
static NOINLINE void free_checked_slow(void *block, uint32_t entry, uintptr_t site) {
  int kept = errno;
  checked_retire(block, entry);
  if (LIKELY(slow_path_begin())) {
    if (UNLIKELY(atomic_load_explicit(&observers_large_freed, memory_order_relaxed)))
      observers.large_freed(block);
    free_retired(block, entry);
    slow_path_end();
    background_start_if_due(site, BACKGROUND_FREES);
  } else {
    deferred_push(block, entry);
    event_note(EVENT_FREE_DEFERRED);
  }
  errno = kept;
}

static NOINLINE void free_checked(void *block, uint32_t entry, uintptr_t site) {
  if (UNLIKELY(atomic_load_explicit(&observers_large_freed, memory_order_relaxed)) ||
      UNLIKELY(!checked_free_ready(block, entry_class(entry))))
    free_checked_slow(block, entry, site);
}

static NOINLINE void free_unchecked(void *block, uint32_t entry, uintptr_t site) {
  int kept = errno;
  if (LIKELY(slow_path_begin())) {
    if (LIKELY(entry_pool_id(entry) != 0))
      free_small(block, entry);
    else
      free_other(block, entry);
    slow_path_end();
    background_start_if_due(site, BACKGROUND_FREES);
  } else {
    free_deferred(block, entry);
  }
  errno = kept;
}

/* Pushes a block of the hak_heap that the thread used last into the thread's bin for it. */
static bool free_private(void *block, uint32_t entry) {
  struct hak_front *front = hak_self->private_front;
  uint32_t bin_offset = entry ^ HAK_KEY(front);
  if (LIKELY(bin_offset >= HAK_ENTRY_END))
    return false;
  struct hak_bin *bin = (struct hak_bin *)(void *)((char *)front->bins + bin_offset);
  void **top = __atomic_load_n(&bin->top, __ATOMIC_RELAXED);
  if (top == bin->end)
    return false;
  __atomic_store_n(top, block, __ATOMIC_RELAXED);
  __atomic_store_n(&bin->top, top + 1, __ATOMIC_RELAXED);
  HAK_STEPPED(front);
  return true;
}

NOINLINE void hak_free_slow(void *block) {
  if (block == NULL)
    return;
  uint32_t entry = map_entry(block);
  if (free_private(block, entry) || free_remote(block, entry))
    return;
  if (entry_is_checked(entry))
    free_checked(block, entry, CALL_SITE);
  else
    free_unchecked(block, entry, CALL_SITE);
}
