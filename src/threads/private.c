#include "threads/private.h"

#include "base/list.h"
#include "base/size_class.h"
#include "hakmem/hakmem.h"
#include "heap/bins.h"
#include "heap/envelope.h"
#include "heap/slow_path.h"
#include "large/large.h"
#include "large/record.h"
#include "os/fault.h"
#include "threads/registry.h"

#define HEAPS_OF_THREAD_MAX 16u /* for private pools; the one that was used least recently makes room */

#define HANDLE_ID_BITS 20 /* the life lies above */
_Static_assert(PRIVATE_FIRST + PRIVATE_MAX <= 1u << HANDLE_ID_BITS, "a handle has room for each id");

/* --- handles --- */

struct hak_heap *private_handle(const struct pool *pool) {
  return (struct hak_heap *)(uintptr_t)(pool_life(pool) << HANDLE_ID_BITS | pool->id);
}

struct pool *private_pool(const struct hak_heap *handle) {
  struct pool *pool = pool_private_by_id((uint32_t)((uintptr_t)handle & ((1u << HANDLE_ID_BITS) - 1)));
  if (UNLIKELY(pool == NULL || private_handle(pool) != handle))
    fault_heap_destroyed(handle);
  return pool;
}

struct pool *private_make(size_t limit_bytes) {
  struct pool *pool = pool_take_private();
  if (pool == NULL || !pool_lock(pool)) /* a pool with a stuck lock is given up */
    return NULL;
  pool->slabs.limit_bytes = limit_bytes;
  inbox_unlock(pool);
  return pool;
}

/* --- the heaps of a thread --- */

static void front_set(struct hak_front *front, const struct hak_heap *handle, struct hak_front *private_front) {
  front->private_heap = handle;
  front->private_front = private_front;
}

/* The heap will be attached to another pool: the thread's fast path forgets it. */
static void heap_forget(struct heap *home, const struct heap *heap) {
  for (struct heap *each = home; each; each = private_next(each))
    if (each->front.private_front == &heap->front)
      front_set(&each->front, NULL, FRONT_OF_NONE);
}

void private_remember(struct heap *heap, const struct hak_heap *handle) {
  front_set(&heap_current()->front, handle, &heap->front);
}

STACK_OF(privates, heap, next_private, previous_private)

/* Makes room in the list, if it is full, and returns a heap of it that can be attached again; NULL: there is none. */
static struct heap *list_make_room(struct heap *home) {
  unsigned count = 0;
  struct heap *oldest = NULL;
  for (struct heap *heap = home->privates; heap; heap = heap->next_private, count++) {
    if (heap_is_over(heap))
      return heap;
    if (heap != heap_current())
      oldest = heap;
  }
  if (count >= HEAPS_OF_THREAD_MAX && !pool_is_stuck(heap_pool(oldest))) {
    heap_forget(home, oldest);
    privates_remove(&home->privates, oldest);
    heap_park(oldest); /* the last step: from then on it may be another thread's */
  }
  return NULL;
}

struct heap *private_heap(struct pool *pool) {
  struct heap *home = private_home(), *heap = home->privates;
  while (heap != NULL && (heap_pool(heap) != pool || heap_is_over(heap)))
    heap = heap->next_private;
  if (heap == NULL) {
    heap = list_make_room(home);
    if (heap != NULL) {
      heap_forget(home, heap);
      if (!heap_rejoin(heap, pool))
        return NULL;
    } else {
      if ((heap = heap_begin(pool)) == NULL)
        return NULL;
      heap->home = home;
      privates_push(&home->privates, heap);
    }
  }
  if (heap != home->privates) {
    privates_remove(&home->privates, heap);
    privates_push(&home->privates, heap);
  }
  return heap;
}

void private_enter(struct heap *heap) {
  heap->entered = heap_current();
  thread_become(heap);
}

void private_leave(struct heap *heap) {
  thread_become(heap->entered);
  heap->entered = NULL;
}

struct heap *private_switch(struct heap *heap) {
  struct heap *before = heap_current();
  owner_step_begin();
  store_relaxed(&before->is_default, false);
  store_relaxed(&heap->is_default, true);
  thread_become(heap);
  hak_self = &heap->front;
  owner_step_end();
  return before;
}

/* --- the end --- */

/* Tells whether the heap is the default of a thread that has not ended. The caller's default is none of them. Call
 * between heaps_hold and heaps_let_go: a thread that sweeps the heap holds its lifeline, too. */
static bool is_default_of_other(struct heap *heap) {
  if (!load_relaxed(&heap->is_default))
    return false;
  if (!lifeline_take(&heap->lifeline))
    return true;
  lifeline_drop(&heap->lifeline); /* a sweep finds it */
  return false;
}

/* Locks the pool while none of its slabs is outside its lists. */
static bool lock_whole(struct pool *pool) {
  uint64_t until_ms = os_milliseconds() + STUCK_MS;
  while (pool_lock(pool)) {
    if (!pool->is_purging)
      return true;
    inbox_unlock(pool);
    if (os_milliseconds() >= until_ms)
      break;
    os_yield();
  }
  return false;
}

/* Locks the pool as above. False, too, if it is the default of another thread. */
static bool lock_to_end(struct pool *pool) {
  heaps_hold();
  bool is_locked = lock_whole(pool), is_used = false;
  struct heap *heap = is_locked ? pool->attached : NULL;
  for (; heap && !is_used; heap = heap->next_attached)
    is_used = is_default_of_other(heap);
  if (is_used)
    inbox_unlock(pool);
  heaps_let_go();
  return is_locked && !is_used;
}

