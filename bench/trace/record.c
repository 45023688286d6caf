/* record.c: the malloc family. Each function calls the next allocator's, found behind this library in the order of the
 * loader, and has the call recorded.
 *
 * Blocks that are wanted before the next allocator is known (dlsym itself may ask for one) come from a small array and
 * are never given back. */
#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { EARLY_BYTES = 64 << 10, EARLY_HEAD = 16 };

_Thread_local struct record_thread record_self;

static struct {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void (*free)(void *);
  void *(*aligned_alloc)(size_t, size_t);
  void *(*memalign)(size_t, size_t);
  int (*posix_memalign)(void **, size_t, size_t);
  void *(*valloc)(size_t);
  void *(*pvalloc)(size_t);
  size_t (*usable_size)(void *);
} next;
static atomic_bool is_found;
static _Atomic uint32_t finder; /* 1: a thread is looking for `next` */

static _Alignas(EARLY_HEAD) char early[EARLY_BYTES]; /* each block has its size EARLY_HEAD bytes before it */
static _Atomic size_t early_used;

static bool is_early(const void *block) {
  return (const char *)block >= early && (const char *)block < early + EARLY_BYTES;
}
static size_t early_size(const void *block) { return *(const size_t *)((const char *)block - EARLY_HEAD); }

static void *early_take(size_t size) {
  if (size > EARLY_BYTES)
    return NULL;
  size_t bytes = EARLY_HEAD + (size + EARLY_HEAD - 1) / EARLY_HEAD * EARLY_HEAD;
  size_t at = atomic_fetch_add(&early_used, bytes);
  if (at > EARLY_BYTES || bytes > EARLY_BYTES - at)
    return NULL;
  *(size_t *)(early + at) = size;
  return early + at + EARLY_HEAD;
}

static void *find(const char *name) { return dlsym(RTLD_NEXT, name); }

/* True when `next` is there; false inside the search. Others wait for it. */
__attribute__((noinline, cold)) static bool next_find(void) {
  if (record_self.depth)
    return atomic_load(&is_found);
  uint32_t nobody = 0;
  if (!atomic_compare_exchange_strong(&finder, &nobody, 1)) {
    while (!atomic_load(&is_found))
      usleep(100);
    return true;
  }
  record_self.depth++;
  *(void **)&next.calloc = find("calloc");
  *(void **)&next.realloc = find("realloc");
  *(void **)&next.free = find("free");
  *(void **)&next.aligned_alloc = find("aligned_alloc");
  *(void **)&next.memalign = find("memalign");
  *(void **)&next.posix_memalign = find("posix_memalign");
  *(void **)&next.valloc = find("valloc");
  *(void **)&next.pvalloc = find("pvalloc");
  *(void **)&next.usable_size = find("malloc_usable_size");
  *(void **)&next.malloc = find("malloc");
  record_self.depth--;
  if (!next.malloc || !next.calloc || !next.realloc || !next.free) {
    record_say("there is no", " malloc behind this library, ", 0, " found");
    abort();
  }
  atomic_store(&is_found, true);
  return true;
}

static inline bool next_is_there(void) {
  return !RECORD_UNLIKELY(!atomic_load_explicit(&is_found, memory_order_acquire)) || next_find();
}

/* Around a call of the next allocator. */
#define NEXT(call) (record_self.depth++, call)
#define NEXT_DONE() ((void)record_self.depth--)
#define CALLER __builtin_return_address(0)

static inline void *gave(enum trace_event_kind kind, void *block, size_t size, size_t alignment, const void *site) {
  NEXT_DONE();
  if (block && record_wanted())
    record_gave(kind, block, size, alignment, site);
  return block;
}

RECORD_EXPORT void *malloc(size_t size) {
  if (!next_is_there())
    return early_take(size);
  return gave(TRACE_MALLOC, NEXT(next.malloc(size)), size, 0, CALLER);
}

