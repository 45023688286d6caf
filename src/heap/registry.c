/* The registry: all heaps, and their assignment to threads. */
#include "heap/heap.h"

#include "base/options.h"
#include "budget/usage.h"
#include "heap/bins.h"
#include "heap/checked.h"
#include "heap/envelope.h"
#include "heap/ids.h"
#include "heap/registry.h"
#include "heap/slow_path.h"
#include "os/fault.h"
#include "pages/metadata.h"
#include "pages/page_map.h"

#include <string.h>

#define LOOKS_MAX 64u /* heaps a starting thread looks at before it makes a new one */

/* The slot under every empty bin of hak_heap_none. */
static void *const no_block[1];
#define NO_BIN {.top = (void **)no_block + 1, .end = (void **)no_block + 1}

const struct hak_front hak_heap_none = {
    .key = UINT32_MAX << HAK_ENTRY_ID_SHIFT,        /* an id that no heap has */
    .bins = {[0 ... HAK_CLASS_COUNT - 1] = NO_BIN}, /* no key leads to the others */
};

__thread struct hak_front *hak_self HAK_TLS_MODEL = (struct hak_front *)&hak_heap_none;
__thread uintptr_t hak_thread HAK_TLS_MODEL;

/* The lock orders starting threads, sweeps and forks, and guards new ids (heap/ids.h). */
static struct {
  struct lock lock;
  uint32_t cursor; /* heap looked at last */
  int process_id;  /* whose threads the owners are; not 0, so that it lies in .data, where a fork writes anyway */
  _Atomic uint64_t adopted, swept;
} registry = {.process_id = -1};

void heaps_counters(struct heaps_counters *out) {
  out->adopted = atomic_load_explicit(&registry.adopted, memory_order_relaxed);
  out->swept = atomic_load_explicit(&registry.swept, memory_order_relaxed);
}

static void bins_begin(struct heap *heap) {
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++)
    heap->front.bins[cls] = hak_heap_none.bins[cls];
}

static struct heap *heap_create(bool is_shared) {
  if (!heap_ids_grow())
    return NULL;
  if (heap_count() == 0)
    registry.process_id = os_process_id_at_start();
  struct heap *heap = metadata_take_forever(sizeof(struct heap));
  if (heap == NULL)
    return NULL;
  heap->id = heap_count() + 1;
  heap->front.key = heap->slabs.key = entry_key(heap->id);
  bins_begin(heap);
  lifeline_make(&heap->lifeline);
  heap->is_shared = is_shared;
  if (is_shared)
    atomic_store_explicit(&heap->parked, true, memory_order_relaxed);
  else
    lifeline_take(&heap->lifeline);
  heap_ids_add(heap);
  return heap;
}

/* Takes the lifeline of a heap if its owner is dead. The registry's lock is held. */
static bool take_dead(struct heap *heap, bool thoroughly) {
  if (heap->is_shared || heap == heap_current() ||
      !(lifeline_take(&heap->lifeline) || (thoroughly && lifeline_take_left(&heap->lifeline, registry.process_id))))
    return false;
  HAK_OWNER_DIED(&heap->front);
  if (atomic_load_explicit(&heap->inside, memory_order_relaxed) == 0)
    return true;
  /* The owner ended inside a slow path (pthread_exit in a signal handler). No thread may use the heap. Keeping the
   * lifeline ensures that none tries. */
  atomic_store_explicit(&heap->lost, true, memory_order_relaxed);
  return false;
}

