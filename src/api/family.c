/* The other functions of the hak_* family: resizing, alignment, sizes, trimming. */
#include "api/alloc.h"

#include "base/size_class.h"
#include "budget/usage.h"
#include "checked/checked.h"
#include "heap/queue.h"
#include "heap/slow_path.h"
#include "large/guarded.h"
#include "large/large.h"
#include "large/packed.h"
#include "large/record.h"
#include "os/fault.h"
#include "pages/page_map.h"
#include "reclaim/background.h"
#include "reclaim/reclaim.h"
#include "threads/private.h"
#include "threads/registry.h"
#include "threads/spare.h"

#include <string.h>

#define GROWTH_SHARE 4 /* a block that moves grows by a quarter at least */

/* A block that shrinks stays in place unless less than five eighths of it are asked for. Of a short one it is half,
 * because its copy may have the next power of two (heap/bin.c, FIRST_BYTES_MAX). More than five eighths would not do: a
 * block that grew by a quarter, and was rounded up to its class, may be asked for 0.65 of that (6657 bytes in 10240).
 * It would move again when it shrinks by a little. */
#define SHRINK_SHORT_MAX 2048u
static ALWAYS_INLINE bool stays_in_place(size_t bytes, size_t size) {
  return size <= bytes && size >= (bytes <= SHRINK_SHORT_MAX ? bytes / 2 : bytes / 8 * 5);
}

NOINLINE size_t hak_usable_size(const void *block) {
  uint32_t entry = map_entry(block);
  if (entry_is_checked(entry))
    return checked_size(block, entry);
  if (LIKELY(entry_pool_id(entry) != 0 || entry_is_spare(entry)))
    return class_bytes(entry_class(entry));
  if (entry == ENTRY_PACKED)
    return packed_bytes(block);
  if (entry == ENTRY_GUARDED)
    return observers.guarded_size(block);
  /* Only a large object's first address has a record. */
  return entry == ENTRY_LARGE && large_is_start(block) && large_is_live(block) ? large_bytes(block) : 0;
}

/* Tells whether a block of `bytes` may have been given for a request of `size`: at least its class, at most what stands
 * in for that (block_in_place_of in block.c, a large object of one unit, the lengths of large objects). */
static bool size_is_plausible(size_t size, size_t bytes, bool is_large) {
  if (size > HAK_SMALL_MAX)
    return size <= bytes && bytes <= size + size / 2 + UNIT_BYTES;
  size_t most = is_large ? UNIT_BYTES : SUBSTITUTE_BYTES_MAX(class_bytes(hak_class_of(max_size(size, 1))));
  return size <= bytes && bytes <= most;
}

NOINLINE void free_sized_slow(void *block, size_t size) {
  size_t bytes = hak_usable_size(block);
  uint32_t entry = map_entry(block);
  bool is_exact = entry_is_checked(entry);
  if (UNLIKELY(bytes != 0 &&
               (is_exact ? bytes != max_size(size, 1) : !size_is_plausible(size, bytes, entry == ENTRY_LARGE))))
    fault_delete_size(block);
  hak_free_slow(block);
}

/* No object is as long as a program's address space. It begins at a unit that is not the first. */
#define LARGE_BYTES_MAX (((size_t)1 << HAK_ADDRESS_BITS) - UNIT_BYTES)

size_t hak_good_size(size_t size) {
  if (size <= HAK_SMALL_MAX)
    return checked_is_on() ? max_size(size, 1) : class_bytes(hak_class_of(max_size(size, 1)));
  if (size > LARGE_BYTES_MAX)
    return 0;
  size_t good = guarded_is_on ? size : large_good_size(size);
  return good > LARGE_BYTES_MAX ? 0 : good;
}

/* Returns a block of the heap that `block` belongs to. */
static void *block_beside(const void *block, size_t size, uintptr_t site) {
  struct pool *owner = private_owner(block, map_entry(block));
  if (UNLIKELY(owner != NULL))
    return private_block(owner, size, site);
  if (UNLIKELY(private_current() != NULL))
    return ordinary_block(size, site);
  return malloc_from(size, site);
}

NOINLINE void *resize_by_copy(void *block, size_t old_bytes, size_t size, uintptr_t site) {
  int kept = errno;
  void *moved = block_beside(block, size, site);
  if (moved == NULL && size <= old_bytes) { /* no memory for a smaller block: keep the old one */
    errno = kept;
    return block;
  }
  if (moved == NULL)
    return NULL;
  memcpy(moved, block, min_size(old_bytes, size));
  free_from(block, site);
  return moved;
}

