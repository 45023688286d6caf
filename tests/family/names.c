/* Every name of the malloc family and every form of operator new and delete is the library's own: found
 * with dlsym, in the same object as malloc, and it works on blocks of the others. */
#include <dlfcn.h>

#include "../check.h"
#include "../heap_api.h"

static const char *const c_names[] = {"malloc",          "calloc",        "realloc",        "free",
                                      "cfree",           "reallocarray",  "aligned_alloc",  "memalign",
                                      "posix_memalign",  "valloc",        "pvalloc",        "malloc_usable_size",
                                      "malloc_trim",     "mallopt",       "mallinfo",       "mallinfo2",
                                      "malloc_info",     "malloc_stats",  "free_sized",     "free_aligned_sized",
                                      "__libc_malloc",   "__libc_calloc", "__libc_realloc", "__libc_free",
                                      "__libc_memalign", "__libc_valloc", "__libc_pvalloc"};

/* new, new[]: plain, nothrow, aligned, aligned nothrow. delete, delete[]: plain, nothrow, sized, aligned,
 * sized aligned, aligned nothrow. m is size_t on 64-bit machines. */
static const char *const cxx_names[] = {"_Znwm",
                                        "_Znam",
                                        "_ZnwmRKSt9nothrow_t",
                                        "_ZnamRKSt9nothrow_t",
                                        "_ZnwmSt11align_val_t",
                                        "_ZnamSt11align_val_t",
                                        "_ZnwmSt11align_val_tRKSt9nothrow_t",
                                        "_ZnamSt11align_val_tRKSt9nothrow_t",
                                        "_ZdlPv",
                                        "_ZdaPv",
                                        "_ZdlPvRKSt9nothrow_t",
                                        "_ZdaPvRKSt9nothrow_t",
                                        "_ZdlPvm",
                                        "_ZdaPvm",
                                        "_ZdlPvSt11align_val_t",
                                        "_ZdaPvSt11align_val_t",
                                        "_ZdlPvmSt11align_val_t",
                                        "_ZdaPvmSt11align_val_t",
                                        "_ZdlPvSt11align_val_tRKSt9nothrow_t",
                                        "_ZdaPvSt11align_val_tRKSt9nothrow_t"};

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
  if (!getenv("TEST_EXPECT_HAKMEM"))
    test_skip("the names are looked for in hakmem");
  test_begin(argc, argv);
  Dl_info info;
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) != 0);
  home = info.dli_fbase;
  own("hak_malloc");
  for (size_t i = 0; i < sizeof c_names / sizeof *c_names; i++)
    own(c_names[i]);
  for (size_t i = 0; i < sizeof cxx_names / sizeof *cxx_names; i++)
    own(cxx_names[i]);
  work_together();
}