RECORD_EXPORT void *calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  if (!next_is_there())
    return early_take(bytes);
  return gave(TRACE_CALLOC, NEXT(next.calloc(count, size)), bytes, 0, CALLER);
}

RECORD_EXPORT void free(void *block) {
  if (!block || is_early(block))
    return;
  if (record_wanted())
    record_took(TRACE_FREE, block);
  record_free_next(block);
}

RECORD_EXPORT void cfree(void *block) { free(block); }

void record_free_next(void *block) {
  if (!next_is_there())
    return;
  NEXT(next.free(block));
  NEXT_DONE();
}

static void *realloc_early(void *block, size_t size, const void *site) {
  void *other = next_is_there() ? gave(TRACE_MALLOC, NEXT(next.malloc(size)), size, 0, site) : early_take(size);
  if (other)
    memcpy(other, block, size < early_size(block) ? size : early_size(block));
  return other;
}

/* The old block is taken before the call, as another thread may get its address during it. */
static inline void *realloc_from(void *block, size_t size, const void *site) {
  if (is_early(block))
    return realloc_early(block, size, site);
  if (!next_is_there())
    return block ? NULL : early_take(size);
  if (!block)
    return gave(TRACE_MALLOC, NEXT(next.realloc(block, size)), size, 0, site);
  bool is_recorded = record_wanted();
  if (is_recorded)
    record_took(TRACE_REALLOC_TOOK, block);
  void *other = NEXT(next.realloc(block, size));
  NEXT_DONE();
  if (is_recorded) {
    if (other)
      record_gave(TRACE_REALLOC_GAVE, other, size, 0, site);
    else
      record_not_taken(size ? TRACE_REALLOC_KEPT : TRACE_REALLOC_FREED);
  }
  return other;
}

RECORD_EXPORT void *realloc(void *block, size_t size) { return realloc_from(block, size, CALLER); }

RECORD_EXPORT void *reallocarray(void *block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc_from(block, bytes, CALLER);
}

static void *refuse(void) {
  errno = ENOMEM;
  return NULL;
}

RECORD_EXPORT void *aligned_alloc(size_t alignment, size_t size) {
  if (!next_is_there() || !next.aligned_alloc)
    return refuse();
  return gave(TRACE_ALIGNED, NEXT(next.aligned_alloc(alignment, size)), size, alignment, CALLER);
}

RECORD_EXPORT void *memalign(size_t alignment, size_t size) {
  if (!next_is_there() || !next.memalign)
    return refuse();
  return gave(TRACE_ALIGNED, NEXT(next.memalign(alignment, size)), size, alignment, CALLER);
}

void *record_memalign_next(size_t alignment, size_t size) {
  return next_is_there() && next.memalign
             ? gave(TRACE_ALIGNED, NEXT(next.memalign(alignment, size)), size, alignment, NULL)
             : NULL;
}

RECORD_EXPORT int posix_memalign(void **block, size_t alignment, size_t size) {
  if (!next_is_there() || !next.posix_memalign)
    return ENOMEM;
  int error = NEXT(next.posix_memalign(block, alignment, size));
  gave(TRACE_ALIGNED, error ? NULL : *block, size, alignment, CALLER);
  return error;
}

RECORD_EXPORT void *valloc(size_t size) {
  if (!next_is_there() || !next.valloc)
    return refuse();
  return gave(TRACE_ALIGNED, NEXT(next.valloc(size)), size, (size_t)getpagesize(), CALLER);
}

RECORD_EXPORT void *pvalloc(size_t size) {
  if (!next_is_there() || !next.pvalloc)
    return refuse();
  size_t page = (size_t)getpagesize();
  void *block = NEXT(next.pvalloc(size));
  return gave(TRACE_ALIGNED, block, (size + page - 1) / page * page, page, CALLER);
}

RECORD_EXPORT size_t malloc_usable_size(void *block) {
  if (!block || is_early(block))
    return block ? early_size(block) : 0;
  return next_is_there() && next.usable_size ? next.usable_size(block) : 0;
}
