#include "heap/split.h"

#include "heap/bin.h"

#include <string.h>

_Atomic uint32_t split_wanted; /* even: nothing is counted */

int64_t tally_until(const struct heap *heap, unsigned cls) {
  return heap_is_counted(heap) ? __atomic_load_n(&heap->front.bins[cls].until, __ATOMIC_RELAXED) : 0;
}

void tally_set_until(struct heap *heap, unsigned cls, int64_t until) {
  heap->tally->classes[cls].begun += (uint64_t)until - (uint64_t)tally_until(heap, cls);
  __atomic_store_n(&heap->front.bins[cls].until, until, __ATOMIC_RELAXED);
}

void tally_allocated(struct heap *heap, unsigned cls, int count) {
  if (!heap_is_counted(heap))
    return;
  struct class_tally *class = &heap->tally->classes[cls];
  class->begun += (uint64_t)(int64_t)count;
  class->brought += (uint64_t)(int64_t)count;
}

void tally_freed_of_other(struct heap *heap, unsigned cls) {
  if (heap_is_counted(heap))
    add_as_owner(&heap->tally->classes[cls].freed_of_others, 1);
}

COLD struct class_counts tally_counts(const struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  if (cls == 0)
    return (struct class_counts){.freed = load_relaxed(&class->freed_of_others)};
  uint64_t allocated = class->begun - (uint64_t)tally_until(heap, cls);
  uint64_t in_bin = heap_is_counted(heap) ? bin_count(heap, cls) : 0;
  return (struct class_counts){
      .allocated = allocated,
      .freed = sub_sat(allocated + in_bin, class->brought) + load_relaxed(&class->freed_of_others),
  };
}

/* The counts of T1 and T2 stay: `until` begins and ends at 0, and what is in the bin counts as brought. */
static void count_begin_or_end(struct heap *heap, unsigned cls, bool is_begin) {
  struct class_tally *class = &heap->tally->classes[cls];
  size_t in_bin = bin_count(heap, cls);
  class->brought += is_begin ? in_bin : -in_bin;
  class->begun -= (uint64_t)tally_until(heap, cls);
}

void bin_move_down(struct heap *heap, unsigned cls) {
  void **base = heap->bin_state[cls].base, **bottom = bin_bottom(heap, cls);
  if (bottom == base)
    return;
  size_t count = bin_count(heap, cls);
  memmove(base, bottom, count * sizeof(void *));
  bin_set_bottom(heap, cls, base);
  top_store(bin_of(heap, cls), base + count);
}

COLD void heap_split(struct heap *heap, bool is_split) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct hak_bin *malloc_bin = &heap->front.bins[cls], *free_bin = &heap->front.bins[cls ^ HAK_SPLIT];
    if (!heap->is_queue)
      count_begin_or_end(heap, cls, is_split);
    if (is_split) {
      void **base = heap->is_queue ? heap->bin_state[cls].base : NULL;
      *free_bin = *malloc_bin;
      *malloc_bin = (struct hak_bin){.top = base != NULL ? base : hak_heap_none.bins[cls].top, .until = 0};
    } else {
      bin_settle(heap, cls);
      *malloc_bin = *free_bin;
      *free_bin = (struct hak_bin){0};
    }
  }
  heap->front.bins[0] = heap->front.bins[HAK_SPLIT] = hak_heap_none.bins[0];
  heap->front.split = is_split ? HAK_SPLIT : 0;
  heap->is_queue &= is_split;
  heap_set_key(heap, heap->front.split);
}