/* Returns what to ask for when a block of a slab moves. One that grows in small steps would be copied for each size
 * class on its way: classes up to 1 KiB are 16 B apart. The pages of what is not asked for yet are touched only if it
 * is used. */
static size_t size_ahead(const void *block, uint32_t entry, size_t old_bytes, size_t size) {
  size_t ahead = min_size(old_bytes + old_bytes / GROWTH_SHARE, HAK_SMALL_MAX);
  bool grows = size > old_bytes && size < ahead;
  return grows && private_owner(block, entry) == NULL && !usage_is_short() ? ahead : size;
}

/* GCC copies what it knows to be short by rep movs, which takes long to begin. */
static ALWAYS_INLINE void copy_by_library(void *to, const void *from, size_t bytes) {
  __asm__("" : "+r"(bytes));
  memcpy(to, from, bytes);
}

/* Moves a block to one that a bin of the thread has ready, if both are of one kind of pool, by the fast paths of malloc
 * and free. NULL: nothing changed. */
static ALWAYS_INLINE void *move_to_ready(void *block, uint32_t entry, size_t old_bytes, size_t size) {
  if (UNLIKELY(!front_takes(hak_self, entry)))
    return NULL;
  void *moved = hak_malloc_ready(size);
  if (UNLIKELY(moved == NULL) && UNLIKELY(hak_self->split) && size <= HAK_SMALL_MAX)
    moved = queue_pop(hak_front_bin(hak_self, size), false);
  if (UNLIKELY(moved == NULL))
    return NULL;
  HAK_OWNER_STEPPED();
  copy_by_library(moved, block, min_size(old_bytes, size));
  free_from(block, 0);
  return moved;
}

static NOINLINE void *move_by_copy(void *block, size_t old_bytes, size_t ahead, size_t size, uintptr_t site) {
  void *moved = ahead != size ? resize_by_copy(block, old_bytes, ahead, site) : NULL;
  return moved != NULL ? moved : resize_by_copy(block, old_bytes, size, site);
}

static NOINLINE void *checked_realloc(void *block, uint32_t entry, size_t size, uintptr_t site) {
  bool is_resized;
  size_t bytes = checked_resize(block, entry, size, &is_resized);
  return is_resized ? block : resize_by_copy(block, bytes, size, site);
}

static void *packed_realloc(void *block, size_t size, uintptr_t site) {
  size_t bytes = packed_bytes(block);
  if (size == bytes || (!packed_is_sealed && stays_in_place(bytes, size)))
    return block;
  bool is_sample = load_relaxed(&observers_large_freed);
  bool is_resized = false;
  if (!is_sample && slow_path_begin()) {
    is_resized = packed_resize(block, size);
    slow_path_end();
  }
  return is_resized ? block : resize_by_copy(block, bytes, size, site);
}

/* Resizes a large object. The one of a hak_heap leaves the heap's list meanwhile. NULL: nothing changed. */
static void *large_resized(void *block, size_t bytes, size_t size, bool *is_dirty) {
  struct pool *owner = private_owner(block, ENTRY_LARGE), *from = NULL;
  size_t more = owner != NULL ? sub_sat(large_length(size), bytes) : 0; /* before the old bytes are given up */
  if (UNLIKELY(owner != NULL)) {
    if (!private_reserve(owner, more))
      return NULL;
    if (!private_object_remove(block, &from) || from != owner) { /* the lock is stuck, or another thread freed it */
      private_object_add(owner, NULL, more);
      return NULL;
    }
  }
  void *resized = large_resize(block, size, is_dirty);
  if (UNLIKELY(resized == NULL) && usage_look())
    resized = large_resize(block, size, is_dirty);
  if (UNLIKELY(owner != NULL))
    private_object_add(owner, resized ? resized : block, more);
  return resized;
}

/* A large object that shrinks to more than this stays one, of one unit: it grows again without being copied. A class of
 * blocks has whole units there as well. */
#define UNIT_KEPT_MIN (HAK_SMALL_MAX / 8 * 7)
#define GUARDED_SHRINK_SHARE 2 /* one with guards is resized where it lies unless less than half of it is asked for */

