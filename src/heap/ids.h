/* ids.h: all heaps, by their ids, which are 1 .. heap_count, and which of them have owners. Reading takes no lock. Only
 * the holder of a heap's lifeline changes the heap's bit in `owned`. Without the bit the heap's bins are empty. */
#pragma once

#include "heap/heap.h"

uint32_t heap_count(void);
struct heap *heap_by_id(uint32_t id);
/* Returns the heap behind this one, or the first behind NULL; NULL behind the last. */
static inline struct heap *heap_next(const struct heap *heap) {
  uint32_t id = heap ? heap->id + 1 : 1;
  return id <= heap_count() ? heap_by_id(id) : NULL;
}
/* Returns the first heap from an id on that has an owner, or that has none; NULL if there is none. */
struct heap *heap_from(uint32_t id, bool owned);

/* For the registry, under its lock. heap_ids_grow: makes room for one more; false when memory is out. heap_ids_add: the
 * heap has the id behind the last one. */
bool heap_ids_grow(void);
void heap_ids_add(struct heap *heap);

/* One bit for each heap: a thread owns it, or owned it when it died. The other heaps are *parked*: swept, without an
 * owner, and attached to no pool. */
void heap_mark_owned(uint32_t id, bool owned);
bool heap_is_owned(uint32_t id);
