#include "heap/watch.h"

#include "heap/bins.h"
#include "heap/checked.h"
#include "heap/ids.h"
#include "heap/slow_path.h"

void heap_lock(struct heap *heap) { lock_take(&heap->lock); }
void heap_unlock(struct heap *heap) { lock_give(&heap->lock); }
uintptr_t *heap_stack_notes(struct heap *heap) { return heap->stack_notes; }

void heap_figures_locked(const struct heap *heap, struct heap_figures *out) {
  struct bins_content bins = bins_content(heap);
  *out = (struct heap_figures){
      .id = heap->id,
      .thread_id = atomic_load_explicit(&heap->thread_id, memory_order_relaxed),
      .is_shared = heap->is_shared,
      .is_parked = atomic_load_explicit(&heap->parked, memory_order_relaxed),
      .slab_bytes = heap->slabs.slab_bytes,
      .taken_bytes = slab_set_taken_bytes(&heap->slabs),
      .bin_blocks = bins.blocks,
      .bin_bytes = bins.bytes,
      .inbox_bytes = atomic_load_explicit(&heap->inbox_bytes, memory_order_relaxed),
      .checked_bytes = checked_cached_bytes(heap),
      .open_bytes = atomic_load_explicit(&heap->outbox.open_bytes, memory_order_relaxed),
      .envelopes_sent = atomic_load_explicit(&heap->outbox.envelopes_sent, memory_order_relaxed),
      .remote_frees = atomic_load_explicit(&heap->outbox.remote_frees, memory_order_relaxed),
      .counters = heap->counters,
      .slab_counters = heap->slabs.counters,
  };
}

void heap_figures(struct heap *heap, struct heap_figures *out) {
  heap_lock(heap);
  heap_figures_locked(heap, out);
  heap_unlock(heap);
}

void heap_classes_add(struct heap *heap, struct class_figures classes[HAK_CLASS_COUNT]) {
  heap_lock(heap);
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    if (heap->slabs.slab_count[cls] == 0)
      continue;
    classes[cls].slabs += heap->slabs.slab_count[cls];
    classes[cls].taken_blocks += heap->slabs.taken_blocks[cls];
    classes[cls].bin_blocks += min_size(bin_blocks(heap, cls), heap->slabs.taken_blocks[cls]);
  }
  heap_unlock(heap);
}

void heaps_counts(struct class_counts out[HAK_CLASS_COUNT]) {
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++)
    out[cls] = (struct class_counts){0};
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap)) {
    heap_lock(heap);
    for (unsigned cls = 0; heap->tally && cls < HAK_CLASS_COUNT; cls++) {
      struct class_counts counts = bin_counts(heap, cls);
      struct class_counts of_cache = checked_counts(heap, cls);
      out[cls].allocated += counts.allocated + of_cache.allocated;
      out[cls].freed += counts.freed + of_cache.freed;
    }
    heap_unlock(heap);
  }
}

void heap_split_ask(void) {
  struct heap *heap = heap_current();
  if (heap && !thread_is_busy())
    heap_set_key(heap, HAK_SPLIT);
}

void heaps_split_ask(void) {
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap)) {
    heap_lock(heap);
    uint32_t wanted = atomic_load_explicit(&split_wanted, memory_order_acquire);
    if (heap->split_seen != wanted && wanted % 2 != 0)
      heap_set_key(heap, HAK_SPLIT);
    heap_unlock(heap);
  }
}

struct tally *heap_tally(const struct heap *heap) { return heap->split ? heap->tally : NULL; }

struct tally *heap_split_follow(struct heap *heap, struct tally *(*make)(uint32_t heap_id)) {
  heap->split_seen = atomic_load_explicit(&split_wanted, memory_order_acquire);
  bool is_wanted = heap->split_seen % 2 != 0;
  if (is_wanted && heap->tally == NULL)
    heap->tally = make(heap->id);
  bool is_split = is_wanted && heap->tally != NULL; /* without memory nothing is counted here */
  if (is_split && heap->split)
    bins_split(heap, false); /* the blocks in the hands are no samples */
  if (is_split != (heap->split != 0))
    bins_split(heap, is_split);
  else
    heap_set_key(heap, heap->split); /* the request is done already */
  return is_split ? heap->tally : NULL;
}

void heap_follow_at_once(struct heap *heap) {
  heap_lock(heap);
  heap_follow_tally(heap);
  heap_unlock(heap);
}

void *heap_shared_take(struct heap *shared, unsigned cls) {
  void *block[1];
  heap_lock(shared);
  size_t taken = slab_set_take(&shared->slabs, cls, block + 1, 1);
  heap_unlock(shared);
  return taken ? block[0] : NULL;
}

void heap_shared_give(struct heap *shared, unsigned cls, void *block) {
  heap_lock(shared);
  slab_set_give(&shared->slabs, cls, &block, 1);
  heap_unlock(shared);
}
