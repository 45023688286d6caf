/* plugin.c: a shared object that allocates in its constructor, destructor and functions. */
#include <stdlib.h>
#include <string.h>

static char *kept;

__attribute__((constructor)) static void plugin_open(void) {
  kept = malloc(1234);
  if (kept)
    memset(kept, 7, 1234);
}

__attribute__((destructor)) static void plugin_close(void) {
  if (!kept || kept[1233] != 7)
    abort();
  free(kept);
}

__attribute__((visibility("default"))) void *plugin_make(size_t size) { return malloc(size); }

__attribute__((visibility("default"))) void plugin_free(void *block) { free(block); }

__attribute__((visibility("default"))) void *plugin_resize(void *block, size_t size) { return realloc(block, size); }

/* The copy comes from inside libc, and is freed here: both must mean the same heap. */
__attribute__((visibility("default"))) int plugin_copies(void) {
  for (int i = 0; i < 100; i++) {
    char *copy = strdup("a text that libc copies for the plugin");
    if (!copy || strcmp(copy, "a text that libc copies for the plugin") != 0)
      return 0;
    free(copy);
  }
  return 1;
}
