/* The slow paths of free. hak_free_slow tries, in this order:
 *
 *   checked block       checked_free_begin (checked/checked_cache.h), else free_checked_slow
 *   without a lock      free_stashed: the stash, for large objects     free_remote: an open envelope
 *                       hak_front_push: a bin of the hak_heap used last
 *   free_unchecked      own small: bin_overflow -> bin_grow or flush  other pool's, no room: outbox_put
 *                       large: large_free, packed_give                not ours: foreign_free
 */
#include "api/alloc.h"

#include "base/counters.h"
#include "base/observers.h"
#include "base/options.h"
#include "checked/checked_cache.h"
#include "heap/bin.h"
#include "heap/envelope.h"
#include "heap/slow_path.h"
#include "large/large.h"
#include "large/range.h"
#include "large/stash.h"
#include "os/fault.h"
#include "pages/arena.h"
#include "pages/page_map.h"
#include "reclaim/background.h"
#include "threads/inherited.h"
#include "threads/registry.h"
#include "threads/spare.h"

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
    housekeep_of_small(own, entry_class(entry));
  } else {
    if (UNLIKELY(heap->split_seen != load_relaxed(&split_wanted)) && pool_lock(heap_pool(heap))) {
      heap_follow_tally(heap);
      pool_unlock(heap_pool(heap));
    }
    if (UNLIKELY(heap->front.split))
      tally_freed_of_other(heap, entry_class(entry));
    if (UNLIKELY(entry_is_shared(entry)))
      observers.shared_give(block, entry);
    else if (outbox_put(heap, block, entry))
      housekeep();
  }
}

#define REPORTS_MAX 10u

static _Atomic bool malloc_is_ours;

void foreign_malloc_is_ours(void) { store_relaxed(&malloc_is_ours, true); }
bool malloc_is_ours_for_all(void) { return load_relaxed(&malloc_is_ours); }

/* The address is outside hakmem's memory. Ends the program, or returns. */
COLD static void foreign_free(void *block) {
  static _Atomic unsigned reports;
  counter_note(foreign_frees);
  long mode = option_value(OPTION_FOREIGN);
  bool is_alone = load_relaxed(&malloc_is_ours) &&
                  option_value(OPTION_DEEPBIND) == DEEPBIND_DROP; /* else libc's malloc may serve a library */
  if (!is_alone && !option_is_set(OPTION_FOREIGN))
    mode = FOREIGN_IGNORE;
  if (mode == FOREIGN_IGNORE)
    return;
  if (mode == FOREIGN_ABORT && range_was_unmapped(block))
    fault_double_free(block);
  if (mode == FOREIGN_ABORT)
    fault_foreign(block);
  if (atomic_fetch_add_explicit(&reports, 1, memory_order_relaxed) < REPORTS_MAX)
    fault_foreign_reported(block);
}

COLD void fault_if_ours(const void *address, uint32_t entry) {
  if (entry == ENTRY_NONE)
    entry = range_entry_inside(address);
  if (entry == ENTRY_LARGE_BODY)
    fault_not_a_block(address);
  if (entry == ENTRY_LARGE_FREE || entry == ENTRY_EXTENT)
    fault_double_free(address);
  if (address_in_arena(address))
    fault_no_block_here(address);
}

/* Frees what is no block of a slab. is_inside: in a slow path; else without waiting. */
static NOINLINE void free_other(void *block, uint32_t entry, bool is_inside) {
  if (entry == ENTRY_LARGE && !large_is_start(block))
    fault_not_a_block(block);
  if (entry == ENTRY_LARGE || entry == ENTRY_PACKED) {
    if (LIKELY(is_inside)) {
      free_large(block, entry);
      housekeep();
    } else if (entry == ENTRY_PACKED || !large_free_unlocked(block)) {
      free_later(block, entry);
    }
  } else if (entry == ENTRY_GUARDED) {
    observers.guarded_free(block, is_inside);
  } else if (entry_is_spare(entry)) {
    spare_give(block, entry);
  } else {
    fault_if_ours(block, entry);
    foreign_free(block);
  }
}

/* Puts another pool's block into an envelope that stays open, which takes no lock. An envelope for private pools, for
 * checked blocks or for samples is never filled this way, so no other question needs to be asked before. */
static ALWAYS_INLINE bool free_remote(void *block, uint32_t entry) {
  uintptr_t thread = hak_thread;
  if (UNLIKELY((thread & THREAD_FLAGS) != 0 || thread == 0)) /* busy, or no heap */
    return false;
  owner_step_begin();
  bool is_put = outbox_put_ready(&((struct heap *)thread)->outbox, block, entry);
  owner_step_end();
  return is_put;
}

/* Frees a checked block by a slow path, or later. */
static NOINLINE void free_checked_slow(void *block, uint32_t entry, uintptr_t site) {
  KEEP_ERRNO;
  checked_retire(block, entry);
  if (LIKELY(slow_path_begin_inlined())) {
    if (UNLIKELY(load_relaxed(&observers_large_freed)))
      observers.large_freed(block);
    struct heap *heap = heap_of_thread();
    if (heap != NULL)
      checked_put(heap, block, entry);
    else
      checked_deliver(block, entry);
    housekeep();
    slow_path_end_inlined();
    background_start_if_due(site, BACKGROUND_FREES);
  } else {
    free_later(block, entry);
  }
}

