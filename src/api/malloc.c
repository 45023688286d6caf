/* hak_malloc and hak_free: gives the fast path (hakmem/inline.h) its names, and holds the entries of malloc's slow
 * paths, and what they do when memory is out. Where their blocks come from: block.c. free's entries: free.c.
 */
#include "api/alloc.h"

#include "base/counters.h"
#include "checked/checked_cache.h"
#include "heap/queue.h"
#include "heap/slow_path.h"
#include "heap/split.h"
#include "large/large.h"
#include "large/stash.h"
#include "pages/page_map.h"
#include "reclaim/background.h"
#include "threads/inherited.h"
#include "threads/private.h"
#include "threads/spare.h"

#include <string.h>

void *hak_malloc(size_t size) { return hak_malloc_inlined(size); }
void hak_free(void *block) { hak_free_inlined(block); }

/* A static link takes only the objects that are referenced. This reference brings the constructor along with malloc. */
__attribute__((used)) static void (*const start_with_malloc)(void) = hak_start;

#define HOPELESS_BYTES ((size_t)1 << 40)

COLD bool may_try_again(unsigned attempt, struct pool *pool, size_t size, size_t alignment, bool *is_begun) {
  size_t longest = max_size(size, alignment);
  if (pool != NULL && private_forbids(pool, size)) { /* nothing outside the heap can help */
    private_flush_own();
    return attempt == 1;
  }
  if (attempt == 1) {
    if (longest > HOPELESS_BYTES) /* giving memory back cannot make room for it */
      return false;
    counter_note(memory_retries);
    if (heap_current() != NULL && heap_current()->inherited_calls > 0)
      inherited_return(heap_current());
    memory_release(longest);
    return true;
  }
  bool again = limit_callback_call(size, is_begun);
  if (again) /* the freed memory may be held in a shape that does not fit */
    memory_release(longest);
  return again;
}

/* As block_attempt with retries. Keeps errno on success, sets ENOMEM on failure. */
static void *block_or_null(size_t size, size_t alignment, unsigned cls, uintptr_t site, size_t *dirty) {
  int kept = errno;
  void *block = NULL;
  bool is_begun = slow_path_begin_inlined();
  *dirty = SIZE_MAX;
  if (LIKELY(is_begun))
    block = block_attempt(size, alignment, cls, site, dirty);
  for (unsigned attempt = 1; UNLIKELY(block == NULL) && is_begun && attempt < ATTEMPTS_MAX &&
                             may_try_again(attempt, private_current(), size, alignment, &is_begun);
       attempt++)
    block = block_attempt(size, alignment, cls, site, dirty);
  if (LIKELY(is_begun)) {
    slow_path_end_inlined();
    background_start_if_due(site, BACKGROUND_ALLOCATES);
  } else {
    block = spare_take(size, alignment, cls);
    counter_note(spare_calls);
  }
  if (UNLIKELY(block == NULL))
    counter_note(memory_refusals);
  errno = LIKELY(block != NULL) ? kept : ENOMEM;
  return block;
}

/* Returns a large object of the calling thread's stash, or NULL. */
static NOINLINE void *stashed_block(size_t size, size_t alignment, uintptr_t site) {
  struct stash *stash = heap_stash(heap_if_idle(), &observers_large_made);
  if (stash == NULL)
    return NULL;
  owner_step_begin();
  void *block = stash_take(stash, size, alignment, site);
  owner_step_end();
  return block;
}

/* Returns the calling thread's cache; NULL if a slow path must take the block. */
static ALWAYS_INLINE struct checked_cache *cache_ready(void) {
  return LIKELY(!load_relaxed(&observers_large_made)) ? cache_if_idle() : NULL;
}

static void *malloc_checked(size_t size, size_t alignment, uintptr_t site);

