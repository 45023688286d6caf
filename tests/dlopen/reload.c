/* A plugin that allocates is opened, used and closed many times, by several threads, and with
 * RTLD_DEEPBIND, which makes it prefer libc's own symbols; blocks cross both ways. argv[1] is the plugin. */
#include <dlfcn.h>

#include "../heap_api.h"
#include "../threads.h"

static const char *plugin_path;

static void *function(void *plugin, const char *name) {
  void *address = dlsym(plugin, name);
  CHECK_SAY(address != NULL, "%s", name);
  return address;
}

static void plugin_use(int flags, int blocks_cross) {
  void *plugin = dlopen(plugin_path, RTLD_NOW | flags);
  CHECK_SAY(plugin != NULL, "%s", dlerror());
  void *(*make)(size_t) = (void *(*)(size_t))function(plugin, "plugin_make");
  void (*release)(void *) = (void (*)(void *))function(plugin, "plugin_free");
  void *(*resize)(void *, size_t) = (void *(*)(void *, size_t))function(plugin, "plugin_resize");
  int (*copies)(void) = (int (*)(void))function(plugin, "plugin_copies");
  CHECK(copies());
  for (size_t size = 1; size < 2000000; size = size * 3 + 1) {
    char *block = CHECK_GOT(make(size));
    block[size - 1] = 5;
    block = resize(block, size + 1000);
    CHECK(block != NULL && block[size - 1] == 5);
    release(block);
    if (!blocks_cross)
      continue;
    t_free(make(size));
    release(t_malloc(size));
    block = CHECK_GOT(t_malloc(size));
    block[0] = 9;
    block = resize(block, size * 2);
    CHECK(block != NULL && block[0] == 9);
    t_free(block);
  }
  CHECK(dlclose(plugin) == 0);
}

static void *worker(void *argument) {
  for (long n = (intptr_t)argument; n > 0; n--)
    plugin_use(RTLD_LOCAL, 1);
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  plugin_path = argv[1];
  test_begin(argc, argv);
  for (long n = test_rounds(50, 20); n > 0; n--) {
    plugin_use(RTLD_LOCAL, 1);
    plugin_use(RTLD_GLOBAL, 1);
#ifdef RTLD_DEEPBIND
    plugin_use(RTLD_LOCAL | RTLD_DEEPBIND, 0);
#endif
  }
  test_threads_run(3, worker, (void *)(intptr_t)test_rounds(30, 20), 0);
  /* Left open: its destructor frees at exit. */
  CHECK(dlopen(plugin_path, RTLD_NOW) != NULL);
}
