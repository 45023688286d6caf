/* libc's names for statistics. */
#include "base/words.h"
#include "stats/stats.h"
#include "stats/summary.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#ifdef __GLIBC__
EXPORT struct mallinfo2 mallinfo2(void) {
  struct hak_stats s;
  hak_stats_get(&s);
  size_t slab_bytes = s.heap_bytes - min_size(s.heap_bytes, s.large_bytes) + s.extent_free_bytes;
  size_t slab_live = s.live_bytes - min_size(s.live_bytes, s.large_bytes);
  return (struct mallinfo2){
      .arena = slab_bytes,
      .hblks = s.large_count,
      .hblkhd = s.large_bytes,
      .uordblks = slab_live,
      .fordblks = slab_bytes - min_size(slab_bytes, slab_live),
      .fsmblks = s.bin_bytes,
      .keepcost = s.extent_free_bytes + s.large_cached_bytes,
  };
}
#endif

EXPORT void malloc_stats(void) { stats_report(2, STATS_TEXT); }

static void print_fields(FILE *stream, const struct stats_field *fields, size_t count, const void *stats) {
  for (size_t i = 0; i < count; i++)
    fprintf(stream, "<hakmem name=\"%s\" value=\"%lu\"/>\n", fields[i].name, ((const uint64_t *)stats)[i]);
}

static void print_classes(FILE *stream) {
  struct hak_class_stats classes[HAK_STATS_CLASSES];
  size_t count = hak_stats_classes_get(classes, HAK_STATS_CLASSES);
  for (size_t i = 0; i < count; i++) {
    fprintf(stream, "<class");
    for (size_t j = 0; j < STATS_CLASS_FIELDS; j++)
      fprintf(stream, " %s=\"%lu\"", stats_class_fields[j].name, ((const uint64_t *)&classes[i])[j]);
    fprintf(stream, "/>\n");
  }
}

/* Writes XML in the form of glibc's: totals first, then every number of docs/stats.md by name. No lock is held, because
 * the stream may allocate. */
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
  print_fields(stream, stats_fields, STATS_FIELDS, &s);
  print_fields(stream, stats_process_fields, STATS_PROCESS_FIELDS, &process);
  print_classes(stream);
  return fprintf(stream, "</malloc>\n") < 0 ? -1 : 0;
}
