/* Names of the malloc family and forms of operator new and delete are the library's own: found with dlsym, in the same
 * object as malloc, and each works on blocks of the others. That none is missing: exports.py. */
#include <dlfcn.h>

#include "../heap_api.h"

static const void *home;

static void *own(const char *name) {
  Dl_info info;
  void *address = dlsym(RTLD_DEFAULT, name);
  CHECK_SAY(address != NULL, "%s is missing", name);
  CHECK(dladdr(address, &info) != 0);
  CHECK_SAY(info.dli_fbase == home, "%s comes from %s", name, info.dli_fname);
  return address;
}

/* Each way to allocate meets free, and malloc meets each way to free. */
static void work_together(void) {
  static const char *const makers[] = {"malloc",        "__libc_malloc",  "valloc", "pvalloc",
                                       "__libc_valloc", "__libc_pvalloc", "_Znwm",  "_Znam"};
  static const char *const takers[] = {"free", "cfree", "__libc_free", "_ZdlPv", "_ZdaPv"};
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    void *block = ((void *(*)(size_t))own(makers[i]))(1000);
    CHECK_SAY(block && malloc_usable_size(block) >= 1000, "%s", makers[i]);
    memset(block, 1, 1000);
    free(block);
  }
  for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
    ((void (*)(void *))own(takers[i]))(malloc(1000));
  ((void (*)(void *, size_t))own("free_sized"))(malloc(500), 500);
  ((void (*)(void *, size_t, size_t))own("free_aligned_sized"))(aligned_alloc(64, 640), 64, 640);
  ((void (*)(void *, size_t))own("_ZdlPvm"))(malloc(500), 500);
  ((void (*)(void *, size_t, size_t))own("_ZdlPvmSt11align_val_t"))(aligned_alloc(64, 640), 640, 64);
  char *zeroed = ((void *(*)(size_t, size_t))own("__libc_calloc"))(50, 20);
  for (int i = 0; i < 1000; i++)
    CHECK(zeroed[i] == 0);
  char *grown = ((void *(*)(void *, size_t))own("__libc_realloc"))(zeroed, 100000);
  CHECK(grown && grown[999] == 0);
  free(grown);
  void *aligned = ((void *(*)(size_t, size_t))own("__libc_memalign"))(4096, 100);
  CHECK(aligned && (uintptr_t)aligned % 4096 == 0);
  free(aligned);
  aligned = ((void *(*)(size_t, size_t))own("_ZnwmSt11align_val_t"))(100, 256);
  CHECK(aligned && (uintptr_t)aligned % 256 == 0);
  free(aligned);
}

int main(int argc, char **argv) {
  test_skip_if(!getenv("TEST_EXPECT_HAKMEM"), "the names are looked for in hakmem");
  test_begin(argc, argv);
  Dl_info info;
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0);
  home = info.dli_fbase;
  own("hak_malloc");
  work_together();
}
