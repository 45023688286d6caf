/* Periodic work at the end of slow paths, and frees that had to wait for one. */
#include "api/alloc.h"

#include "base/counters.h"
#include "base/observers.h"
#include "budget/usage.h"
#include "checked/checked.h"
#include "heap/bins.h"
#include "heap/envelope.h"
#include "large/large.h"
#include "large/packed.h"
#include "os/fault.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/page_map.h"
#include "reclaim/background.h"
#include "reclaim/reclaim.h"
#include "threads/private.h"
#include "threads/registry.h"

#include <string.h>

#define SWEEP_PERIOD 64   /* slow calls of a heap between two searches for a dead thread's heap */
#define CHECK_PERIOD 1024 /* slow calls between two checks of all structures, in check builds */
_Static_assert(SWEEP_PERIOD % SLOW_CALLS_PERIOD == 0 && CHECK_PERIOD % SLOW_CALLS_PERIOD == 0, "whole periods");

void small_deliver(void *block, uint32_t entry) {
  if (entry_is_checked(entry)) {
    memset(block, 0, sizeof(void *)); /* where the link was */
    checked_deliver(block, entry);
  } else if (entry_is_shared(entry))
    observers.shared_give(block, entry);
  else
    block_deliver(block, entry);
}

void free_large(void *block, uint32_t entry) {
  if (UNLIKELY(load_relaxed(&observers_large_freed)))
    observers.large_freed(block);
  if (LIKELY(entry == ENTRY_LARGE)) {
    size_t bytes = large_bytes(block);
    struct pool *owner;
    if (UNLIKELY(!private_object_remove(block, &owner))) /* it is lost */
      return;
    large_free(block);
    if (LIKELY(heap_current() != NULL))
      bins_after_large(heap_current(), bytes);
  } else {
    packed_give(block);
  }
}

/* Deferred frees: the process has one list. A push is a compare-and-swap, and a take empties the list, so a push never
 * meets a block that was taken (no ABA). The link lies in the block (also in a packed one) or, for a large object, in
 * its record. No other pointer of hakmem's own lies in a block. */
static struct {
  _Atomic(void *) first;
  _Atomic uint32_t workers; /* threads that may hold a link to a deferred block */
} deferred;

bool deferred_waits(void) { return load_relaxed(&deferred.first) != NULL; }

static void *link_place(void *block, uint32_t entry) { return entry == ENTRY_LARGE ? large_link(block) : block; }

COLD void free_later(void *block, uint32_t entry) {
  void *first = load_relaxed(&deferred.first);
  do
    memcpy(link_place(block, entry), &first, sizeof first);
  while (!atomic_compare_exchange_weak_explicit(&deferred.first, &first, block, memory_order_release,
                                                memory_order_relaxed));
  counter_note(frees_deferred);
}

static void deferred_work_off(void) {
  atomic_fetch_add_explicit(&deferred.workers, 1, memory_order_seq_cst);
  void *block = atomic_exchange_explicit(&deferred.first, NULL, memory_order_acquire);
  for (void *next; block != NULL; block = next) {
    uint32_t entry = map_entry(block);
    memcpy(&next, link_place(block, entry), sizeof next);
    if (entry_pool_id(entry) != 0)
      small_deliver(block, entry);
    else
      free_large(block, entry);
  }
  atomic_fetch_sub_explicit(&deferred.workers, 1, memory_order_seq_cst);
}

bool deferred_finish(void) {
  deferred_work_off();
  uint64_t until_ms = os_milliseconds() + STUCK_MS;
  while (atomic_load_explicit(&deferred.workers, memory_order_seq_cst) != 0) {
    if (os_milliseconds() >= until_ms)
      return false;
    os_yield();
  }
  return true;
}

static void housekeep_heap(struct heap *heap) {
#ifdef HAK_DEBUG
  if (heap->slow_calls % CHECK_PERIOD == 0) {
    struct pool *pool = heap_pool(heap);
    lock_take(&pool->lock);
    hak_assert(heap_is_valid(heap));
    pool_unlock(pool);
    hak_assert(extents_are_valid() && packed_is_valid());
  }
#endif
  reclaim_tick_of_heap(heap);
  if (UNLIKELY(heap->slow_calls % SWEEP_PERIOD == 0)) {
    heaps_sweep_next();
    if (os_has_nodes())
      heap_follow_node(heap);
    heap_leave_contended(heap);
  }
  if (UNLIKELY(load_relaxed(&heap->flush_wanted))) {
    store_relaxed(&heap->flush_wanted, false);
    heap_flush_all(heap);
  }
}

static NOINLINE void do_what_is_due(struct heap *heap) {
  if (UNLIKELY(deferred_waits()))
    deferred_work_off();
  if (heap != NULL)
    housekeep_heap(heap);
  reclaim_tick();
  background_tick();
  if (observers.tick != NULL)
    observers.tick();
}

/* The thread may have no heap, because it has large objects only. */
void housekeep(void) {
  struct heap *heap = heap_current();
  if (heap != NULL)
    heap->slow_calls++;
  do_what_is_due(heap);
}

/* Most of these calls open and close no slab, and no other thread asks for anything. What blocks alone or time make due
 * waits for the end of a period. */
void housekeep_of_small(struct heap *own, unsigned cls) {
  struct heap *heap = heap_current();
  struct pool *pool = heap_pool(own);
  bins_tick(own, cls);
  bool has_news = pool->slabs.has_news;
  pool->slabs.has_news = false;
  if (UNLIKELY(has_news))
    bins_unpin(own);
  pool_unlock(pool);
  if (UNLIKELY(++heap->slow_calls % SLOW_CALLS_PERIOD == 0) || UNLIKELY(!load_relaxed(&background_is_told)) ||
      UNLIKELY(deferred_waits()) || UNLIKELY(load_relaxed(&heap->flush_wanted)) ||
      UNLIKELY(load_relaxed(&heap_pool(heap)->holes_are_due)))
    do_what_is_due(heap);
  else if (UNLIKELY(has_news))
    background_tick();
}

COLD void memory_release(size_t bytes) {
  usage_note_refusal(bytes);
  os_memory_limit_ask_again();
  private_flush_own();
  reclaim_all();
}
