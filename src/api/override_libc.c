/* libc's names. What glibc's malloc.o defines is all here and in observe/stats/override_stats.c, or, in a build without
 * observers, api/unobserved_libc.c: so a static link takes none of it. */
#include "api/alloc.h"

#include "base/words.h"
#include "os/caller.h"
#include "os/os.h"

#include <limits.h>
#include <malloc.h>
#include <string.h>

/* `name` is another name of `function`, which is defined in this file. */
#define SAME_AS(function) EXPORT __attribute__((alias(#function)))

/* For os/caller.h. */
const char os_malloc_is_ours[] = "";

/* Tools like valgrind replace malloc, free, realloc and memalign, but do not know reallocarray, pvalloc and free_sized.
 * So the latter call the former by name, and the former are not inlined. */
EXPORT void *malloc(size_t size) { return hak_malloc_inlined(size); }
EXPORT NOINLINE void free(void *block) { hak_free_inlined(block); }
EXPORT void *calloc(size_t count, size_t size) { return hak_calloc(count, size); }
EXPORT NOINLINE void *realloc(void *block, size_t size) { return hak_realloc(block, size); }

/* A program, or a library in front of this one, may bring a malloc without reallocarray. Its blocks come here then. The
 * C library's calls the realloc that libraries find, so this one does, too. Where they do not find this one, malloc is
 * for private use. own: this one, which older headers of musl do not declare. */
typedef void *realloc_function(void *, size_t);
static COLD NOINLINE void *realloc_of_others(const void *own, void *block, size_t bytes) {
  static _Atomic(realloc_function *) known;
  realloc_function *resize = load_relaxed(&known);
  if (resize == NULL) {
    void *found = NULL;
    if (os_find_for_libraries("reallocarray") == own)
      found = os_find_for_libraries("realloc");
    resize = realloc;
    if (found != NULL)
      memcpy(&resize, &found, sizeof found);
    store_relaxed(&known, resize);
  }
  return resize(block, bytes);
}

EXPORT void *reallocarray(void *block, size_t count, size_t size) {
  size_t bytes;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes)))
    return failed(ENOMEM);
  return LIKELY(malloc_is_ours_for_all()) ? realloc(block, bytes)
                                          : realloc_of_others((void *)reallocarray, block, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) { return hak_aligned_alloc(alignment, size); }
EXPORT int posix_memalign(void **out, size_t alignment, size_t size) {
  return hak_posix_memalign(out, alignment, size);
}
EXPORT size_t malloc_usable_size(void *block) { return hak_usable_size(block); }

/* memalign rounds its alignment up to a power of two, as glibc's does. */
EXPORT NOINLINE void *memalign(size_t alignment, size_t size) {
  if (alignment > (size_t)PTRDIFF_MAX + 1)
    return failed(EINVAL);
  size_t power = BLOCK_ALIGNMENT;
  while (power < alignment)
    power *= 2;
  return aligned_block(power, size, CALL_SITE);
}

EXPORT void *valloc(size_t size) { return aligned_block(os_page_bytes(), size, CALL_SITE); }

EXPORT void *pvalloc(size_t size) {
  if (size > PTRDIFF_MAX - os_page_bytes())
    return failed(ENOMEM);
  return memalign(os_page_bytes(), round_up(max_size(size, 1), os_page_bytes()));
}

/* C23. The program must pass the sizes of the allocation. Only the slow path of C++'s delete looks at them. */
EXPORT void free_sized(void *block, size_t size) {
  (void)size;
  free(block);
}
EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size) {
  (void)alignment, (void)size;
  free(block);
}

#ifndef __clang__ /* the headers' attributes (leaf, nothrow, malloc) are on the targets; aliases need none */
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif
SAME_AS(free) void cfree(void *block);
SAME_AS(malloc) void *__libc_malloc(size_t size);
SAME_AS(calloc) void *__libc_calloc(size_t count, size_t size);
SAME_AS(realloc) void *__libc_realloc(void *block, size_t size);
SAME_AS(reallocarray) void *__libc_reallocarray(void *block, size_t count, size_t size);
SAME_AS(free) void __libc_free(void *block);
SAME_AS(memalign) void *__libc_memalign(size_t alignment, size_t size);
SAME_AS(valloc) void *__libc_valloc(size_t size);
SAME_AS(pvalloc) void *__libc_pvalloc(size_t size);
SAME_AS(posix_memalign) int __posix_memalign(void **out, size_t alignment, size_t size);
SAME_AS(free) void __libc_cfree(void *block);

EXPORT int malloc_trim(size_t pad) { return hak_trim(pad); }

#ifdef __GLIBC__
/* hakmem has no use for glibc's parameters. It accepts them (1), and refuses (0) values outside glibc's own bounds. */
EXPORT int mallopt(int parameter, int value) {
  if (parameter == M_MXFAST)
    return value >= 0 && (size_t)value <= 80 * sizeof(size_t) / 4;
  return parameter >= M_ARENA_MAX && parameter <= M_TRIM_THRESHOLD; /* the others: -8 to -1 */
}

static int int_clamp(size_t value) { return value > INT_MAX ? INT_MAX : (int)value; }

/* The old form with int fields. A value that does not fit is INT_MAX. */
EXPORT struct mallinfo mallinfo(void) {
  struct mallinfo2 m = mallinfo2();
  return (struct mallinfo){
      .arena = int_clamp(m.arena),
      .hblks = int_clamp(m.hblks),
      .hblkhd = int_clamp(m.hblkhd),
      .fsmblks = int_clamp(m.fsmblks),
      .uordblks = int_clamp(m.uordblks),
      .fordblks = int_clamp(m.fordblks),
      .keepcost = int_clamp(m.keepcost),
  };
}
#endif
