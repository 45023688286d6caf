#include "threads/deferred.h"

#include "large/large.h"

#include <string.h>

_Atomic(void *) deferred_first;

static void link_set(void *block, uint32_t entry, void *next) {
  if (entry == ENTRY_LARGE)
    large_link_set(block, next);
  else
    memcpy(block, &next, sizeof next);
}

void deferred_push(void *block, uint32_t entry) {
  void *first = load_relaxed(&deferred_first);
  do
    link_set(block, entry, first);
  while (!atomic_compare_exchange_weak_explicit(&deferred_first, &first, block, memory_order_release,
                                                memory_order_relaxed));
}

void *deferred_take(void) { return atomic_exchange_explicit(&deferred_first, NULL, memory_order_acquire); }

void *deferred_next(void *block, uint32_t entry) {
  void *next;
  if (entry == ENTRY_LARGE)
    return large_link(block);
  memcpy(&next, block, sizeof next);
  return next;
}
