/* malloc and free: the fast path (hakmem/inline.h) under its names, and its slow halves.
 *
 *   hak_malloc_slow  small: bin_refill -> inbox, slabs, units      large: large_alloc
 *   hak_free_slow    own small: bin_overflow -> bin_grow or flush  other heap's: outbox_put
 *                    large: large_free                             not ours: ignored
 */
#include "api/alloc.h"

#include "heap/heap.h"
#include "large/large.h"
#include "map/page_map.h"
#include "map/superslab.h"
#include "os/fault.h"
#include "telemetry/stats.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define SWEEP_PERIOD 64 /* slow calls of a heap between two looks for a dead thread's heap */

void *hak_malloc(size_t size) { return hak_malloc_inlined(size); }
void hak_free(void *block) { hak_free_inlined(block); }

/* A static link takes only the objects it needs; whoever needs malloc needs the constructor. */
__attribute__((used)) static void (*const start_with_malloc)(void) = hak_start;

/* The heap of the calling thread, locked. NULL when memory is out, or when a signal handler has
 * interrupted the slow path: then nothing of the heap may be touched. */
static struct heap *enter(void) {
  struct heap *heap = heap_current();
  if (UNLIKELY(heap == NULL)) {
    heap = heap_attach();
    if (heap == NULL)
      return NULL;
  }
  if (UNLIKELY(heap->in_slow_path))
    return NULL;
  heap->in_slow_path = true;
  atomic_signal_fence(memory_order_seq_cst);
  lock_take(&heap->lock);
  return heap;
}

/* What is due is done here, outside the lock. */
static void leave(struct heap *heap) {
  bins_tick(heap);
  bool sweep = heap->slow_calls % SWEEP_PERIOD == 0;
#ifdef HAK_DEBUG
  if (heap->slow_calls % 1024 == 0)
    hak_assert(heap_is_valid(heap) && superslabs_are_valid());
#endif
  lock_give(&heap->lock);
  if (UNLIKELY(units_purge_is_due()))
    units_purge_due();
  if (UNLIKELY(sweep))
    heaps_sweep(1);
  atomic_signal_fence(memory_order_seq_cst);
  heap->in_slow_path = false;
}

/* Memory is out: gives back what is held free, address space included. */
COLD static void memory_release(void) {
  struct heap *heap = heap_current();
  if (heap && heap->in_slow_path)
    return; /* in a signal handler: locks may be held below us */
  large_trim(0);
  heaps_sweep(heap_count());
  if (heap) {
    heap->in_slow_path = true;
    heap_flush_all(heap);
    heap->in_slow_path = false;
  }
  units_release_empty();
}

static void *small_block(unsigned cls) {
  struct heap *heap = enter();
  if (UNLIKELY(heap == NULL)) {
    bool zeroed;
    size_t bytes = class_bytes(cls);
    return large_alloc(bytes, bytes & -bytes, &zeroed); /* as aligned as a block of the class is */
  }
  void *block = hak_bin_pop(&heap->front.bins[cls]);
  if (block == NULL)
    block = bin_refill(heap, cls);
  leave(heap);
  return block;
}

/* Any size; retries once after giving back what is held free. */
static void *block_or_null(size_t size, size_t alignment, unsigned cls, bool *zeroed) {
  for (bool again = false;; again = true) {
    *zeroed = false;
    void *block = cls ? small_block(cls) : large_alloc(size, alignment, zeroed);
    if (LIKELY(block != NULL)) {
      HAK_OWNER_STEPPED();
      return block;
    }
    if (again) {
      errno = ENOMEM;
      return NULL;
    }
    memory_release();
  }
}

NOINLINE void *hak_malloc_slow(size_t size) {
  bool zeroed;
  if (UNLIKELY(size > PTRDIFF_MAX)) {
    errno = ENOMEM;
    return NULL;
  }
  size = max_size(size, 1);
  int kept = errno;
  void *block = block_or_null(size, BLOCK_ALIGNMENT, size <= HAK_SMALL_MAX ? hak_class_of(size) : 0, &zeroed);
  if (LIKELY(block != NULL))
    errno = kept;
  return block;
}

void *aligned_block(size_t alignment, size_t size) {
  bool zeroed;
  if (alignment <= BLOCK_ALIGNMENT)
    return hak_malloc_inlined(size);
  if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX) {
    errno = ENOMEM;
    return NULL;
  }
  unsigned cls = class_aligned(size, alignment);
  if (cls != 0)
    return hak_malloc_inlined(class_bytes(cls));
  return block_or_null(max_size(size, 1), alignment, 0, &zeroed);
}

void *hak_calloc(size_t count, size_t size) {
  size_t bytes;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX)) {
    errno = ENOMEM;
    return NULL;
  }
  if (bytes <= HAK_SMALL_MAX) {
    void *block = hak_malloc_inlined(bytes);
    return block ? memset(block, 0, bytes) : NULL;
  }
  bool zeroed;
  void *block = block_or_null(bytes, BLOCK_ALIGNMENT, 0, &zeroed);
  if (block && !zeroed)
    memset(block, 0, bytes);
  return block;
}

NOINLINE void hak_free_slow(void *block) {
  uint32_t entry = map_entry(block);
  struct heap *heap = heap_current();
  int kept = errno;
  if (LIKELY(entry_heap_id(entry) != 0)) {
    if (UNLIKELY(heap == NULL))
      heap = heap_attach();
    if (UNLIKELY(heap == NULL)) {
      block_deliver(block, entry);
    } else if (UNLIKELY(heap->in_slow_path)) {
      /* In a signal handler that interrupted us: the block is lost, the heap is not. */
    } else if (entry_is_of(entry, heap->front.key)) {
      enter();
      bin_overflow(heap, entry_class(entry), block);
      leave(heap);
    } else {
      heap->in_slow_path = true;
      outbox_put(heap, block, entry);
      heap->in_slow_path = false;
    }
  } else if (entry == ENTRY_LARGE) {
    if (((uintptr_t)block & (UNIT_BYTES - 1)) != 0)
      fault_not_a_block(block);
    large_free(block);
  } else if (entry == ENTRY_LARGE_BODY) {
    fault_not_a_block(block);
  } else if (entry == ENTRY_LARGE_FREE) {
    fault_double_free(block);
  } else if (block != NULL) {
    if (address_in_superslab(block))
      fault_no_block_here(block);
    count_foreign_free();
  }
  HAK_OWNER_STEPPED();
  errno = kept;
}
