/* The program's limit callback. */
#include "api/alloc.h"

#include "base/counters.h"
#include "heap/slow_path.h"
#include "os/lock.h"
#include "threads/private.h"
#include "threads/registry.h"

static struct {
  struct lock lock; /* of the pair */
  hak_limit_callback callback;
  void *context;
} limit;

void hak_limit_callback_set(hak_limit_callback callback, void *context) {
  if (!slow_path_begin_patiently()) /* in a handler that interrupted a slow path */
    return;
  lock_take(&limit.lock);
  limit.callback = callback;
  limit.context = context;
  lock_give(&limit.lock);
  slow_path_end();
}

bool limit_callback_call(size_t size, bool *is_begun) {
  struct heap *home = heap_of_thread() != NULL ? private_home() : NULL;
  /* A callback that allocates in vain is not called again. If the stack is shorter than at its call, a jump left it. */
  uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  if (home == NULL || (home->callback_frame != 0 && frame < home->callback_frame))
    return false;
  lock_take(&limit.lock);
  hak_limit_callback callback = limit.callback;
  void *context = limit.context;
  lock_give(&limit.lock);
  if (callback == NULL)
    return false;
  home->callback_frame = frame;
  counter_note(limit_callbacks);
  slow_path_end(); /* the callback frees */
  int freed = callback(size, context);
  *is_begun = slow_path_begin();
  private_home()->callback_frame = 0; /* the callback may have got another heap */
  return freed == 1 && *is_begun;
}
