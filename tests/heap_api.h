/* heap_api.h: the heap under test. With TEST_CORE the hak_* functions of hakmem_core, else the
 * program's malloc family, whoever serves it. Tests written against t_* run both ways. */
#pragma once

#include <malloc.h>

#include "check.h"

#ifdef TEST_CORE
#include <hakmem/hakmem.h>
#define t_malloc hak_malloc
#define t_calloc hak_calloc
#define t_realloc hak_realloc
#define t_reallocarray hak_reallocarray
#define t_free hak_free
#define t_aligned_alloc hak_aligned_alloc
#define t_memalign hak_aligned_alloc
#define t_posix_memalign hak_posix_memalign
#define t_usable_size hak_usable_size
#define t_trim hak_trim
#else
#define t_malloc malloc
#define t_calloc calloc
#define t_realloc realloc
#define t_reallocarray reallocarray
#define t_free free
#define t_aligned_alloc aligned_alloc
#define t_memalign memalign
#define t_posix_memalign posix_memalign
#define t_usable_size malloc_usable_size
#ifdef __GLIBC__
#define t_trim malloc_trim
#elif defined(TEST_STATIC)
int hak_trim(size_t keep_bytes);
#define t_trim hak_trim
#else
static inline int t_trim(size_t keep_bytes) { return 0; }
#endif
#endif

/* An array of blocks of one size, all of whose bytes are this one. */
static inline void t_fill(void *blocks, size_t count, size_t size, int byte) {
  for (size_t i = 0; i < count; i++)
    ((void **)blocks)[i] = memset(CHECK_GOT(t_malloc(size)), byte, size);
}

static inline void t_free_all(void *blocks, size_t count) {
  for (size_t i = 0; i < count; i++)
    t_free(((void **)blocks)[i]);
}
