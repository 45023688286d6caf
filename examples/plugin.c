/* A plugin that is unloaded with all its memory.
 *
 * The plugin calls malloc as it likes, and leaks. The host makes a heap for it, and makes that the thread's default
 * around each call into the plugin. When the plugin goes, so does the heap.
 *
 *   cc plugin.c -lhakmem && ./a.out            (here the plugin is a function; a real one comes by dlopen) */
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the plugin --- */

static char *history[1000];
static unsigned calls;

static size_t plugin_call(const char *input) {
  history[calls % 1000] = strdup(input); /* never freed */
  calls++;
  return strlen(input);
}

/* --- the host --- */

static size_t call_in_heap(hak_heap *heap, const char *input) {
  hak_heap *before;
  if (hak_heap_set_default(heap, &before) != 0)
    return 0;
  size_t result = plugin_call(input);
  hak_heap_set_default(before, NULL);
  return result;
}

int main(void) {
  for (int load = 0; load < 100; load++) {
    hak_heap *heap = hak_heap_new((size_t)16 << 20);
    struct hak_heap_stats stats;
    if (heap == NULL)
      return 1;
    for (int i = 0; i < 1000; i++)
      if (call_in_heap(heap, "what the host asks of the plugin") != 32)
        return 1;
    hak_heap_stats_get(heap, &stats);
    if (stats.live_bytes < 33000)
      return 1;
    if (load == 0)
      printf("the plugin leaks %zu bytes\n", stats.live_bytes);
    if (hak_heap_destroy(heap) != 0)
      return 1;
  }
  return 0;
}
