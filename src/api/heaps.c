/* hak_heap_*: heaps that the program makes and destroys (threads/private.h). */
#include "api/alloc.h"

#include "base/counters.h"
#include "base/size_class.h"
#include "checked/checked.h"
#include "heap/envelope.h"
#include "heap/slow_path.h"
#include "large/large.h"
#include "reclaim/background.h"
#include "reclaim/reclaim.h"
#include "threads/private.h"
#include "threads/registry.h"

#include <string.h>

/* Enters a slow path by the thread's heap, which it makes if necessary. Returns 0 or an error. */
static int call_begin(void) {
  if (!slow_path_begin_inlined() && !slow_path_begin_patiently())
    return EBUSY;
  if (heap_of_thread() != NULL)
    return 0;
  slow_path_end();
  return ENOMEM;
}

static void call_end(uintptr_t site) {
  housekeep();
  slow_path_end_inlined();
  background_start_if_due(site, BACKGROUND_ALLOCATES);
}

hak_heap *hak_heap_new(size_t limit_bytes) {
  int kept = errno, error = checked_is_on() ? ENOTSUP : call_begin();
  if (error != 0)
    return failed(error);
  struct pool *pool = private_make(limit_bytes);
  hak_heap *heap = pool ? private_handle(pool) : NULL;
  call_end(CALL_SITE);
  errno = heap ? kept : ENOMEM;
  return heap;
}

/* As block_or_null (api/malloc.c), for a hak_heap. The program's callback runs while the thread has its own default. */
static void *block_of_heap(struct pool *pool, size_t size, size_t alignment, unsigned cls, uintptr_t site,
                           size_t *dirty) {
  int kept = errno, error = call_begin();
  bool is_begun = error == 0;
  void *block = NULL;
  *dirty = SIZE_MAX;
  for (unsigned attempt = 0; is_begun && block == NULL && attempt < ATTEMPTS_MAX &&
                             (attempt == 0 || may_try_again(attempt, pool, size, alignment, &is_begun));
       attempt++) {
    struct heap *heap = heap_of_thread() != NULL ? private_heap(pool) : NULL;
    if (heap == NULL)
      continue;
    private_enter(heap);
    block = block_attempt(size, alignment, cls, site, dirty);
    private_leave(heap);
    private_remember(heap, private_handle(pool));
  }
  if (is_begun) {
    slow_path_end();
    background_start_if_due(site, BACKGROUND_ALLOCATES);
  }
  if (block == NULL)
    counter_note(memory_refusals);
  errno = block ? kept : error == EBUSY ? EBUSY : ENOMEM;
  return block;
}

static NOINLINE void *heap_malloc_from(hak_heap *heap, size_t size, uintptr_t site) {
  size_t dirty;
  struct pool *pool = private_pool(heap);
  if (UNLIKELY(size > PTRDIFF_MAX))
    return failed(ENOMEM);
  size = max_size(size, 1);
  return block_of_heap(pool, size, BLOCK_ALIGNMENT, size <= HAK_SMALL_MAX ? hak_class_of(size) : 0, site, &dirty);
}

/* Returns a block that the thread's bins for the heap have ready, if the thread used that heap last; else NULL. */
static inline void *heap_ready(const hak_heap *heap, size_t size) {
  const struct hak_front *self = hak_self;
  if (UNLIKELY(self->private_heap != heap))
    return NULL;
  struct hak_front *front = self->private_front;
  void *block = hak_front_pop(front, size);
  if (UNLIKELY(block == NULL && front->split) && LIKELY(size - 1 < HAK_SMALL_MAX))
    block = split_pop(hak_front_bin(front, size));
  if (LIKELY(block != NULL))
    HAK_STEPPED(front);
  return block;
}

static inline void *heap_malloc(hak_heap *heap, size_t size, uintptr_t site) {
  void *block = heap_ready(heap, size);
  return LIKELY(block != NULL) ? block : heap_malloc_from(heap, size, site);
}

