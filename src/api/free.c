/* The slow paths of free. hak_free_slow tries, in this order:
 *
 *   checked block       checked_free_ready, else free_checked_slow
 *   without a lock      free_private: a bin of the hak_heap used last; free_remote: an open envelope
 *   free_unchecked      own small: bin_overflow -> bin_grow or flush  other pool's: outbox_put
 *                       large: large_free, packed_give                not ours: foreign_free
 */
#include "api/alloc.h"
#include "api/foreign.h"

#include "base/counters.h"
#include "base/observers.h"
#include "heap/bins.h"
#include "heap/checked.h"
#include "heap/deferred.h"
#include "heap/envelope.h"
#include "heap/inherited.h"
#include "heap/private.h"
#include "heap/registry.h"
#include "heap/slow_path.h"
#include "heap/spare.h"
#include "large/large.h"
#include "large/packed.h"
#include "os/fault.h"
#include "pages/arena.h"
#include "pages/page_map.h"
#include "reclaim/background.h"

#include <errno.h>
#include <string.h>

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
  if (LIKELY(heap != NULL) && UNLIKELY(heap->inherited_calls > 0))
    inherited_step(heap);
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
  counter_note(frees_deferred);
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
  if (LIKELY(slow_path_begin_inlined())) {
    if (UNLIKELY(atomic_load_explicit(&observers_large_freed, memory_order_relaxed)))
      observers.large_freed(block);
    free_retired(block, entry);
    slow_path_end_inlined();
    background_start_if_due(site, BACKGROUND_FREES);
  } else {
    deferred_push(block, entry);
    counter_note(frees_deferred);
  }
  errno = kept;
}

static NOINLINE void free_unchecked(void *block, uint32_t entry, uintptr_t site) {
  int kept = errno;
  if (LIKELY(slow_path_begin_inlined())) {
    if (LIKELY(entry_pool_id(entry) != 0))
      free_small(block, entry);
    else
      free_other(block, entry);
    slow_path_end_inlined();
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

static NOINLINE void free_slow_from(void *block, uintptr_t site) {
  if (block == NULL)
    return;
  uint32_t entry = map_entry(block);
  if (entry_is_checked(entry))
    free_checked_slow(block, entry, site);
  else if (!free_private(block, entry) && !free_remote(block, entry))
    free_unchecked(block, entry, site);
}

NOINLINE void hak_free_slow(void *block) {
  if (!checked_is_on() || !checked_free_ready(block))
    free_slow_from(block, CALL_SITE);
}
