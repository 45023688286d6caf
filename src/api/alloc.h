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

/* Block of `size` bytes at a multiple of `alignment`, a power of two. NULL and ENOMEM. */
HAK_HIDDEN void *aligned_block(size_t alignment, size_t size);

/* Asks the program to give something up, because a request of `size` bytes found no memory. True if there
 * is a callback and it says that it did. */
HAK_HIDDEN bool limit_callback_call(size_t size);
HAK_HIDDEN void limit_callback_lock_for_fork(void);
HAK_HIDDEN void limit_callback_unlock_after_fork(bool child);

/* Options from the environment, fork handlers, the exit summary: once, by the library's constructor. */
HAK_HIDDEN void hak_start(void);

/* To be called when options about the summary were set: keeps a descriptor for it, if one is wanted. */
HAK_HIDDEN void report_open(void);

#ifdef __cplusplus
}
#endif
#endif
