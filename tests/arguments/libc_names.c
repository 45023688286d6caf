/* The older names: valloc, pvalloc, cfree's kin and their overflow cases. Drop-in only. */
#include "../heap_api.h"

int main(int argc, char **argv) {
  test_begin(argc, argv);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t size = 0; size < 300000; size = size * 2 + 1) {
    char *block = valloc(size);
    CHECK(block && (uintptr_t)block % page == 0 && malloc_usable_size(block) >= size);
    free(block);
#ifdef __GLIBC__
    block = pvalloc(size);
    CHECK(block && (uintptr_t)block % page == 0);
    CHECK(malloc_usable_size(block) >= (size + page - 1) / page * page);
    if (size)
      memset(block, 1, (size + page - 1) / page * page);
    free(block);
#endif
  }
#ifdef __GLIBC__
  static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4094, SIZE_MAX - 4095, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    errno = 0;
    CHECK(pvalloc(test_opaque_size(sizes[i])) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(valloc(test_opaque_size(sizes[i])) == NULL && errno == ENOMEM);
  }
#endif
}