void *hak_heap_malloc(hak_heap *heap, size_t size) { return heap_malloc(heap, size, CALL_SITE); }

void *hak_heap_calloc(hak_heap *heap, size_t count, size_t size) {
  size_t bytes;
  size_t dirty;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX))
    return failed(ENOMEM);
  if (bytes <= HAK_SMALL_MAX) {
    void *block = heap_malloc(heap, bytes, CALL_SITE);
    return block ? memset(block, 0, bytes) : NULL;
  }
  void *block = block_of_heap(private_pool(heap), bytes, BLOCK_ALIGNMENT, 0, CALL_SITE, &dirty);
  if (block != NULL && dirty > 0)
    large_clear(block, min_size(dirty, bytes));
  return block;
}

void *hak_heap_aligned_alloc(hak_heap *heap, size_t alignment, size_t size) {
  size_t dirty;
  if (!is_power_of_two(alignment))
    return failed(EINVAL);
  if (alignment <= BLOCK_ALIGNMENT)
    return heap_malloc(heap, size, CALL_SITE);
  if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX)
    return failed(ENOMEM);
  unsigned cls = class_aligned(size, alignment);
  if (cls != 0)
    return heap_malloc(heap, class_bytes(cls), CALL_SITE);
  return block_of_heap(private_pool(heap), max_size(size, 1), alignment, 0, CALL_SITE, &dirty);
}

void hak_heap_free(hak_heap *heap, void *block) {
  struct hak_front *self = hak_self;
  if (UNLIKELY(self->private_heap != heap) || UNLIKELY(!hak_front_push(&self->private_front, block, true)))
    hak_free(block);
}

void *private_block(struct pool *pool, size_t size, uintptr_t site) {
  return heap_malloc(private_handle(pool), size, site);
}

void *ordinary_block(size_t size, uintptr_t site) {
  if (UNLIKELY(thread_is_busy())) /* in a handler: spare memory, which is nobody's */
    return malloc_slow_from(size, site);
  struct heap *heap = private_switch(private_home());
  void *block = malloc_slow_from(size, site);
  private_switch(heap);
  return block;
}

int hak_heap_destroy(hak_heap *heap) {
  if (heap == NULL)
    return 0;
  KEEP_ERRNO;
  struct pool *pool = private_pool(heap);
  bool was_default = private_current() == pool;
  if (was_default)
    hak_heap_set_default(NULL, NULL);
  int error = call_begin();
  if (error == 0) {
    error = deferred_finish() && private_destroy(pool) ? 0 : EBUSY;
    call_end(CALL_SITE);
  }
  if (error != 0 && was_default)
    hak_heap_set_default(heap, NULL);
  return error;
}

int hak_heap_set_default(hak_heap *heap, hak_heap **before) {
  KEEP_ERRNO;
  struct pool *pool = heap ? private_pool(heap) : NULL;
  int error = call_begin();
  if (error != 0)
    return error;
  struct heap *present = heap_current(), *wanted = pool ? private_heap(pool) : private_home();
  if (wanted != NULL && wanted != present)
    outbox_send_all(present);
  struct pool *pool_before = private_current();
  call_end(CALL_SITE);
  if (wanted == NULL)
    return ENOMEM;
  private_switch(wanted);
  if (before != NULL)
    *before = pool_before ? private_handle(pool_before) : NULL;
  return 0;
}

int hak_heap_trim(hak_heap *heap) {
  KEEP_ERRNO;
  struct pool *pool = private_pool(heap);
  if (call_begin() != 0)
    return 0;
  private_flush(pool);
  size_t given_back = reclaim_pool(pool);
  call_end(CALL_SITE);
  return given_back > 0;
}

int hak_heap_stats_get(hak_heap *heap, struct hak_heap_stats *out) {
  KEEP_ERRNO;
  struct pool *pool = private_pool(heap);
  *out = (struct hak_heap_stats){0};
  if (call_begin() != 0)
    return EBUSY;
  bool is_read = private_stats(pool, out);
  slow_path_end();
  return is_read ? 0 : EBUSY;
}
