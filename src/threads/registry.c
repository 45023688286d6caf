/* The registry: all heaps, and their assignment to threads. */
#include "threads/registry.h"

#include "base/counters.h"
#include "base/options.h"
#include "budget/usage.h"
#include "checked/checked.h"
#include "heap/bin.h"
#include "heap/bins.h"
#include "heap/envelope.h"
#include "heap/ids.h"
#include "heap/queue.h"
#include "heap/slow_path.h"
#include "os/fault.h"
#include "pages/metadata.h"

#include <string.h>

#define LOOKS_MAX 64u   /* heaps a starting thread looks at before it makes a new one */
#define LOOKS_AWAY 8u   /* in a row at a thread on another node before its heap moves ... */
#define LOOKS_DOUBLE 4u /* ... and twice as many after each move, up to so many times */
_Static_assert(LOOKS_AWAY << LOOKS_DOUBLE <= UINT8_MAX, "the count fits");

#define OVERFLOWS_TO_LEAVE 64 /* overflow_balance of a heap that leaves its pool */

/* The slot under every empty bin of hak_heap_none. */
static void *const no_block[1];
#define NO_BIN {.top = (void **)no_block + 1, .end = (void **)no_block + 1}

const struct hak_front hak_heap_none = {
    .key = KEY_OF_NONE,
    .bins = {[0 ... HAK_CLASS_COUNT - 1] = NO_BIN}, /* no key leads to the others */
    .private_front = FRONT_OF_NONE,
};

__thread struct hak_front *hak_self HAK_TLS_MODEL = FRONT_OF_NONE;
__thread uintptr_t hak_thread HAK_TLS_MODEL;

/* The lock orders starting threads, sweeps and forks, and guards new ids (heap/ids.h). */
static struct {
  struct lock lock;
  uint32_t cursor; /* heap looked at last */
  int process_id;  /* whose threads the owners are; not 0, so that it lies in .data, where a fork writes anyway */
} registry = {.process_id = -1};

static void bins_begin(struct heap *heap) {
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++)
    heap->front.bins[cls] = hak_heap_none.bins[cls];
}

static struct heap *heap_create(struct pool *pool) {
  if (!heap_ids_grow())
    return NULL;
  if (heap_count() == 0)
    registry.process_id = os_process_id_at_start();
  struct heap *heap = metadata_take_forever(sizeof(struct heap));
  if (heap == NULL)
    return NULL;
  heap->id = heap_count() + 1;
  heap_set_pool(heap, pool);
  store_relaxed(&heap->life, pool_life(pool));
  heap->front.key = pool_front_key(pool);
  bins_begin(heap);
  lifeline_make(&heap->lifeline);
  lifeline_take(&heap->lifeline);
  heap_ids_add(heap);
  return heap;
}

/* Takes the lifeline of a heap if its owner is dead. The registry's lock is held. */
static bool take_dead(struct heap *heap, bool thoroughly) {
  if (heap == heap_current() || pool_is_stuck(heap_pool(heap)) ||
      !(lifeline_take(&heap->lifeline) || (thoroughly && lifeline_take_left(&heap->lifeline, registry.process_id))))
    return false;
  HAK_OWNER_DIED(&heap->front);
  if (load_relaxed(&heap->inside) == 0) {
    store_relaxed(&heap->is_default, false); /* private_destroy cannot take the lifeline to see that */
    checked_recover(heap);
    return true;
  }
  /* The owner ended inside a slow path (pthread_exit in a signal handler). No thread may use the heap. Keeping the
   * lifeline ensures that none tries. */
  store_relaxed(&heap->lost, true);
  return false;
}

static bool is_adoptable(const struct heap *heap) {
  return !pool_is_private(heap_pool(heap)) && !pool_is_far(heap_pool(heap));
}

/* Takes the lifeline of the next heap, from the cursor on, whose owner is dead. adopts: only an ordinary heap, of the
 * thread's node. */
