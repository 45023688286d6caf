/* alloc.h: the functions that the names of the family (hak_*, libc's, C++'s) share. C and C++. */
#pragma once

#ifndef HAK_NO_INLINE_NAMES
#define HAK_NO_INLINE_NAMES
#endif
#include "hakmem/inline.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a block of `size` bytes at a multiple of `alignment`, a power of two. On failure NULL and ENOMEM. */
HAK_HIDDEN void *aligned_block(size_t alignment, size_t size, uintptr_t site);

/* Moves a block's content into a block of another size. On failure NULL and ENOMEM; then the block is unchanged. */
HAK_HIDDEN void *resize_by_copy(void *block, size_t old_bytes, size_t size, uintptr_t site);

/* Does periodic work. Call at the end of a slow path, without a lock. housekeep_of_small: of one for a small block of a
 * class; `own` is the heap whose bin was changed. The lock of its pool is held, and given. */
struct heap;
HAK_HIDDEN void housekeep(void);
HAK_HIDDEN void housekeep_of_small(struct heap *own, unsigned cls);

/* Tries once to allocate a block of class cls, or a large object if cls is 0, from the present heap of the calling
 * thread, which is in a slow path. *dirty: as large_alloc, for a large object. */
HAK_HIDDEN void *block_attempt(size_t size, size_t alignment, unsigned cls, uintptr_t site, size_t *dirty);

/* A block of a larger class may stand in for one of a class that gets no slab, if it is at most this long. */
#define SUBSTITUTE_BYTES_MAX(bytes) (2 * (bytes) + 256)

/* Memory is out for a request of so many bytes: gives back all free memory and address space. In a slow path. */
HAK_HIDDEN void memory_release(size_t bytes);

/* Frees a large object or a packed block. In a slow path. */
HAK_HIDDEN void free_large(void *block, uint32_t entry);

/* Frees a small block straight into its slab. In a slow path. */
HAK_HIDDEN void small_deliver(void *block, uint32_t entry);

/* A free that was refused a slow path (heap/slow_path.h, W3): a later one frees the block of a slab, the packed block
 * or the large object. deferred_waits: there are some. deferred_finish does them, and waits for other threads that do
 * some; false: one of them is not done after a second. In a slow path, without a lock. */
HAK_HIDDEN void free_later(void *block, uint32_t entry);
HAK_HIDDEN bool deferred_waits(void);
HAK_HIDDEN bool deferred_finish(void);

/* How often a request is tried: at first, after memory_release, and after the program's callback. may_try_again: call
 * before each attempt but the first, in a slow path. pool: the hak_heap's, NULL: an ordinary heap. The callback runs
 * outside the slow path, because it frees. *is_begun: the slow path was entered again. */
#define ATTEMPTS_MAX 3u
struct pool;
HAK_HIDDEN bool may_try_again(unsigned attempt, struct pool *pool, size_t size, size_t alignment, bool *is_begun);

/* Allocates from a hak_heap, which is given by its pool, or from the calling thread's ordinary heap, whatever the
 * thread's default is. On failure NULL and ENOMEM. */
HAK_HIDDEN void *private_block(struct pool *pool, size_t size, uintptr_t site);
HAK_HIDDEN void *ordinary_block(size_t size, uintptr_t site);

/* The call site, in a function that the program called. */
#define CALL_SITE ((uintptr_t)__builtin_return_address(0))

/* malloc and free for callers inside the library. site: the program's call site; 0: that of the function that this is
 * inlined into. */
HAK_HIDDEN void *malloc_slow_from(size_t size, uintptr_t site);
HAK_HIDDEN void free_slow_from(void *block, uintptr_t site);
__attribute__((always_inline)) static inline void *malloc_from(size_t size, uintptr_t site) {
  void *block = hak_malloc_ready(size);
  if (HAK_UNLIKELY(block == NULL))
    return malloc_slow_from(size, site != 0 ? site : CALL_SITE);
  HAK_OWNER_STEPPED();
  return block;
}
__attribute__((always_inline)) static inline void free_from(void *block, uintptr_t site) {
  if (HAK_UNLIKELY(!hak_free_ready(block)))
    free_slow_from(block, site != 0 ? site : CALL_SITE);
}

/* Like hak_free_slow, for a caller that states the size of the block. Ends the program if it was allocated with quite
 * another size. */
HAK_HIDDEN __attribute__((nothrow)) void free_sized_slow(void *block, size_t size);

/* Ends the program if the address, where no block begins, lies in hakmem's memory. entry: its page-map entry. */
HAK_HIDDEN void fault_if_ours(const void *address, uint32_t entry);

/* What a call that fails returns. */
static inline void *failed(int error) {
  errno = error;
  return NULL;
}

/* Calls the program's limit callback, because a request of `size` bytes found no memory. True if there is one, it
 * returned 1, and the slow path, which is left during the call, was entered again (*is_begun). */
HAK_HIDDEN bool limit_callback_call(size_t size, bool *is_begun);

/* Call at program start, if malloc is hakmem's in the whole process: then a correct program has no pointer to free that
 * hakmem did not allocate (docs/decisions/0031). Until then such pointers are ignored. */
HAK_HIDDEN void foreign_malloc_is_ours(void);
/* Tells whether foreign_malloc_is_ours was called. */
HAK_HIDDEN bool malloc_is_ours_for_all(void);

/* Reads options from the environment and sets up fork handlers. The library's constructor calls it once. */
HAK_HIDDEN void hak_start(void);

#ifdef __cplusplus
}
#endif
