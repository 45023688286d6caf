/* What becomes of the heaps at a fork. */
#include "threads/registry.h"

#include "checked/checked.h"
#include "heap/bins.h"
#include "heap/envelope.h"
#include "heap/ids.h"
#include "heap/slow_path.h"
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

/* The work is proportional to the number of threads at the fork, because it skips heaps without an owner. */
COLD void heaps_in_child(bool is_noticed) {
  struct heap *home = private_home();
  for (struct heap *heap = heap_from(1, true); heap; heap = heap_from(heap->id + 1, true))
    if (!is_own(heap))
      drop_in_child(heap);
  pools_in_child(home ? heap_pool(home) : NULL);
  for (struct heap *heap = home ? home->privates : NULL; heap; heap = heap->next_private)
    if (!heap_is_over(heap))
      pool_list(heap_pool(heap), heap);
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    inbox_serve(pool);
  for (struct heap *heap = home; heap; heap = private_next(heap)) {
    lifeline_after_fork(&heap->lifeline, true);
    heap_note_thread(heap);
  }
  checked_in_child(home);
  inherited_in_child(home);
  registry_process_changed(is_noticed);
}

static void prepare_heaps_alone(void) {
  if (!gate_reset())
    return;
  heaps_in_child(true);
  gate_admit();
}

void (*gate_child_prepare)(void) = prepare_heaps_alone;

void heaps_before_fork(void) {
  for (struct heap *heap = private_home(); heap; heap = private_next(heap))
    lifeline_before_fork(&heap->lifeline);
}

void heaps_in_parent(void) {
  for (struct heap *heap = private_home(); heap; heap = private_next(heap))
    lifeline_after_fork(&heap->lifeline, false);
}
