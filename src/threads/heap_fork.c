/* What becomes of the heaps at a fork. */
#include "threads/registry.h"

#include "checked/checked.h"
#include "heap/bins.h"
#include "heap/envelope.h"
#include "heap/ids.h"
#include "threads/inherited.h"
#include "threads/private.h"

/* Drops bins and outbox of a heap whose owner does not exist in the child: both may be inconsistent, because they
 * change outside slow paths. */
COLD static void drop_in_child(struct heap *heap) {
  bins_drop_all(heap);
  checked_drop(heap);
  outbox_drop_all(heap);
  lifeline_reset(&heap->lifeline);
  store_relaxed(&heap->inside, 0);
  heap_mark_owned(heap->id, false);
}

static bool is_own(const struct heap *heap) {
  const struct heap *each = private_home();
  while (each != NULL && each != heap)
    each = private_next(each);
  return each != NULL;
}

/* Heaps that are attached to private pools in the child are the calling thread's. */
COLD static void privates_in_child(void) {
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    if (pool_is_private(pool) && pool->private_part->attached != NULL) {
      pool->private_part->attached = NULL;
      pool_set_heaps(pool, 0);
    }
  for (struct heap *heap = private_home(); heap; heap = private_next(heap))
    if (heap_life(heap) != 0 && heap_life(heap) == pool_life(heap_pool(heap)))
      pool_list(heap_pool(heap), heap);
}

/* The work is proportional to the number of threads at the fork, because it skips heaps without an owner. */
COLD void heaps_in_child(void) {
  struct heap *home = private_home();
  for (struct heap *heap = heap_from(1, true); heap; heap = heap_from(heap->id + 1, true))
    if (!is_own(heap))
      drop_in_child(heap);
  pools_in_child(home ? heap_pool(home) : NULL);
  privates_in_child();
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    inbox_serve(pool);
  for (struct heap *heap = home; heap; heap = private_next(heap)) {
    lifeline_after_fork(&heap->lifeline, true);
    heap_note_thread(heap);
  }
  checked_in_child(home);
  inherited_in_child(home);
  registry_process_changed();
}

void (*const gate_child_heaps)(void) = heaps_in_child;

void heaps_before_fork(void) {
  for (struct heap *heap = private_home(); heap; heap = private_next(heap))
    lifeline_before_fork(&heap->lifeline);
}

void heaps_in_parent(void) {
  for (struct heap *heap = private_home(); heap; heap = private_next(heap))
    lifeline_after_fork(&heap->lifeline, false);
}