static NOINLINE void free_unchecked(void *block, uint32_t entry, uintptr_t site) {
  KEEP_ERRNO;
  bool is_inside = slow_path_begin_inlined();
  if (UNLIKELY(entry_pool_id(entry) == 0))
    free_other(block, entry, is_inside);
  else if (LIKELY(is_inside))
    free_small(block, entry);
  else if (slab_is_block_start(block, entry_class(entry)))
    free_later(block, entry);
  else
    fault_not_a_block(block);
  if (LIKELY(is_inside)) {
    slow_path_end_inlined();
    background_start_if_due(site, BACKGROUND_FREES);
  }
}

static NOINLINE void free_by_slow_path(void *block, uintptr_t site) {
  uint32_t entry = map_entry(block);
  if (entry_is_checked(entry))
    free_checked_slow(block, entry, site);
  else if (LIKELY(!hak_front_push(&hak_self->private_front, block, true))) /* no block of the hak_heap used last */
    free_unchecked(block, entry, site);
}

/* As free_stashed, for objects whose place is not at once found, or that have none. */
static NOINLINE void free_stashed_searching(void *block, uintptr_t site) {
  struct stash *stash = heap_stash(heap_if_idle(), &observers_large_freed);
  struct large *range = map_record(block);
  bool is_put = false;
  if (LIKELY(stash != NULL) && LIKELY(block == large_object(range))) {
    owner_step_begin();
    is_put = stash_put(stash, range, block);
    owner_step_end();
  }
  if (UNLIKELY(!is_put))
    free_by_slow_path(block, site);
}

/* Frees an address whose entry was ENTRY_LARGE: a large object goes to the thread's stash, without a lock. */
static NOINLINE void free_stashed(void *block, uintptr_t site) {
  struct stash *stash = heap_stash(heap_if_idle(), &observers_large_freed);
  if (UNLIKELY(stash == NULL)) {
    free_by_slow_path(block, site);
    return;
  }
  struct large *range = map_record(block);
  bool is_put = false;
  owner_step_begin();
  if (LIKELY(block == large_object(range)))
    is_put = stash_put_again(stash, range, block);
  owner_step_end();
  if (UNLIKELY(!is_put))
    free_stashed_searching(block, site);
}

static NOINLINE void free_checked(void *block, uintptr_t site);

/* What checked_free_begin refused: makes room, or finds out what is wrong with the block. */
static NOINLINE void free_checked_refused(void *block, uintptr_t site) {
  struct checked_spot spot;
  if (checked_find(block, &spot) && checked_make_room(spot.class))
    free_checked(block, site);
  else
    free_by_slow_path(block, site);
}

#ifdef WIDE
static NOINLINE void free_checked_long(void *block, struct checked_freed freed) {
  memset(block, 0, freed.class->block_bytes);
  checked_free_end(block, freed);
}

/* Needs checked.is_usual. Calls nothing but at its end, so that few registers are saved. */
WIDE static NOINLINE void free_checked_wide(void *block, uintptr_t site) {
  struct checked_freed freed;
  if (UNLIKELY(!checked_free_begin(block, true, &freed))) {
    free_checked_refused(block, site);
  } else if (UNLIKELY(freed.class->block_bytes > WIDE_CLEAR_MAX)) {
    free_checked_long(block, freed);
  } else {
    block_clear_wide(block, freed.class->block_bytes);
    checked_free_end(block, freed);
  }
}
#else
#define free_checked_wide free_checked
#endif

static NOINLINE void free_checked(void *block, uintptr_t site) {
  struct checked_freed freed;
  if (LIKELY(checked.is_usual)) {
    free_checked_wide(block, site);
  } else if (UNLIKELY(!checked_free_begin(block, checked.has_canary, &freed))) {
    free_checked_refused(block, site);
  } else {
    block_clear(block, freed.class->block_bytes);
    checked_free_end(block, freed);
  }
}

/* Most of these frees are remote ones, which need no saved registers: what is more comes in functions of its own. */
#define SITE (given != 0 ? given : CALL_SITE) /* found where it is needed only */
static ALWAYS_INLINE void free_slow(void *block, uintptr_t given) {
  if (block == NULL) /* of which some programs free many */
    return;
  if (UNLIKELY(checked_is_on())) {
    free_checked(block, SITE);
    return;
  }
  uint32_t entry = map_entry(block);
  if (entry == ENTRY_LARGE)
    free_stashed(block, SITE);
  else if (UNLIKELY(front_is_private(hak_self)) && hak_front_push(&hak_self, block, true))
    return;
  else if (LIKELY(free_remote(block, entry)))
    return;
  else if (LIKELY(front_takes(hak_self, entry))) /* its bin is full */
    free_unchecked(block, entry, SITE);
  else
    free_by_slow_path(block, SITE);
}

NOINLINE void hak_free_slow(void *block) { free_slow(block, 0); }
NOINLINE void free_slow_from(void *block, uintptr_t site) { free_slow(block, site); }
