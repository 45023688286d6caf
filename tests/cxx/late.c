/* A C program without libstdc++ opens a C++ plugin: new works there, the handler is called, bad_alloc is
 * thrown. argv[1] is the plugin. */
#include <dlfcn.h>

#include "../heap_api.h"

int main(int argc, char **argv) {
  CHECK(argc > 1);
  test_begin(argc, argv);
  CHECK_SAY(dlsym(RTLD_DEFAULT, "_ZSt15get_new_handlerv") == NULL, "libstdc++ is already here");
  for (int flags = 0; flags < 2; flags++) {
    void *plugin = dlopen(argv[1], RTLD_NOW | (flags ? RTLD_GLOBAL : RTLD_LOCAL));
    CHECK_SAY(plugin != NULL, "%s", dlerror());
    int (*work)(size_t) = (int (*)(size_t))dlsym(plugin, "late_work");
    CHECK(work);
    if (flags) {
      int result = work((size_t)PTRDIFF_MAX);
      CHECK_SAY(result == 0, "late_work: %d", result);
    }
  }
}