static struct heap *take_orphan(uint32_t looks, bool adopts) {
  const struct heap *first = NULL;
  for (; looks > 0; looks--) {
    struct heap *heap = heap_from(registry.cursor + 1, true);
    if (heap == NULL)
      heap = heap_from(1, true);
    if (heap == NULL || heap == first) /* looked at all */
      return NULL;
    first = first ? first : heap;
    registry.cursor = heap->id;
    if ((!adopts || is_adoptable(heap)) && take_dead(heap, false))
      return heap;
  }
  return NULL;
}

/* Takes a swept heap, the one with the lowest id first. So after a time of many threads the others stay at rest. */
static struct heap *take_parked(void) {
  struct heap *heap = heap_from(1, false);
  while (heap != NULL && !lifeline_take(&heap->lifeline)) /* its sweeper is about to drop it */
    heap = heap_from(heap->id + 1, false);
  if (heap != NULL)
    HAK_OWNER_DIED(&heap->front);
  return heap;
}

COLD void heap_note_thread(struct heap *heap) {
  int thread_id = UNLIKELY(option_value(OPTION_LIVE) == SWITCH_ON) ? os_thread_shown() : 0;
  store_relaxed(&heap->thread_id, thread_id);
}

static bool is_resting(const struct heap *heap) { return load_relaxed(&heap->is_resting); }

/* The begin and the end of the part of a heap that has no information while no bin has an array. */
static char *rest_begin(struct heap *heap) { return (char *)heap->front.bins; }
static char *rest_end(struct heap *heap) { return (char *)&heap->outbox; }

/* Gives back the pages of a heap without an owner. The caller holds its lifeline. */
static size_t heap_rest(struct heap *heap) {
  struct pool *pool = heap_pool(heap);
  if (!pool_lock(pool))
    return 0;
  if (heap->front.split) {
    heap_split(heap, false);
    heap->split_seen = 0; /* the next owner does what is wanted then */
  }
  bins_flush_all(heap); /* they are empty; a fork's child has left their arrays */
  inbox_unlock(pool);
  size_t bytes = pages_purge_inside(rest_begin(heap), rest_end(heap));
  if (bytes > 0)
    store_relaxed(&heap->is_resting, true);
  return bytes;
}

static void heap_wake(struct heap *heap) {
  hak_assert(heap->granted_bytes == 0);
  store_relaxed(&heap->is_resting, false);
  memset(rest_begin(heap), 0, (size_t)(rest_end(heap) - rest_begin(heap)));
  bins_begin(heap);
}

/* Attaches a parked heap to a pool, which is counted already. Its key says that it belongs to the new pool; others may
 * want it split, and set the key under the lock of the pool that they find. */
static void heap_join(struct heap *heap, struct pool *pool) {
  struct pool *left = heap_pool(heap);
  bool is_locked = !pool_is_stuck(left) && pool_lock(left); /* else no thread holds the lock and reads this heap */
  heap_set_pool(heap, pool);
  store_relaxed(&heap->life, pool_life(pool));
  heap_set_key(heap, heap->front.split);
  if (is_locked)
    inbox_unlock(left);
}

/* The registry's lock is held. */
static struct heap *heap_of_pool(struct pool *pool) {
  struct heap *heap = take_parked();
  if (heap)
    heap_join(heap, pool);
  else
    heap = heap_create(pool);
  return heap;
}

/* The registry's lock is held. */
static struct heap *heap_with_pool(void) {
  struct pool *pool = pool_attach();
  if (pool == NULL)
    return NULL;
  struct heap *heap = heap_of_pool(pool);
  if (heap == NULL && pool_detach(pool)) /* see envelope_send */
    inbox_serve(pool);
  return heap;
}

static void owner_begin(struct heap *heap) {
  if (is_resting(heap))
    heap_wake(heap);
  heap->front.private_heap = NULL;
  heap->front.private_front = FRONT_OF_NONE;
  heap->home = heap->privates = heap->next_private = NULL;
  store_relaxed(&heap->is_default, false);
  heap->callback_frame = 0; /* the owner may have ended inside a callback */
  heap->looks_away = heap->moves = 0;
  heap->overflow_balance = 0;
  if (UNLIKELY(heap->is_queue)) /* malloc takes the NULL of an owner that ended in it for an empty bin (Q2) */
    queue_end(heap);
  heap->queue = (struct queue){0};
  heap_note_thread(heap);
}

