/* alloc.h: what the names of the family (hak_*, libc's, C++'s) are made of. C and C++. */
#ifndef HAK_API_ALLOC_H
#define HAK_API_ALLOC_H

#ifndef HAK_NO_INLINE_NAMES
#define HAK_NO_INLINE_NAMES
#endif
#include "hakmem/inline.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Block of `size` bytes at a multiple of `alignment`, a power of two; site: where the program called from.
 * NULL and ENOMEM. */
HAK_HIDDEN void *aligned_block(size_t alignment, size_t size, uintptr_t site);

/* Moves a block's content into one of another size. NULL and ENOMEM; the block is as before then. */
HAK_HIDDEN void *resize_by_copy(void *block, size_t old_bytes, size_t size, uintptr_t site);

/* What is due now and then, at the end of a slow path, without a lock. */
HAK_HIDDEN void housekeep(void);

/* hak_malloc_slow for a caller that has more to do afterwards: site is where the program called it. */
HAK_HIDDEN void *malloc_slow_from(size_t size, uintptr_t site);

/* In a function that the program called: where from. */
#define CALL_SITE ((uintptr_t)__builtin_return_address(0))

/* Asks the program to give something up, because a request of `size` bytes found no memory. True if there
 * is a callback and it says that it did. The slow path is left for it; *is_begun: it was entered again. */
HAK_HIDDEN bool limit_callback_call(size_t size, bool *is_begun);

/* Options from the environment, fork handlers: once, by the library's constructor. */
HAK_HIDDEN void hak_start(void);

#ifdef __cplusplus
}
#endif
#endif