/* Counts the blocks that end now as freed, where the thread's heap counts. Blocks that other threads have freed, and
 * that are on their way, were counted by them. */
static void count_freed(struct pool *pool) {
  struct heap *heap = heap_current();
  if (!heap_is_counted(heap))
    return;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    size_t taken = pool->slabs.classes[cls].taken_blocks;
    for (const struct heap *each = pool->attached; each; each = each->next_attached)
      taken = sub_sat(taken, bin_count(each, cls));
    add_as_owner(&heap->tally->classes[cls].freed_of_others, taken);
  }
}

STACK_OF(objects, large, list_next, list_previous)

static void object_unlist(struct large **first, struct large *range) {
  objects_remove(first, range);
  range->owner = 0;
}

bool private_destroy(struct pool *pool) {
  if (!lock_to_end(pool))
    return false;
  inbox_drain_to_slabs(pool);
  count_freed(pool);
  store_relaxed(&pool->life, pool_life(pool) + 1); /* V2 from here on */
  for (struct heap *heap = pool->attached; heap; heap = heap->next_attached) {
    bins_drop_all(heap);
    heap_set_key(heap, 0);
  }
  pool->attached = NULL;
  pool_set_heaps(pool, 0);
  slab_set_close_all(&pool->slabs);
  struct large *objects = pool->objects;
  pool->objects = NULL;
  pool->object_count = 0;
  pool->slabs.other_bytes = pool->slabs.limit_bytes = 0;
  pool_unlock(pool);
  inbox_serve(pool); /* as heap_park does */
  while (objects != NULL) {
    void *object = large_object(objects);
    object_unlist(&objects, objects);
    if (UNLIKELY(load_relaxed(&observers_large_freed)))
      observers.large_freed(object);
    large_free(object);
  }
  pool_give_private(pool);
  return true;
}

/* --- large objects --- */

/* Tells whether the limit allows `bytes` more; counts: then they are counted. False, too, if the lock is stuck. */
static bool limit_allows(struct pool *pool, size_t bytes, bool counts) {
  if (!pool_lock(pool))
    return false;
  bool is_allowed = slab_set_allows(&pool->slabs, bytes);
  pool->slabs.other_bytes += is_allowed && counts ? bytes : 0;
  inbox_unlock(pool);
  return is_allowed;
}

bool private_reserve(struct pool *pool, size_t bytes) { return limit_allows(pool, bytes, true); }

void private_object_add(struct pool *pool, void *object, size_t reserved) {
  if (!pool_lock(pool))
    return;
  pool->slabs.other_bytes -= reserved;
  if (object != NULL) {
    struct large *range = map_record(object);
    range->owner = pool->id;
    objects_push(&pool->objects, range);
    pool->object_count++;
    pool->slabs.other_bytes += large_bytes(object);
  }
  inbox_unlock(pool);
}

/* If two threads free the object, the one that comes second finds another record. It leaves that alone, and
 * large_free ends the program. */
bool private_object_remove(void *object, struct pool **from) {
  struct large *range = map_record(object);
  uint32_t owner = range->owner;
  struct pool *pool = owner != 0 ? pool_private_by_id(owner) : NULL;
  *from = NULL;
  if (LIKELY(pool == NULL))
    return true;
  if (!pool_lock(pool))
    return false;
  if (map_entry(object) == ENTRY_LARGE && range->owner == owner) {
    object_unlist(&pool->objects, range);
    pool->object_count--;
    pool->slabs.other_bytes -= large_bytes(object);
    *from = pool;
  }
  inbox_unlock(pool);
  return true;
}

bool private_forbids(struct pool *pool, size_t size) {
  size_t bytes = size <= HAK_SMALL_MAX ? class_slab_bytes(hak_class_of(max_size(size, 1))) : large_length(size);
  return !limit_allows(pool, bytes, false);
}

struct pool *private_owner(const void *block, uint32_t entry) {
  uint32_t id = entry == ENTRY_LARGE ? ((const struct large *)map_record(block))->owner : entry_pool_id(entry);
  return LIKELY(id < PRIVATE_FIRST) ? NULL : pool_private_by_id(id);
}

/* --- figures --- */

bool private_stats(struct pool *pool, struct hak_heap_stats *out) {
  if (!pool_lock(pool))
    return false;
  size_t taken = slab_set_taken_bytes(&pool->slabs), large = pool->slabs.other_bytes;
  size_t idle = load_relaxed(&pool->inbox_bytes);
  for (const struct heap *heap = pool->attached; heap; heap = heap->next_attached)
    idle += bins_content(heap).bytes;
  *out = (struct hak_heap_stats){
      .held_bytes = pool->slabs.slab_bytes + large,
      .live_bytes = sub_sat(taken, idle) + large,
      .large_bytes = large,
      .large_count = pool->object_count,
      .limit_bytes = pool->slabs.limit_bytes,
      .threads = pool_heaps(pool),
  };
  inbox_unlock(pool);
  return true;
}

void private_flush_own(void) {
  for (struct heap *heap = private_home(); heap; heap = private_next(heap))
    heap_flush_all(heap);
}

void private_flush(struct pool *pool) {
  for (struct heap *heap = private_home()->privates; heap; heap = heap->next_private)
    if (heap_pool(heap) == pool && !heap_is_over(heap))
      heap_flush_all(heap);
  if (!pool_lock(pool))
    return;
  for (struct heap *heap = pool->attached; heap; heap = heap->next_attached)
    store_relaxed(&heap->flush_wanted, true);
  inbox_drain_to_slabs(pool);
  slab_set_close_empty(&pool->slabs);
  inbox_unlock(pool);
}