static NOINLINE void *large_realloc(void *block, size_t size, uintptr_t site) {
  if (!large_is_start(block))
    fault_not_a_block(block);
  if (UNLIKELY(!large_is_live(block)))
    fault_double_free(block);
  if (size > UNIT_KEPT_MIN && large_keeps_length(block, size))
    return block;
  size_t bytes = large_bytes(block);
  bool stays = size > UNIT_KEPT_MIN || (guarded_is_on && size >= bytes / GUARDED_SHRINK_SHARE);
  if (!stays && stays_in_place(bytes, size))
    return block;
  if (!stays || UNLIKELY(large_would_pin(block, size))) {
    void *moved = resize_by_copy(block, bytes, size, site);
    if (moved != block) /* else memory is out: it shrinks in place */
      return moved;
  }
  void *resized = NULL;
  int kept = errno;
  if (slow_path_begin()) {
    bool is_sample = UNLIKELY(load_relaxed(&observers_large_freed)) && observers.large_resizing(block);
    bool is_dirty = false;
    resized = large_resized(block, bytes, size, &is_dirty);
    bool is_changed = resized != NULL && (resized != block || large_bytes(resized) != bytes);
    if (UNLIKELY(checked_is_on()) && resized != NULL && is_dirty) /* no block shows what others left */
      memset((char *)resized + bytes, 0, sub_sat(large_bytes(resized), bytes));
    if (is_sample)
      observers.large_resized(block, is_changed);
    if (UNLIKELY(load_relaxed(&observers_large_made)) && is_changed)
      observers.large_made(resized, large_bytes(resized), site);
    housekeep();
    slow_path_end();
    background_start_if_due(site, BACKGROUND_ALLOCATES);
    errno = kept; /* the program must not see what the system refused */
  }
  return resized ? resized : resize_by_copy(block, bytes, size, site);
}

/* Resizes what is neither a block of a slab nor a large object; ends the program if it is no block. */
COLD static void *rare_realloc(void *block, uint32_t entry, size_t size, uintptr_t site) {
  if (entry == ENTRY_PACKED)
    return packed_realloc(block, size, site);
  if (entry == ENTRY_GUARDED) {
    size_t bytes = observers.guarded_size(block);
    if (bytes == 0)
      observers.guarded_free(block, false); /* says what is wrong */
    return bytes == size ? block : resize_by_copy(block, bytes, size, site);
  }
  fault_if_ours(block, entry);
  fault_realloc_foreign(block);
}

void *hak_realloc(void *block, size_t size) {
  if (block == NULL)
    return hak_malloc(size);
  if (UNLIKELY(size == 0)) {
    free_from(block, 0);
    return NULL;
  }
  if (UNLIKELY(size > PTRDIFF_MAX))
    return failed(ENOMEM);
  uint32_t entry = map_entry(block);
  if (entry_is_checked(entry))
    return checked_realloc(block, entry, size, CALL_SITE);
  if (UNLIKELY(entry_pool_id(entry) == 0 && !entry_is_spare(entry)))
    return entry == ENTRY_LARGE ? large_realloc(block, size, CALL_SITE) : rare_realloc(block, entry, size, CALL_SITE);
  size_t bytes = class_bytes(entry_class(entry));
  if (stays_in_place(bytes, size))
    return block;
  if (!entry_is_spare(entry) && !slab_is_block_start(block, entry_class(entry)))
    fault_not_a_block(block);
  if (UNLIKELY(size <= bytes && bytes == BLOCK_ALIGNMENT)) /* no class is smaller */
    return block;
  size_t ahead = size_ahead(block, entry, bytes, size);
  void *moved = move_to_ready(block, entry, bytes, ahead);
  return LIKELY(moved != NULL) ? moved : move_by_copy(block, bytes, ahead, size, CALL_SITE);
}

/* Both calls are jumps, so they see the program's call site. */
void *hak_heap_realloc(hak_heap *heap, void *block, size_t size) {
  return block == NULL ? hak_heap_malloc(heap, size) : hak_realloc(block, size);
}

void *hak_reallocarray(void *block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes))
    return failed(ENOMEM);
  return hak_realloc(block, bytes);
}

void *hak_aligned_alloc(size_t alignment, size_t size) {
  if (!is_power_of_two(alignment))
    return failed(EINVAL);
  return aligned_block(alignment, size, CALL_SITE);
}

int hak_posix_memalign(void **out, size_t alignment, size_t size) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0)
    return EINVAL;
  void *block = aligned_block(alignment, size, CALL_SITE);
  if (block == NULL) /* errno says so too, as glibc's; POSIX leaves it open */
    return ENOMEM;
  *out = block;
  return 0;
}

int hak_trim(size_t keep_bytes) {
  KEEP_ERRNO;
  if (!slow_path_begin_patiently())
    return 0;
  private_flush_own();
  heaps_ask_to_flush(heap_current());
  size_t given_back = reclaim_trim(keep_bytes);
  slow_path_end();
  return given_back > 0;
}
