/* libc's names. What glibc's malloc.o defines is all here, so that a static link takes none of it. */
#include "api/alloc.h"

#include "base/words.h"
#include "os/os.h"
#include "stats/report.h"
#include "stats/stats.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
/* `name` is another name of `function`, which is defined in this file. */
#define SAME_AS(function) EXPORT __attribute__((alias(#function)))

/* For os/module.h. */
const char os_malloc_is_ours[] = "";

/* Tools like valgrind put functions of their own in the place of malloc, free, realloc and memalign, but know no
 * reallocarray, pvalloc or free_sized: these call the former by their names, and those are not inlined. */
EXPORT void *malloc(size_t size) { return hak_malloc_inlined(size); }
EXPORT NOINLINE void free(void *block) { hak_free_inlined(block); }
EXPORT void *calloc(size_t count, size_t size) { return hak_calloc(count, size); }
EXPORT NOINLINE void *realloc(void *block, size_t size) { return hak_realloc(block, size); }
EXPORT void *reallocarray(void *block, size_t count, size_t size) {
  size_t bytes;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &bytes))) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(block, bytes);
}
EXPORT void *aligned_alloc(size_t alignment, size_t size) { return hak_aligned_alloc(alignment, size); }
EXPORT int posix_memalign(void **out, size_t alignment, size_t size) {
  return hak_posix_memalign(out, alignment, size);
}
EXPORT size_t malloc_usable_size(void *block) { return hak_usable_size(block); }

/* memalign rounds its alignment up to a power of two, as glibc's does. */
EXPORT NOINLINE void *memalign(size_t alignment, size_t size) {
  if (alignment > (size_t)PTRDIFF_MAX + 1) {
    errno = EINVAL;
    return NULL;
  }
  size_t power = BLOCK_ALIGNMENT;
  while (power < alignment)
    power *= 2;
  return aligned_block(power, size, CALL_SITE);
}

EXPORT void *valloc(size_t size) { return aligned_block(os_page_bytes(), size, CALL_SITE); }

EXPORT void *pvalloc(size_t size) {
  if (size > PTRDIFF_MAX - os_page_bytes()) {
    errno = ENOMEM;
    return NULL;
  }
  return memalign(os_page_bytes(), round_up(max_size(size, 1), os_page_bytes()));
}

/* C23. The sizes must be those of the allocation; they are not needed, so they are not trusted. */
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
/* hakmem tunes itself; glibc's knobs are accepted where they change nothing a caller could rely on,
 * and refused (0) where the value is out of glibc's own bounds. */
EXPORT int mallopt(int parameter, int value) {
  switch (parameter) {
  case M_MXFAST:
    return value >= 0 && (size_t)value <= 80 * sizeof(size_t) / 4;
  case M_TRIM_THRESHOLD:
  case M_TOP_PAD:
  case M_MMAP_THRESHOLD:
  case M_MMAP_MAX:
  case M_CHECK_ACTION:
  case M_PERTURB:
  case M_ARENA_TEST:
  case M_ARENA_MAX:
    return 1;
  default:
    return 0;
  }
}

EXPORT struct mallinfo2 mallinfo2(void) {
  struct hak_stats s;
  hak_stats_get(&s);
  size_t slab_bytes = s.heap_bytes - min_size(s.heap_bytes, s.large_bytes) + s.unit_free_bytes;
  size_t slab_live = s.live_bytes - min_size(s.live_bytes, s.large_bytes);
  return (struct mallinfo2){
      .arena = slab_bytes,
      .hblks = s.large_count,
      .hblkhd = s.large_bytes,
      .uordblks = slab_live,
      .fordblks = slab_bytes - min_size(slab_bytes, slab_live),
      .fsmblks = s.bin_bytes,
      .keepcost = s.unit_free_bytes + s.large_cached_bytes,
  };
}

static int int_clamp(size_t value) { return value > INT_MAX ? INT_MAX : (int)value; }

/* The old form with int fields: what does not fit reads as INT_MAX. */
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

EXPORT void malloc_stats(void) { stats_report(2, STATS_TEXT); }

static void print_fields(FILE *stream, const struct stats_field *fields, size_t count, const void *stats) {
  for (size_t i = 0; i < count; i++)
    fprintf(stream, "<hakmem name=\"%s\" value=\"%llu\"/>\n", fields[i].name,
            (unsigned long long)stats_value(stats, &fields[i]));
}

static void print_classes(FILE *stream) {
  struct hak_class_stats classes[HAK_STATS_CLASSES];
  size_t count = hak_stats_classes_get(classes, HAK_STATS_CLASSES);
  for (size_t i = 0; i < count; i++) {
    fprintf(stream, "<class");
    for (size_t j = 0; j < stats_class_field_count; j++)
      fprintf(stream, " %s=\"%llu\"", stats_class_fields[j].name,
              (unsigned long long)stats_value(&classes[i], &stats_class_fields[j]));
    fprintf(stream, "/>\n");
  }
}

/* XML in the shape of glibc's: totals first, then every number of docs/stats.md by name. The stream
 * may allocate; nothing is locked here. */
EXPORT int malloc_info(int options, FILE *stream) {
  if (options != 0) {
    errno = EINVAL;
    return -1;
  }
  struct hak_stats s;
  hak_stats_get(&s);
  fprintf(stream, "<malloc version=\"1\" allocator=\"hakmem\">\n");
  fprintf(stream, "<total type=\"live\" size=\"%zu\"/>\n", s.live_bytes);
  fprintf(stream, "<total type=\"free\" size=\"%zu\"/>\n", s.heap_bytes - min_size(s.heap_bytes, s.live_bytes));
  fprintf(stream, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", s.large_count, s.large_bytes);
  fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n<system type=\"max\" size=\"%zu\"/>\n", s.heap_bytes,
          s.heap_peak_bytes);
  struct hak_process_stats process;
  hak_process_stats_get(&process);
  print_fields(stream, stats_fields, stats_field_count, &s);
  print_fields(stream, stats_process_fields, stats_process_field_count, &process);
  print_classes(stream);
  return fprintf(stream, "</malloc>\n") < 0 ? -1 : 0;
}
