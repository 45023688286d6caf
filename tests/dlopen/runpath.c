/* A library found through the caller's own search path (RUNPATH) is found also when the allocator stands
 * between the program and dlopen. argv[1] is a bare file name, not on any system path. */
#include <dlfcn.h>

#include "../check.h"

int main(int argc, char **argv) {
  CHECK(argc > 1);
  test_begin(argc, argv);
  void *plugin = dlopen(argv[1], RTLD_NOW);
  CHECK_SAY(plugin != NULL, "%s", dlerror());
  int result = dlclose(plugin);
  CHECK(result == 0);
  CHECK(dlopen("no-such-library.so", RTLD_NOW) == NULL);
  CHECK(dlerror() != NULL);
}
