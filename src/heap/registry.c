/* All heaps, and who gets which. */
#include "heap/heap.h"

#include "base/options.h"
#include "map/metadata.h"
#include "map/page_map.h"
#include "os/fault.h"

#define CHUNK_HEAPS 256u
#define CHUNKS_MAX 4095u /* a million threads at a time: ids have 20 bits */
#define LOOKS_MAX 64u    /* heaps a starting thread looks at before it makes a new one */
_Static_assert(CHUNK_HEAPS *CHUNKS_MAX < UINT32_MAX >> HAK_ENTRY_ID_SHIFT, "hak_heap_none's id is no heap's");

/* The slot under every empty bin of hak_heap_none. */
static void *const no_block[1];
#define NO_BIN {.top = (void **)no_block + 1, .end = (void **)no_block + 1}

const struct hak_front hak_heap_none = {
    .key = UINT32_MAX << HAK_ENTRY_ID_SHIFT,        /* an id no heap has */
    .bins = {[0 ... HAK_CLASS_COUNT - 1] = NO_BIN}, /* no key leads to the others */
};

__thread struct hak_front *hak_self HAK_TLS_MODEL = (struct hak_front *)&hak_heap_none;

/* Ids are 1 .. count. The lock orders starting threads, sweeps and forks. */
static struct {
  struct lock lock;
  _Atomic uint32_t count;
  _Atomic(struct heap **) chunks[CHUNKS_MAX];
  uint32_t cursor; /* heap looked at last */
  _Atomic uint64_t adopted, swept;
} registry;

void heaps_counters(struct heaps_counters *out) {
  out->adopted = atomic_load_explicit(&registry.adopted, memory_order_relaxed);
  out->swept = atomic_load_explicit(&registry.swept, memory_order_relaxed);
}

uint32_t heap_count(void) { return atomic_load_explicit(&registry.count, memory_order_acquire); }

struct heap *heap_by_id(uint32_t id) {
  hak_assert(id >= 1 && id <= heap_count());
  struct heap **chunk = atomic_load_explicit(&registry.chunks[(id - 1) / CHUNK_HEAPS], memory_order_acquire);
  return chunk[(id - 1) % CHUNK_HEAPS];
}

static struct heap *heap_create(bool is_shared) {
  uint32_t count = heap_count();
  if (count == CHUNK_HEAPS * CHUNKS_MAX)
    return NULL;
  _Atomic(struct heap **) *chunk = &registry.chunks[count / CHUNK_HEAPS];
  if (atomic_load_explicit(chunk, memory_order_relaxed) == NULL) {
    struct heap **heaps = metadata_take_forever(CHUNK_HEAPS * sizeof(struct heap *));
    if (heaps == NULL)
      return NULL;
    atomic_store_explicit(chunk, heaps, memory_order_release);
  }
  struct heap *heap = metadata_take_forever(sizeof(struct heap));
  if (heap == NULL)
    return NULL;
  heap->id = count + 1;
  heap->front.key = heap->slabs.key = entry_key(heap->id);
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++)
    heap->front.bins[cls] = hak_heap_none.bins[cls];
  lifeline_reset(&heap->lifeline);
  heap->is_shared = is_shared;
  if (is_shared)
    atomic_store_explicit(&heap->parked, true, memory_order_relaxed);
  else
    lifeline_take(&heap->lifeline);
  atomic_load_explicit(chunk, memory_order_relaxed)[count % CHUNK_HEAPS] = heap;
  atomic_store_explicit(&registry.count, count + 1, memory_order_release);
  return heap;
}

/* The next heap, looking round from the cursor, whose owner is dead; its lifeline is ours then. */
static struct heap *take_orphan(uint32_t looks) {
  uint32_t count = heap_count();
  for (uint32_t i = 0; i < looks && i < count; i++) {
    registry.cursor = registry.cursor % count + 1;
    struct heap *heap = heap_by_id(registry.cursor);
    if (!heap->is_shared && lifeline_take(&heap->lifeline)) {
      HAK_OWNER_DIED(&heap->front);
      if (!heap->in_slow_path)
        return heap;
      /* Its owner ended inside the slow path (pthread_exit in a signal handler): nobody may use it. We
       * keep the lifeline, so that nobody tries. */
    }
  }
  return NULL;
}

