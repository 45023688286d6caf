#include "heap/bin.h"

_Atomic uint32_t split_wanted; /* even: nothing is counted */

void tally_allocated(struct heap *heap, unsigned cls, int count) {
  if (heap->split)
    heap->tally->classes[cls].handed += (uint64_t)count;
}

void tally_freed_of_other(struct heap *heap, unsigned cls) {
  if (heap->split)
    add_as_owner(&heap->tally->classes[cls].freed_of_others, 1);
}

void bin_set_top_split(struct heap *heap, unsigned cls, void **top) {
  tally_pushes(heap, cls);
  top_store(bin_of(heap, cls), top);
  tally_level(heap, cls);
}