static NOINLINE void *malloc_checked_slow(size_t size, size_t alignment, uintptr_t site) {
  unsigned cls = checked_class(size, alignment);
  size_t dirty;
  if (cls != 0 && LIKELY(!load_relaxed(&observers_large_made)) && checked_draw(cls))
    return malloc_checked(size, alignment, site);
  return block_or_null(size, alignment, cls, site, &dirty);
}

/* As malloc_slow_from, where blocks are checked. Any alignment that is a power of two. */
static NOINLINE void *malloc_checked(size_t size, size_t alignment, uintptr_t site) {
  unsigned cls = checked_class(size, alignment);
  struct checked_cache *cache = cache_ready();
  struct kept taken;
  size = max_size(size, 1);
  if (UNLIKELY(alignment > BLOCK_ALIGNMENT)) /* the class may be much longer */
    size = max_size(size, sub_sat(class_bytes(cls), CHECKED_SLACK_MAX));
  if (LIKELY(cls != 0) && LIKELY(cache != NULL) && LIKELY(checked_take_drawn(cache, class_in(cache, cls), &taken)))
    return block_begin(taken, class_in(cache, cls)->block_bytes, size);
  return malloc_checked_slow(size, alignment, site);
}

/* Takes a block of a tiny class, with `room` behind the request. Returns the class; NULL: a slow path must. */
static ALWAYS_INLINE struct checked_class *checked_take_tiny(size_t size, size_t room, struct kept *taken) {
  struct checked_cache *cache = LIKELY(size - 1 < HAK_TINY_MAX - CANARY_BYTES) ? cache_ready() : NULL;
  if (UNLIKELY(cache == NULL))
    return NULL;
  struct checked_class *class = class_of_bytes(cache, size + room + BLOCK_ALIGNMENT - 1);
  return checked_take_drawn(cache, class, taken) ? class : NULL;
}

/* These call nothing but at their ends, so that few registers are saved. malloc_checked_wide needs checked.is_usual. */
#ifdef WIDE
WIDE static NOINLINE void *malloc_checked_wide(size_t size, uintptr_t site) {
  struct kept taken;
  struct checked_class *class = checked_take_tiny(size, CANARY_BYTES, &taken);
  if (UNLIKELY(class == NULL))
    return malloc_slow_from(size, site);
  size_t bytes = class->block_bytes;
  if (LIKELY(load_relaxed(taken.state) != 0) && UNLIKELY(!block_is_zero_wide(taken.block, bytes)))
    fault_written_after_free(taken.block);
  return block_make_live(taken, bytes, size, true);
}
#else
#define malloc_checked_wide malloc_slow_from
#endif

static NOINLINE void *malloc_checked_usual(size_t size, uintptr_t site) {
  if (LIKELY(checked.is_usual))
    return malloc_checked_wide(size, site);
  struct kept taken;
  struct checked_class *class = checked_take_tiny(size, checked_room, &taken);
  return LIKELY(class != NULL) ? block_begin(taken, class->block_bytes, size) : malloc_slow_from(size, site);
}

static NOINLINE void *malloc_large_slow(size_t size, uintptr_t site) {
  size_t dirty;
  return LIKELY(size <= PTRDIFF_MAX) ? block_or_null(size, BLOCK_ALIGNMENT, 0, site, &dirty) : failed(ENOMEM);
}

static NOINLINE void *malloc_large_searching(size_t size, uintptr_t site) {
  void *block = stashed_block(size, BLOCK_ALIGNMENT, site);
  return LIKELY(block != NULL) ? block : malloc_large_slow(size, site);
}

static NOINLINE void *malloc_large(size_t size, uintptr_t site) {
  struct stash *stash = heap_stash(heap_if_idle(), &observers_large_made);
  if (UNLIKELY(stash == NULL))
    return malloc_large_slow(size, site);
  owner_step_begin();
  void *block = stash_take_again(stash, size, site);
  owner_step_end();
  return LIKELY(block != NULL) ? block : malloc_large_searching(size, site);
}

