#include "heap/ids.h"

#include "base/doubling.h"
#include "os/fault.h"
#include "pages/metadata.h"

#define GROUP_HEAPS 64u
#define CHUNKS_MAX 14u /* a million heaps */

struct group {
  _Atomic uint64_t owned;
  struct heap *heaps[GROUP_HEAPS];
};

static struct {
  _Atomic uint32_t count;
  _Atomic(struct group *) chunks[CHUNKS_MAX]; /* base/doubling.h */
} ids;

uint32_t heap_count(void) { return atomic_load_explicit(&ids.count, memory_order_acquire); }

static struct group *group_of(uint32_t id) {
  struct doubling_place place = doubling_place((id - 1) / GROUP_HEAPS, 1);
  return atomic_load_explicit(&ids.chunks[place.chunk], memory_order_acquire) + place.index;
}

struct heap *heap_by_id(uint32_t id) {
  hak_assert(id >= 1 && id <= heap_count());
  return group_of(id)->heaps[(id - 1) % GROUP_HEAPS];
}

void heap_mark_owned(uint32_t id, bool owned) {
  uint64_t bit = (uint64_t)1 << (id - 1) % GROUP_HEAPS;
  if (owned)
    atomic_fetch_or_explicit(&group_of(id)->owned, bit, memory_order_relaxed);
  else
    atomic_fetch_and_explicit(&group_of(id)->owned, ~bit, memory_order_release);
}

bool heap_is_owned(uint32_t id) {
  return (atomic_load_explicit(&group_of(id)->owned, memory_order_acquire) >> (id - 1) % GROUP_HEAPS & 1) != 0;
}

COLD struct heap *heap_from(uint32_t id, bool owned) {
  for (uint32_t count = heap_count(); id <= count; id = (id - 1) / GROUP_HEAPS * GROUP_HEAPS + GROUP_HEAPS + 1) {
    uint64_t bits = atomic_load_explicit(&group_of(id)->owned, memory_order_acquire);
    bits = (owned ? bits : ~bits) >> (id - 1) % GROUP_HEAPS;
    if (bits == 0)
      continue;
    id += (uint32_t)__builtin_ctzl(bits);
    return id <= count ? heap_by_id(id) : NULL;
  }
  return NULL;
}

bool heap_ids_grow(void) {
  unsigned chunk = doubling_place(heap_count() / GROUP_HEAPS, 1).chunk;
  if (chunk == CHUNKS_MAX)
    return false;
  if (load_relaxed(&ids.chunks[chunk]) != NULL)
    return true;
  struct group *fresh = metadata_take_forever(sizeof *fresh << chunk);
  atomic_store_explicit(&ids.chunks[chunk], fresh, memory_order_release);
  return fresh != NULL;
}

void heap_ids_add(struct heap *heap) {
  group_of(heap->id)->heaps[(heap->id - 1) % GROUP_HEAPS] = heap;
  heap_mark_owned(heap->id, true);
  atomic_store_explicit(&ids.count, heap->id, memory_order_release);
}