/* Takes the lifeline of the next heap, from the cursor on, whose owner is dead. */
static struct heap *take_orphan(uint32_t looks) {
  const struct heap *first = NULL;
  for (; looks > 0; looks--) {
    struct heap *heap = heap_from(registry.cursor + 1, true);
    if (heap == NULL && (heap = heap_from(1, true)) == NULL)
      return NULL;
    if (heap == first)
      return NULL; /* looked at all */
    if (first == NULL)
      first = heap;
    registry.cursor = heap->id;
    if (take_dead(heap, false))
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
  int thread_id = UNLIKELY(option_value(OPTION_LIVE) == LIVE_ON) ? os_thread_id() : 0;
  atomic_store_explicit(&heap->thread_id, thread_id, memory_order_relaxed);
}

static bool is_resting(const struct heap *heap) {
  return atomic_load_explicit(&heap->is_resting, memory_order_relaxed);
}

/* The begin of the part of a heap that has no information while no slab is open and no bin has an array. */
static char *rest_begin(struct heap *heap) { return (char *)heap->front.bins; }
static char *rest_end(struct heap *heap) { return (char *)&heap->slabs.key; }

/* Gives back the pages of a heap without an owner. The caller holds its lifeline. */
static size_t heap_rest(struct heap *heap) {
  char *pages = (char *)round_up((uintptr_t)rest_begin(heap), os_page_bytes());
  char *pages_end = (char *)round_down((uintptr_t)rest_end(heap), os_page_bytes());
  lock_take(&heap->lock);
  bool is_empty = heap->slabs.slab_bytes == 0 && !inbox_has_mail(heap);
  if (is_empty && heap->split) {
    bins_split(heap, false);
    heap->split_seen = 0; /* the next owner does what is wanted then */
  }
  lock_give(&heap->lock);
  if (!is_empty || pages >= pages_end || pages_purge(pages, (size_t)(pages_end - pages)) == PURGE_REFUSED)
    return 0;
  atomic_store_explicit(&heap->is_resting, true, memory_order_relaxed);
  return (size_t)(pages_end - pages);
}

static void heap_wake(struct heap *heap) {
  atomic_store_explicit(&heap->is_resting, false, memory_order_relaxed);
  lock_take(&heap->lock);
  memset(rest_begin(heap), 0, (size_t)(rest_end(heap) - rest_begin(heap)));
  bins_begin(heap);
  lock_give(&heap->lock);
}

struct heap *heap_attach(void) {
  lock_take(&registry.lock);
  struct heap *heap = take_orphan(LOOKS_MAX);
  if (heap == NULL)
    heap = take_parked();
  if (heap) {
    heap_mark_owned(heap->id, true);
    atomic_fetch_add_explicit(&registry.adopted, 1, memory_order_relaxed);
  } else {
    heap = heap_create(false);
  }
  lock_give(&registry.lock);
  if (heap == NULL)
    return NULL;
  if (is_resting(heap))
    heap_wake(heap);
  /* Taking the lock once makes all changes that were made under it visible. */
  lock_take(&heap->lock);
  atomic_store_explicit(&heap->parked, false, memory_order_relaxed);
  lock_give(&heap->lock);
  heap->callback_frame = 0; /* the owner may have ended inside a callback */
  heap->holes_class = 0;
  heap_note_thread(heap);
  hak_thread = (uintptr_t)heap | (hak_thread & THREAD_FLAGS);
  return heap;
}

_Atomic uint32_t heap_shared_id;

struct heap *heap_make_shared(void) {
  lock_take(&registry.lock);
  struct heap *heap = heap_create(true);
  lock_give(&registry.lock);
  return heap;
}

void heap_flush_all(struct heap *heap) {
  lock_take(&heap->lock);
  if (inbox_has_mail(heap))
    inbox_drain_to_slabs(heap);
  bins_flush_all(heap);
  slab_set_close_empty(&heap->slabs);
  lock_give(&heap->lock);
  checked_flush(heap);
  outbox_close(heap);
}

void heaps_ask_to_flush(const struct heap *self) {
  for (struct heap *heap = heap_from(1, true); heap; heap = heap_from(heap->id + 1, true))
    if (heap != self && !heap->is_shared)
      atomic_store_explicit(&heap->flush_wanted, true, memory_order_relaxed);
}

/* Parks a dead thread's heap: its blocks return to their slabs, and it waits for a new owner. The caller holds its
 * lifeline. */
static void heap_park(struct heap *heap) {
  atomic_store_explicit(&heap->parked, true, memory_order_seq_cst); /* see envelope_send */
  heap_flush_all(heap);
  inbox_serve(heap);
  atomic_fetch_add_explicit(&registry.swept, 1, memory_order_relaxed);
  heap_mark_owned(heap->id, false);
  lifeline_drop(&heap->lifeline);
}

void heaps_sweep(uint32_t heaps_max) {
  for (uint32_t i = 0; i < heaps_max; i++) {
    if (!lock_try(&registry.lock))
      return; /* another thread sweeps */
    struct heap *heap = take_orphan(1);
    lock_give(&registry.lock);
    if (heap)
      heap_park(heap);
  }
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

size_t heaps_live_bytes(void) {
  size_t bytes = 0;
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap))
    bytes += slab_set_taken_bytes(&heap->slabs);
  return bytes;
}

/* Drops bins and outbox of a heap whose owner does not exist in the child: both may be inconsistent, because they
 * change outside slow paths. Its inbox is consistent. */
COLD static void drop_in_child(struct heap *heap) {
  bins_drop_all(heap);
  checked_drop(heap);
  outbox_drop_all(heap);
  lifeline_reset(&heap->lifeline);
  atomic_store_explicit(&heap->inside, 0, memory_order_relaxed);
  atomic_store_explicit(&heap->parked, true, memory_order_relaxed);
  if (!heap->is_shared)
    heap_mark_owned(heap->id, false);
  inbox_serve(heap);
}

/* The work is proportional to the number of threads at the fork, because it skips heaps without an owner. */
COLD void heaps_in_child(void) {
  struct heap *self = heap_current();
  for (struct heap *heap = heap_from(1, true); heap; heap = heap_from(heap->id + 1, true))
    if (heap != self)
      drop_in_child(heap);
  if (self) {
    lifeline_after_fork(&self->lifeline, true);
    heap_note_thread(self);
  }
  checked_in_child(self);
  registry.process_id = os_process_id();
}

void heaps_before_fork(void) {
  if (heap_current())
    lifeline_before_fork(&heap_current()->lifeline);
}

void heaps_in_parent(void) {
  if (heap_current())
    lifeline_after_fork(&heap_current()->lifeline, false);
}
