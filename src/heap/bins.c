/* All bins of a heap, and the hands of a split one (heap/split.h). */
#include "heap/bins.h"

#include <string.h>

#define TICK_SLOW_CALLS 256  /* slow calls between two checks of all bins, */
#define FOLLOW_SLOW_CALLS 16 /* and at least between two times that they follow the slabs */
#define LOOKS_TO_SHRINK 8    /* checks between two decisions to shrink */

/* --- hands --- */

static void hand_open(struct heap *heap, unsigned cls) {
  void **base = hand_base(heap, cls);
  hand_set_size(heap, cls);
  heap->front.bins[cls] = (struct hak_bin){.top = base, .end = base};
}

/* Moves the blocks of the hand back to the bin. */
static void hand_close(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  size_t count = hand_count(heap, cls);
  hand_open(heap, cls);
  class->handed -= count;
  for (size_t i = 0; i < count; i++)
    bin_put(heap, cls, hand_base(heap, cls)[i]);
}

/* Refills an empty hand from the top of the bin, and from the slabs if the bin has too few. It ends before the block
 * that is to be a sample. Returns one block; NULL when memory is out. */
static void *hand_fill(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  size_t bytes = class_bytes(cls);
  tally_pushes(heap, cls);
  void *block = bin_count(heap, cls) == 0 ? bin_fill_and_pop(heap, cls) : NULL;
  tally_level(heap, cls);
  size_t wanted = class->hand_blocks;
  if (class->until < (int64_t)(wanted * bytes))
    wanted = class->until < (int64_t)bytes ? 1 : (size_t)class->until / bytes;
  wanted -= block != NULL;
  size_t moved = min_size(wanted, bin_count(heap, cls));
  void **hand = hand_base(heap, cls), **hand_end = hand + wanted;
  struct slab_set *slabs = &heap_pool(heap)->slabs;
  bool takes_more = wanted > moved && slab_set_has_free(slabs, cls); /* opens no slab for more than the first block */
  size_t taken = takes_more ? slab_set_take(slabs, cls, hand_end - moved, wanted - moved) : 0;
  heap->counters.refilled_blocks += taken;
  if (moved > 0) {
    void **top = bin_of(heap, cls)->top;
    memcpy(hand_end - moved, top - moved, moved * sizeof(void *));
    bin_set_top(heap, cls, top - moved);
  }
  if (moved + taken < wanted)
    memmove(hand, hand_end - moved - taken, (moved + taken) * sizeof(void *));
  top_store(&heap->front.bins[cls], hand + moved + taken);
  size_t handed = moved + taken + (block != NULL);
  class->handed += handed;
  class->until -= (int64_t)(handed * bytes);
  class->until_stratum -= (int64_t)(handed * bytes);
  return block ? block : hak_bin_pop(&heap->front.bins[cls]);
}

void *sample_refill(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  struct hak_bin *bin = bin_of(heap, cls), *hand = &heap->front.bins[cls];
  void **base = heap->bin_state[cls].base, **top = bin->top, **blocks_of_hand = hand_base(heap, cls);
  size_t blocks = class->hand_blocks, count = (size_t)(top - base);
  if (base == NULL || count < blocks || class->until < class->hand_bytes || hand->top != blocks_of_hand)
    return NULL;
  top -= blocks;
  void *block = top[blocks - 1]; /* the others go to the hand */
  memcpy(blocks_of_hand, top, (blocks - 1) * sizeof(void *));
  top_store(bin, top);
  top_store(hand, blocks_of_hand + blocks - 1);
  class->freed += count - class->level;
  class->level = (uint32_t)(count - blocks);
  class->handed += blocks;
  class->until -= class->hand_bytes;
  class->until_stratum -= class->hand_bytes;
  return block;
}

void *bin_refill(struct heap *heap, unsigned cls) {
  return UNLIKELY(heap->split) ? hand_fill(heap, cls) : bin_fill_and_pop(heap, cls);
}

static void split_begin(struct heap *heap) {
  const unsigned last = HAK_CLASS_COUNT - 1;
  if (bin_count(heap, last) > 0)
    bin_flush(heap, last, bin_count(heap, last));
  heap->split = HAK_SPLIT;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    *bin_of(heap, cls) = heap->front.bins[cls];
    hand_open(heap, cls);
    tally_level(heap, cls);
  }
  if (heap->bin_state[last].base)
    bin_set_end(heap, last);
}

static void split_end(struct heap *heap) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    tally_pushes(heap, cls);
    hand_close(heap, cls);
  }
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct hak_bin *bin = bin_of(heap, cls);
    heap->front.bins[cls] = *bin;
    *bin = cls == HAK_CLASS_COUNT - 1 ? hak_heap_none.bins[0] : (struct hak_bin){0};
  }
  heap->split = 0;
  if (heap->bin_state[HAK_CLASS_COUNT - 1].base)
    bin_set_end(heap, HAK_CLASS_COUNT - 1);
}

void bins_split(struct heap *heap, bool is_split) {
  if (is_split)
    split_begin(heap);
  else
    split_end(heap);
  heap_set_key(heap, heap->split);
}

struct class_counts bin_counts(const struct heap *heap, unsigned cls) {
  const struct class_tally *class = &heap->tally->classes[cls];
  size_t pushed = heap->split && cls != 0 ? bin_count(heap, cls) - class->level : 0;
  return (struct class_counts){
      .allocated = class->handed - (cls != 0 ? hand_count(heap, cls) : 0),
      .freed = class->freed + pushed + atomic_load_explicit(&class->freed_of_others, memory_order_relaxed),
  };
}

/* --- */

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
