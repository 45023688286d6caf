/* All bins of a heap. */
#include "heap/bins.h"

#include "heap/hands.h"

#define TICK_SLOW_CALLS 256  /* slow calls between two checks of all bins, */
#define FOLLOW_SLOW_CALLS 16 /* and at least between two times that they follow the slabs */
#define LOOKS_TO_SHRINK 8    /* checks between two decisions to shrink */

void bins_prewarm(struct heap *heap) {
  lock_take(&heap_pool(heap)->lock);
  for (unsigned cls = 1; cls < HAK_TINY_CLASS_COUNT; cls++)
    if (heap->bin_state[cls].base == NULL &&
        (!bin_open(heap, cls) || !bin_set_slots(heap, cls, heap->bin_state[cls].slots_initial) ||
         !bin_fill(heap, cls, heap->bin_state[cls].slots / 2)))
      break;
  lock_give(&heap_pool(heap)->lock);
}

/* When the slabs have grown or fallen far, the bins follow: each gives back what it has not needed since the last time.
 * Where the heap grows this is all, because the slabs that close serve other classes. */
static void bins_follow(struct heap *heap) {
  struct slab_set *slabs = &heap_pool(heap)->slabs;
  bool grew = slabs->slab_bytes > heap->slab_bytes_seen;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct bin_state *state = &heap->bin_state[cls];
    if (state->base == NULL)
      continue;
    size_t idle = min_size(state->low, bin_count(heap, cls));
    if (idle > 0)
      bin_flush(heap, cls, grew ? idle : bin_surplus(idle));
    state->low = (uint32_t)bin_count(heap, cls);
  }
  if (grew)
    slab_set_close_empty(slabs);
  heap->slab_bytes_seen = slabs->slab_bytes;
}

/* Fill levels are read at slow calls only. So low and high are estimates, and cost the fast path nothing. */
void bins_tick(struct heap *heap) {
  if (++heap->ticks % FOLLOW_SLOW_CALLS != 0)
    return;
  if (UNLIKELY(bins_should_follow(heap->slab_bytes_seen, heap_pool(heap)->slabs.slab_bytes)))
    bins_follow(heap);
  if (heap->ticks % TICK_SLOW_CALLS != 0)
    return;
  bool decide = heap->ticks % (TICK_SLOW_CALLS * LOOKS_TO_SHRINK) == 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct bin_state *state = &heap->bin_state[cls];
    if (decide && heap->split)
      hand_close(heap, cls); /* it may idle, too */
    if (state->base == NULL)
      continue;
    uint32_t count = (uint32_t)bin_count(heap, cls);
    if (count < state->low)
      state->low = count;
    if (count > state->high)
      state->high = count;
    if (decide) {
      bin_shrink(heap, cls);
      state->low = state->high = (uint32_t)bin_count(heap, cls);
      state->is_taken_from = false;
    }
  }
}

void bins_flush_all(struct heap *heap) {
  for (unsigned cls = 1; heap->split && cls < HAK_CLASS_COUNT; cls++)
    hand_close(heap, cls);
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    if (heap->bin_state[cls].base == NULL)
      continue;
    if (bin_count(heap, cls) > 0)
      bin_flush(heap, cls, bin_count(heap, cls));
    bin_close(heap, cls);
  }
}

void bins_drop_all(struct heap *heap) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    if (heap->split) {
      heap->tally->classes[cls].handed -= hand_count(heap, cls);
      hand_open(heap, cls);
    }
    if (heap->bin_state[cls].base)
      bin_set_top(heap, cls, heap->bin_state[cls].base);
  }
}

struct bins_content bins_content(const struct heap *heap) {
  struct bins_content content = {0};
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    size_t count = bin_blocks(heap, cls);
    content.blocks += count;
    content.bytes += count * class_bytes(cls);
  }
  return content;
}

#ifdef HAK_DEBUG
bool heap_is_valid(struct heap *heap) {
  size_t granted_bytes = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    const struct bin_state *state = &heap->bin_state[cls];
    if (!bin_is_valid(heap, cls) || !hand_is_valid(heap, cls))
      return false;
    if (state->base)
      granted_bytes += bin_granted_slots(state, state->slots) * class_bytes(cls);
  }
  return granted_bytes == heap->granted_bytes && slab_set_is_valid(&heap_pool(heap)->slabs);
}
#endif
