#include "threads/watch.h"

#include "checked/checked.h"
#include "heap/bin.h"
#include "heap/bins.h"
#include "heap/envelope.h"
#include "heap/ids.h"
#include "heap/queue.h"
#include "heap/slow_path.h"

#include <string.h>

/* Locks a pool to look at it. NULL: its lock is stuck (heap/pool.h). Then nobody changes the pool's sums, and they are
 * read without it; but bins are not, because a new owner takes a heap out of such a pool without the lock. */
static struct pool *pool_held(struct pool *pool) { return pool_lock(pool) ? pool : NULL; }

static void let_go(struct pool *held) {
  if (LIKELY(held != NULL))
    inbox_unlock(held);
}

/* The same for the pool of another thread's heap (H3). */
static struct pool *pool_held_of(const struct heap *heap) {
  for (;;) {
    struct pool *pool = heap_pool(heap), *held = pool_held(pool);
    if (LIKELY(heap_pool(heap) == pool))
      return held;
    let_go(held);
  }
}

bool heap_lock(struct heap *heap) { return pool_lock(heap_pool(heap)); }
void heap_unlock(struct heap *heap) { lock_give(&heap_pool(heap)->lock); }
void *heap_stack_notes(struct heap *heap) { return heap->stack_notes; }

void heap_figures(const struct heap *heap, struct heap_figures *out) {
  struct pool *held = pool_held_of(heap);
  struct bins_content bins = held != NULL ? bins_content(heap) : (struct bins_content){0};
  *out = (struct heap_figures){
      .id = heap->id,
      .pool_id = heap_pool(heap)->id,
      .thread_id = load_relaxed(&heap->thread_id),
      .is_parked = !heap_is_owned(heap->id),
      .bin_blocks = bins.blocks,
      .bin_bytes = bins.bytes,
      .checked_bytes = checked_cached_bytes(heap),
      .open_bytes = load_relaxed(&heap->outbox.open_bytes),
      .envelopes_sent = load_relaxed(&heap->outbox.envelopes_sent),
      .remote_frees = load_relaxed(&heap->outbox.remote_frees),
      .counters = heap->counters,
  };
  let_go(held);
}

void pool_figures(struct pool *pool, struct pool_figures *out) {
  struct pool *held = pool_held(pool);
  *out = (struct pool_figures){
      .id = pool->id,
      .heaps = load_relaxed(&pool->heaps),
      .slab_bytes = pool->slabs.slab_bytes,
      .taken_bytes = slab_set_taken_bytes(&pool->slabs),
      .inbox_bytes = load_relaxed(&pool->inbox_bytes),
      .counters = pool->counters,
      .slab_counters = pool->slabs.counters,
  };
  let_go(held);
}

void pools_classes(struct class_figures classes[HAK_CLASS_COUNT]) {
  memset(classes, 0, HAK_CLASS_COUNT * sizeof *classes);
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool)) {
    struct pool *held = pool_held(pool);
    for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
      classes[cls].slabs += pool->slabs.classes[cls].slab_count;
      classes[cls].taken_blocks += pool->slabs.classes[cls].taken_blocks;
    }
    let_go(held);
  }
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap)) {
    struct pool *held = pool_held_of(heap);
    for (unsigned cls = 1; held != NULL && cls < HAK_CLASS_COUNT; cls++)
      classes[cls].bin_blocks = min_size(classes[cls].bin_blocks + bin_count(heap, cls), classes[cls].taken_blocks);
    let_go(held);
  }
}

void heaps_counts(struct class_counts out[HAK_CLASS_COUNT]) {
  memset(out, 0, HAK_CLASS_COUNT * sizeof *out);
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap)) {
    struct pool *held = pool_held_of(heap);
    for (unsigned cls = 0; held != NULL && heap->tally && cls < HAK_CLASS_COUNT; cls++) {
      struct class_counts counts = tally_counts(heap, cls);
      struct class_counts of_cache = checked_counts(heap, cls);
      out[cls].allocated += counts.allocated + of_cache.allocated;
      out[cls].freed += counts.freed + of_cache.freed;
    }
    let_go(held);
  }
}

/* Makes the owner's next free take the slow path (heap/split.h, T4). */
static void ask_to_follow(struct heap *heap) {
  if (heap->front.split == 0)
    heap_set_key(heap, HAK_SPLIT);
  else
    __atomic_store_n(&heap->front.key, KEY_OF_NONE, __ATOMIC_RELAXED);
}

void heap_split_ask(void) {
  struct heap *heap = heap_current();
  if (heap && !thread_is_busy())
    ask_to_follow(heap);
}

void heaps_split_ask(void) {
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap)) {
    struct pool *held = pool_held_of(heap);
    if (held != NULL && heap->split_seen != atomic_load_explicit(&split_wanted, memory_order_acquire))
      ask_to_follow(heap);
    let_go(held);
  }
}

bool heap_is_private(const struct heap *heap) { return heap_life(heap) != 0; }
struct tally *heap_tally(const struct heap *heap) { return heap_is_counted(heap) ? heap->tally : NULL; }

bool heap_split_follow(struct heap *heap, struct tally *(*make)(uint32_t heap_id)) {
  heap->split_seen = atomic_load_explicit(&split_wanted, memory_order_acquire);
  queue_end(heap);
  bool is_wanted = heap->split_seen % 2 != 0;
  if (is_wanted && heap->tally == NULL)
    heap->tally = make(heap->id);
  bool is_split = is_wanted && heap->tally != NULL; /* without memory nothing is counted here */
  if (is_split != (heap->front.split != 0)) {
    heap_split(heap, is_split);
    outbox_count_each(heap);
  } else {
    heap_set_key(heap, heap->front.split); /* the request is done already */
  }
  return is_split;
}

void heap_follow_at_once(struct heap *heap) {
  if (!heap_lock(heap))
    return;
  heap_follow_tally(heap);
  heap_unlock(heap);
}

void *pool_shared_take(struct pool *shared, unsigned cls) {
  void *block = NULL;
  if (!pool_lock(shared))
    return NULL;
  slab_set_take(&shared->slabs, cls, &block + 1, 1);
  pool_unlock(shared);
  return block;
}

void pool_shared_give(struct pool *shared, unsigned cls, void *block) {
  if (!pool_lock(shared))
    return;
  slab_set_give(&shared->slabs, cls, &block, 1);
  pool_unlock(shared);
}
