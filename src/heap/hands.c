#include "heap/hands.h"

#include <string.h>

void hand_open(struct heap *heap, unsigned cls) {
  void **base = hand_base(heap, cls);
  hand_set_size(heap, cls);
  heap->front.bins[cls] = (struct hak_bin){.top = base, .end = base};
}

void hand_close(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  size_t count = hand_count(heap, cls);
  hand_open(heap, cls);
  class->handed -= count;
  for (size_t i = 0; i < count; i++)
    bin_put(heap, cls, hand_base(heap, cls)[i]);
}

void *hand_fill(struct heap *heap, unsigned cls) {
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

#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELAXED)

/* In this order, so that statistics find no more in the bin or the hand than was counted. */
void *sample_refill(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  struct hak_bin *bin = &heap->front.bins[cls ^ HAK_SPLIT], *hand = &heap->front.bins[cls];
  void **base = heap->bin_state[cls].base, **top = bin->top, **blocks_of_hand = hand_base(heap, cls);
  size_t blocks = class->hand_blocks, count = (size_t)(top - base);
  int64_t bytes = (int64_t)(blocks * class_bytes(cls));
  if (base == NULL || count < blocks || class->until < bytes || hand->top != blocks_of_hand)
    return NULL;
  class->until -= bytes;
  class->until_stratum -= bytes;
  STORE(class->handed, class->handed + blocks);
  STORE(class->freed, class->freed + (count - class->level));
  STORE(class->level, (uint32_t)(count - blocks));
  atomic_signal_fence(memory_order_release);
  top -= blocks;
  void *block = top[blocks - 1]; /* the others go to the hand */
  memcpy(blocks_of_hand, top, (blocks - 1) * sizeof(void *));
  top_store(bin, top);
  top_store(hand, blocks_of_hand + blocks - 1);
  return block;
}

COLD static void split_begin(struct heap *heap) {
  heap->split = HAK_SPLIT;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    *bin_of(heap, cls) = heap->front.bins[cls];
    hand_open(heap, cls);
    tally_level(heap, cls);
  }
}

COLD static void split_end(struct heap *heap) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    tally_pushes(heap, cls);
    hand_close(heap, cls);
    struct hak_bin *bin = bin_of(heap, cls);
    heap->front.bins[cls] = *bin;
    *bin = (struct hak_bin){0};
  }
  heap->split = 0;
}

void bins_split(struct heap *heap, bool is_split) {
  if (is_split)
    split_begin(heap);
  else
    split_end(heap);
  heap_set_key(heap, heap->split);
}

COLD struct class_counts bin_counts(const struct heap *heap, unsigned cls) {
  const struct class_tally *class = &heap->tally->classes[cls];
  uint64_t handed = __atomic_load_n(&class->handed, __ATOMIC_RELAXED);
  uint64_t freed = __atomic_load_n(&class->freed, __ATOMIC_RELAXED);
  uint32_t level = __atomic_load_n(&class->level, __ATOMIC_RELAXED);
  size_t pushed = heap->split && cls != 0 ? less(bin_count(heap, cls), level) : 0;
  return (struct class_counts){
      .allocated = less(handed, cls != 0 ? hand_count(heap, cls) : 0),
      .freed = freed + pushed + load_relaxed(&class->freed_of_others),
  };
}