/* Taking the pool's lock makes all changes that were made under it visible. If it is stuck, no other thread reads an
 * ordinary heap. */
struct heap *heap_begin(struct pool *pool) {
  lock_take(&registry.lock);
  uint32_t count = heap_count();
  struct heap *heap = pool != NULL ? heap_of_pool(pool) : take_orphan(LOOKS_MAX, true);
  if (heap == NULL && pool == NULL)
    heap = heap_with_pool();
  if (heap != NULL && heap_count() == count) { /* else it is new */
    heap_mark_owned(heap->id, true);
    counter_note(heaps_adopted);
  }
  lock_give(&registry.lock);
  if (heap == NULL)
    return NULL;
  bool is_locked = pool_lock(heap_pool(heap));
  owner_begin(heap);
  if (UNLIKELY(!is_locked) && pool != NULL) {
    lifeline_drop(&heap->lifeline); /* a sweep finds it */
    return NULL;
  }
  if (pool != NULL) {
    heap->split_seen = 0; /* samples are taken from ordinary heaps only */
    pool_list(pool, heap);
  }
  if (LIKELY(is_locked))
    pool_unlock(heap_pool(heap));
  return heap;
}

/* The heap becomes that of the calling thread, which is in a slow path. */
static ALWAYS_INLINE void heap_enter(struct heap *heap) {
  store_relaxed(&heap->inside, 1);
  thread_become(heap);
}

struct heap *heap_attach(void) {
  struct heap *heap = heap_begin(NULL);
  if (heap != NULL)
    heap_enter(heap);
  return heap;
}

COLD struct heap *heap_replace(void) {
  struct heap *heap = heap_current(), *other = heap_begin(NULL);
  if (other == NULL)
    return NULL;
  other->privates = heap->privates;
  for (struct heap *each = other->privates; each; each = each->next_private)
    each->home = other;
  slow_path_part_from_heap();
  lifeline_drop(&heap->lifeline);
  heap_enter(other);
  return other;
}

COLD bool heap_move(struct heap *heap, struct pool *pool) {
  struct pool *left = heap_pool(heap);
  bool is_locked = pool_lock(left), moves = is_locked && pool != NULL && bins_flush_all(heap);
  if (moves)
    heap_set_pool(heap, pool);
  if (is_locked) {
    heap_set_key(heap, heap->front.split);
    pool_unlock(left);
  }
  if (pool != NULL && pool_detach(moves ? left : pool))
    inbox_serve(moves ? left : pool);
  return moves;
}

/* A move empties the bins, and what the thread frees of its old pool takes envelopes from then on. So a thread that the
 * system moves back and forth keeps its pool, and each move makes the next one later. */
COLD void heap_follow_node(struct heap *heap) {
  struct pool *pool = heap_pool(heap);
  if (pool_is_private(pool) || !pool_is_far(pool)) {
    heap->looks_away = 0;
  } else if (++heap->looks_away >= LOOKS_AWAY << heap->moves) {
    heap->looks_away = 0;
    heap->moves += heap->moves < LOOKS_DOUBLE;
    heap_move(heap, pool_attach());
  }
}

/* A thread that frees what others of its pool allocate contends with them for the slabs. From another pool it sends
 * envelopes, which their refills take. A thread that frees what it allocated once has as many refills as overflows. */
COLD void heap_leave_contended(struct heap *heap) {
  struct pool *pool = heap_pool(heap);
  if (heap->overflow_balance < OVERFLOWS_TO_LEAVE || pool_is_private(pool) || pool_heaps(pool) < 2)
    return;
  heap->overflow_balance = INT64_MIN / 2; /* it moves for that once */
  struct pool *other = pool_attach_apart(pool);
  if (other != NULL)
    heap_move(heap, other);
}

COLD bool heap_rejoin(struct heap *heap, struct pool *pool) {
  lock_take(&registry.lock);
  heap_join(heap, pool);
  lock_give(&registry.lock);
  if (!pool_lock(pool)) {
    store_relaxed(&heap->life, 0);
    return false;
  }
  pool_list(pool, heap);
  pool_unlock(pool);
  return true;
}

