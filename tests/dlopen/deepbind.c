/* A plugin opened with RTLD_DEEPBIND calls libc's malloc, the program hakmem's: a block that crosses is
 * foreign on the other side. Foreign blocks given to our free are ignored and reported as 0 bytes.
 * argv[1] is the plugin. */
#include <dlfcn.h>

#include "../heap_api.h"

int main(int argc, char **argv) {
  CHECK(argc > 1);
  test_begin(argc, argv);
#ifndef RTLD_DEEPBIND
  test_skip("no RTLD_DEEPBIND in this libc");
#else
  void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
  CHECK_SAY(plugin != NULL, "%s", dlerror());
  void *(*make)(size_t) = (void *(*)(size_t))dlsym(plugin, "plugin_make");
  int (*copies)(void) = (int (*)(void))dlsym(plugin, "plugin_copies");
  CHECK(make && copies);
  for (int i = 0; i < 1000; i++) {
    size_t size = (size_t)i * 331 + 1;
    unsigned char *block = CHECK_GOT(make(size));
    block[size - 1] = 0xa5;
    if (getenv("TEST_EXPECT_HAKMEM")) {
      size_t usable = t_usable_size(block); /* 0: libc's, or enough: the plugin's calls came to hakmem */
      CHECK(usable == 0 || usable >= size);
      if (usable == 0) {
        t_free(block);
        CHECK(block[size - 1] == 0xa5);
        continue;
      }
    }
    t_free(block);
  }
  CHECK(copies());
  CHECK(dlclose(plugin) == 0);
#endif
}
