/* jemalloc's allocation calls (mallocx and the others with flags). */
#include "jemalloc/arenas.h"
#include "jemalloc/jemalloc.h"

#include "base/size_class.h"
#include "budget/usage.h"
#include "checked/checked.h"
#include "large/guarded.h"

#include <errno.h>
#include <string.h>

static size_t alignment_of(int flags) { return (size_t)1 << (flags & 63); }

/* Sets *arena if the flags name one. */
static bool names_arena(int flags, unsigned *arena) {
  *arena = ((unsigned)flags >> 20) - 1;
  return (unsigned)flags >> 20 != 0;
}

static void *block_here(size_t size, size_t alignment) {
  return alignment <= BLOCK_ALIGNMENT ? hak_malloc(size) : hak_aligned_alloc(alignment, size);
}

/* A block of an arena that the flags name. */
static NOINLINE void *block_of_arena(unsigned arena, size_t size, size_t alignment) {
  hak_heap *heap = arena_heap(arena);
  if (heap != NULL)
    return hak_heap_aligned_alloc(heap, max_size(alignment, BLOCK_ALIGNMENT), size);
  unsigned before = arena_of_thread();
  if (before == arena)
    return block_here(size, alignment);
  void *block = NULL;
  int error = arena_enter(arena);
  if (error == 0) {
    block = block_here(size, alignment);
    arena_enter(before);
  } else {
    errno = error;
  }
  return block;
}

/* Zero means all usable bytes: rallocx with MALLOCX_ZERO clears only what is beyond them. */
static NOINLINE void *zeroed_block(size_t size, int flags) {
  unsigned arena;
  bool is_plain = !names_arena(flags, &arena) && alignment_of(flags) <= BLOCK_ALIGNMENT;
  void *block = is_plain ? hak_calloc(1, size) : mallocx(size, flags & ~MALLOCX_ZERO);
  size_t known = is_plain ? size : 0, bytes = hak_usable_size(block);
  if (block != NULL && known < bytes)
    memset((char *)block + known, 0, bytes - known);
  return block;
}

/* The calls at the ends are jumps, so hakmem sees the program's call site. */
EXPORT void *mallocx(size_t size, int flags) {
  unsigned arena;
  if (UNLIKELY(flags & MALLOCX_ZERO))
    return zeroed_block(size, flags);
  if (UNLIKELY(names_arena(flags, &arena)))
    return block_of_arena(arena, size, alignment_of(flags));
  return block_here(size, alignment_of(flags));
}

EXPORT void *rallocx(void *block, size_t size, int flags) {
  size_t before = hak_usable_size(block), alignment = alignment_of(flags);
  void *moved = block;
  bool stays = size <= before && size >= before / 2 && ((uintptr_t)block & (alignment - 1)) == 0;
  if (alignment <= BLOCK_ALIGNMENT) {
    moved = hak_realloc(block, max_size(size, 1));
  } else if (!stays) {
    moved = mallocx(size, flags & ~MALLOCX_ZERO);
    if (moved != NULL) {
      memcpy(moved, block, min_size(before, hak_usable_size(moved))); /* MALLOCX_ZERO clears what is beyond */
      hak_free(block);
    }
  }
  size_t after = flags & MALLOCX_ZERO ? hak_usable_size(moved) : 0;
  if (moved != NULL && before < after)
    memset((char *)moved + before, 0, after - before);
  return moved;
}

/* Blocks are not resized without moving: the present size is the answer. */
EXPORT size_t xallocx(void *block, size_t size, size_t extra, int flags) {
  (void)size, (void)extra, (void)flags;
  return hak_usable_size(block);
}

EXPORT size_t sallocx(const void *block, int flags) {
  (void)flags;
  return hak_usable_size(block);
}

EXPORT void dallocx(void *block, int flags) {
  (void)flags;
  hak_free(block);
}

EXPORT void sdallocx(void *block, size_t size, int flags) {
  (void)size, (void)flags;
  hak_free(block);
}

/* Programs may use as many bytes of what mallocx gives. Where memory is short, blocks are not rounded up to classes, nor
 * objects to units where the program's own limit is near. */
EXPORT size_t nallocx(size_t size, int flags) {
  size_t alignment = alignment_of(flags);
  if ((UNLIKELY(usage_is_short()) || usage_own_limit_is_near()) && size <= PTRDIFF_MAX)
    return max_size(size, 1);
  if (alignment <= BLOCK_ALIGNMENT || checked_is_on() || size > PTRDIFF_MAX)
    return hak_good_size(size);
  unsigned cls = class_aligned(size, alignment);
  if (cls != 0)
    return class_bytes(cls);
  if (size > HAK_SMALL_MAX)
    return hak_good_size(size);
  return guarded_is_on ? max_size(size, 1) : UNIT_BYTES; /* a large object, of one unit */
}