/* False: the pool's lock is stuck, or blocks of others stay in the bins. was_last: NULL, or the heap leaves its private
 * pool. */
static bool heap_flush(struct heap *heap, bool close_empty, bool *was_last) {
  struct pool *pool = heap_pool(heap);
  if (UNLIKELY(!pool_lock(pool)))
    return false;
  inbox_drain_to_slabs(pool);
  bool is_empty = bins_flush_all(heap);
  if (close_empty)
    slab_set_close_empty(&pool->slabs);
  if (was_last != NULL) {
    *was_last = pool_unlist(pool, heap);
    heap->split_seen = 0; /* samples are taken from ordinary heaps only */
  }
  pool_unlock(pool);
  checked_flush(heap);
  outbox_send_all(heap);
  return is_empty;
}

void heap_flush_all(struct heap *heap) { heap_flush(heap, true, NULL); }

void heaps_ask_to_flush(const struct heap *self) {
  for (struct heap *heap = heap_from(1, true); heap; heap = heap_from(heap->id + 1, true))
    if (heap != self)
      store_relaxed(&heap->flush_wanted, true);
}

/* Slabs that are empty then are closed if no thread would use them. */
void heap_park(struct heap *heap) {
  struct pool *pool = heap_pool(heap);
  bool is_private = pool_is_private(pool), was_last = false;
  bool closes = is_private || pool_heaps(pool) == 1;
  if (UNLIKELY(!heap_flush(heap, closes, is_private ? &was_last : NULL))) {
    lifeline_drop(&heap->lifeline); /* the next sweep finds it */
    return;
  }
  if (is_private ? was_last : pool_detach(pool)) /* see envelope_send */
    inbox_serve(pool);
  counter_note(heaps_swept);
  heap_mark_owned(heap->id, false);
  lifeline_drop(&heap->lifeline);
}

void heaps_hold(void) { lock_take(&registry.lock); }
void heaps_let_go(void) { lock_give(&registry.lock); }

void heaps_sweep_next(void) {
  if (!lock_try(&registry.lock))
    return; /* another thread sweeps */
  struct heap *heap = take_orphan(1, false);
  lock_give(&registry.lock);
  if (heap)
    heap_park(heap);
}

bool heaps_sweep_all(bool thoroughly) {
  bool swept = false;
  for (struct heap *heap = heap_from(1, true); heap; heap = heap_from(heap->id + 1, true)) {
    lock_take(&registry.lock);
    bool is_taken = take_dead(heap, thoroughly);
    lock_give(&registry.lock);
    if (is_taken)
      heap_park(heap);
    swept |= is_taken;
  }
  return swept;
}

size_t heaps_kept_bytes(void) {
  size_t bytes = 0;
  for (struct heap *heap = heap_from(1, true); heap; heap = heap_from(heap->id + 1, true)) {
    struct pool *pool = heap_pool(heap);
    if (!pool_lock(pool))
      continue;
    if (heap_pool(heap) == pool) /* else it has moved */
      bytes += bins_content(heap).bytes + checked_cached_bytes(heap);
    inbox_unlock(pool);
  }
  return bytes;
}

bool heaps_of_others(void) {
  const struct heap *heap = heap_from(1, true);
  return heap != NULL && (heap != heap_current() || heap_from(heap->id + 1, true) != NULL);
}

size_t heaps_rest(void) {
  size_t given_back = 0;
  for (struct heap *heap = heap_from(1, false); heap; heap = heap_from(heap->id + 1, false)) {
    if (is_resting(heap))
      continue;
    lock_take(&registry.lock);
    bool is_taken = !heap_is_owned(heap->id) && lifeline_take(&heap->lifeline);
    lock_give(&registry.lock);
    if (!is_taken)
      continue;
    HAK_OWNER_DIED(&heap->front);
    if (!is_resting(heap))
      given_back += heap_rest(heap);
    lifeline_drop(&heap->lifeline);
  }
  return given_back;
}

COLD void registry_process_changed(bool is_noticed) {
  int number = is_noticed ? os_thread_number() : os_process_id_in_child();
  registry.process_id = is_noticed && number <= 0 ? -1 : number;
}