void heap_note_thread(struct heap *heap) {
  int thread_id = UNLIKELY(option_value(OPTION_LIVE) == LIVE_ON) ? os_thread_id() : 0;
  atomic_store_explicit(&heap->thread_id, thread_id, memory_order_relaxed);
}

struct heap *heap_attach(void) {
  lock_take(&registry.lock);
  struct heap *heap = take_orphan(LOOKS_MAX);
  if (heap)
    atomic_fetch_add_explicit(&registry.adopted, 1, memory_order_relaxed);
  else
    heap = heap_create(false);
  lock_give(&registry.lock);
  if (heap == NULL)
    return NULL;
  /* Taking the lock once shows us all that was done under it. */
  lock_take(&heap->lock);
  atomic_store_explicit(&heap->parked, false, memory_order_relaxed);
  lock_give(&heap->lock);
  heap->callback_frame = 0; /* of an owner that ended in there */
  heap->holes_class = 0;
  heap_note_thread(heap);
  hak_self = &heap->front;
  return heap;
}

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
  outbox_send_all(heap);
}

void heaps_ask_to_flush(const struct heap *self) {
  uint32_t count = heap_count();
  for (uint32_t id = 1; id <= count; id++) {
    struct heap *heap = heap_by_id(id);
    if (heap != self && !atomic_load_explicit(&heap->parked, memory_order_relaxed))
      atomic_store_explicit(&heap->flush_wanted, true, memory_order_relaxed);
  }
}

/* A dead thread's heap, whose lifeline we took: its blocks go home and it waits for a new owner. */
static void heap_park(struct heap *heap) {
  if (!atomic_load_explicit(&heap->parked, memory_order_relaxed) || inbox_has_mail(heap)) {
    atomic_store_explicit(&heap->parked, true, memory_order_seq_cst); /* see envelope_send */
    heap_flush_all(heap);
    inbox_serve(heap);
    atomic_fetch_add_explicit(&registry.swept, 1, memory_order_relaxed);
  }
  lifeline_drop(&heap->lifeline);
}

void heaps_sweep(uint32_t heaps_max) {
  for (uint32_t i = 0; i < heaps_max; i++) {
    if (!lock_try(&registry.lock))
      return; /* somebody else is at it */
    struct heap *heap = take_orphan(1);
    lock_give(&registry.lock);
    if (heap)
      heap_park(heap);
  }
}

size_t heaps_live_bytes(void) {
  size_t bytes = 0;
  uint32_t count = heap_count();
  for (uint32_t id = 1; id <= count; id++) {
    const struct heap *heap = heap_by_id(id);
    bytes += slab_set_taken_bytes(&heap->slabs);
  }
  return bytes;
}

static void others_lock_for_fork(void) {
  uint32_t count = heap_count();
  for (uint32_t id = 1; id <= count; id++) {
    struct heap *heap = heap_by_id(id);
    lock_take(&heap->lock);
    if (inbox_has_mail(heap)) /* what arrives after this the child loses */
      inbox_drain_to_slabs(heap);
  }
}

void heaps_lock_for_fork(void) {
  heaps_sweep(heap_count()); /* dead threads' bins are stable: save them for the child */
  lock_take(&registry.lock);
  others_lock_for_fork();
  envelopes_lock_for_fork();
}

static void unlock_in_parent(void) {
  for (uint32_t id = heap_count(); id >= 1; id--)
    lock_give(&heap_by_id(id)->lock);
  lock_give(&registry.lock);
}

static void unlock_in_child(void) {
  struct heap *self = heap_current();
  for (uint32_t id = heap_count(); id >= 1; id--) {
    struct heap *heap = heap_by_id(id);
    atomic_store_explicit(&heap->inbox, NULL, memory_order_relaxed);
    atomic_store_explicit(&heap->inbox_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&heap->inbox_envelopes, 0, memory_order_relaxed);
    lifeline_reset(&heap->lifeline);
    if (heap == self) {
      lifeline_take(&heap->lifeline);
      heap_note_thread(heap);
    } else {
      bins_drop_all(heap);
      outbox_drop_all(heap);
      heap->in_slow_path = false;
      atomic_store_explicit(&heap->parked, true, memory_order_relaxed);
    }
    lock_reset(&heap->lock);
  }
  lock_reset(&registry.lock);
}

void heaps_unlock_after_fork(bool child) {
  envelopes_unlock_after_fork(child);
  if (child)
    unlock_in_child();
  else
    unlock_in_parent();
}