static ALWAYS_INLINE void *malloc_small(size_t size, uintptr_t site) {
  size_t dirty;
  size = max_size(size, 1);
  return block_or_null(size, BLOCK_ALIGNMENT, hak_class_of(size), site, &dirty);
}

/* Apart, so that GCC counts by one instruction. */
static NOINLINE void *malloc_split_missed(size_t size, struct hak_bin *bin) {
  void *block = queue_pop(bin, true);
  return LIKELY(block != NULL) ? block : hak_malloc_slow(size);
}

NOINLINE void *hak_malloc_split(size_t size, struct hak_bin *bin) {
  void *block = split_try(bin);
  if (UNLIKELY(block == NULL))
    return malloc_split_missed(size, bin);
  HAK_OWNER_STEPPED();
  return block;
}

/* Callers tail-call this function, so its return address is the program's call site. */
NOINLINE void *hak_malloc_slow(size_t size) {
  if (checked_is_on())
    return malloc_checked_usual(size, CALL_SITE);
  return size > HAK_SMALL_MAX ? malloc_large(size, CALL_SITE) : malloc_small(size, CALL_SITE);
}

NOINLINE void *malloc_slow_from(size_t size, uintptr_t site) {
  if (UNLIKELY(size > PTRDIFF_MAX))
    return failed(ENOMEM);
  struct hak_front *front = hak_self;
  if (UNLIKELY(front->split) && size <= HAK_SMALL_MAX) {
    struct hak_bin *bin = hak_front_bin(front, size);
    void *block = split_try(bin);
    if (block == NULL)
      block = queue_pop(bin, true);
    if (LIKELY(block != NULL))
      return block;
  }
  if (checked_is_on())
    return malloc_checked(size, BLOCK_ALIGNMENT, site);
  return size > HAK_SMALL_MAX ? malloc_large(size, site) : malloc_small(size, site);
}

static NOINLINE void *aligned_large(size_t size, size_t alignment, uintptr_t site) {
  size_t dirty;
  void *block = alignment <= UNIT_BYTES ? stashed_block(size, alignment, site) : NULL;
  return LIKELY(block != NULL) ? block : block_or_null(size, alignment, 0, site, &dirty);
}

void *aligned_block(size_t alignment, size_t size, uintptr_t site) {
  if (alignment > BLOCK_ALIGNMENT) {
    if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX)
      return failed(ENOMEM);
    if (checked_is_on())
      return malloc_checked(size, alignment, site);
    unsigned cls = class_aligned(size, alignment);
    if (cls == 0)
      return aligned_large(max_size(size, 1), alignment, site);
    size = class_bytes(cls);
  }
  return malloc_from(size, site);
}

/* Tells whether a new block is known to be zero. */
static bool is_clear(const void *block) {
  if (!checked_is_on())
    return false;
  uint32_t entry = map_entry(block);
  return entry_is_checked(entry) ? checked.is_zeroed : entry == ENTRY_LARGE; /* large_or_packed cleared it */
}

void *hak_calloc(size_t count, size_t size) {
  size_t bytes;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX))
    return failed(ENOMEM);
  if (bytes <= HAK_SMALL_MAX) {
    void *block = hak_malloc_ready(bytes);
    if (LIKELY(block != NULL)) {
      HAK_OWNER_STEPPED();
      return memset(block, 0, bytes);
    }
    block = malloc_slow_from(bytes, CALL_SITE);
    return block == NULL || is_clear(block) ? block : memset(block, 0, bytes);
  }
  size_t dirty = SIZE_MAX;
  void *block = checked_is_on() ? NULL : stashed_block(bytes, BLOCK_ALIGNMENT, CALL_SITE);
  if (block == NULL)
    block = block_or_null(bytes, BLOCK_ALIGNMENT, 0, CALL_SITE, &dirty);
  if (block != NULL && dirty > 0)
    large_clear(block, min_size(dirty, bytes));
  return block;
}
