/* The program's own word when memory is out. */
#include "api/alloc.h"

#include "heap/heap.h"
#include "os/lock.h"
#include "telemetry/stats.h"

static struct {
  struct lock lock; /* of the pair */
  hak_limit_callback callback;
  void *context;
} limit;

void hak_limit_callback_set(hak_limit_callback callback, void *context) {
  lock_take(&limit.lock);
  limit.callback = callback;
  limit.context = context;
  lock_give(&limit.lock);
}

bool limit_callback_call(size_t size) {
  struct heap *heap = heap_current();
  if (heap == NULL) /* a thread that had no small block so far */
    heap = heap_attach();
  /* A callback that allocates in vain is not called for that. If the stack is shorter than when it was
   * called, it was left by a jump. */
  uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  if (heap == NULL || (heap->callback_frame != 0 && frame < heap->callback_frame))
    return false;
  lock_take(&limit.lock);
  hak_limit_callback callback = limit.callback;
  void *context = limit.context;
  lock_give(&limit.lock);
  if (callback == NULL)
    return false;
  heap->callback_frame = frame;
  stats_count(EVENT_LIMIT_CALLBACK);
  int freed = callback(size, context);
  heap->callback_frame = 0;
  return freed == 1;
}

void limit_callback_lock_for_fork(void) { lock_take(&limit.lock); }

void limit_callback_unlock_after_fork(bool child) {
  if (child)
    lock_reset(&limit.lock);
  else
    lock_give(&limit.lock);
}
