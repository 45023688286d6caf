#include "threads/deferred.h"

#include "large/large.h"

#include <string.h>

_Atomic(void *) deferred_first;

static void *link_place(void *block, uint32_t entry) { return entry == ENTRY_LARGE ? large_link(block) : block; }

void deferred_push(void *block, uint32_t entry) {
  void *first = load_relaxed(&deferred_first);
  do
    memcpy(link_place(block, entry), &first, sizeof first);
  while (!atomic_compare_exchange_weak_explicit(&deferred_first, &first, block, memory_order_release,
                                                memory_order_relaxed));
}

void *deferred_take(void) { return atomic_exchange_explicit(&deferred_first, NULL, memory_order_acquire); }

void *deferred_next(void *block, uint32_t entry) {
  void *next;
  memcpy(&next, link_place(block, entry), sizeof next);
  return next;
}
