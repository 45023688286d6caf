/* Sizes that cannot be served: NULL and ENOMEM, the old block untouched; sizes at the edges of classes. */
#include "../heap_api.h"

static void refused(void *block) {
  CHECK(block == NULL);
  CHECK_SAY(errno == ENOMEM, "errno %d", errno);
  errno = 0;
}

static void too_big(size_t size) {
  size = test_opaque_size(size);
  errno = 0;
  refused(t_malloc(size));
  refused(t_calloc(1, size));
  refused(t_calloc(size, 1));
  refused(t_realloc(NULL, size));
  refused(t_aligned_alloc(64, size & ~(size_t)63));
  refused(t_memalign(4096, size));
  void *out = &out;
  errno = 5;
  CHECK(t_posix_memalign(&out, 4096, size) == ENOMEM);
  CHECK(out == &out && errno == ENOMEM);
  errno = 0;
  char *block = t_malloc(100);
  memset(block, 3, 100);
  refused(t_realloc(test_opaque(block), size));
  refused(t_reallocarray(test_opaque(block), size, 1));
  for (int i = 0; i < 100; i++)
    CHECK(block[i] == 3);
  t_free(block);
  block = t_malloc(1000000);
  block[999999] = 4;
  refused(t_realloc(test_opaque(block), size));
  CHECK(block[999999] == 4);
  t_free(block);
}

static void overflow(size_t count, size_t size) {
  count = test_opaque_size(count), size = test_opaque_size(size);
  errno = 0;
  refused(t_calloc(count, size));
  char *block = t_malloc(10);
  block[9] = 5;
  refused(t_reallocarray(test_opaque(block), count, size));
  refused(t_reallocarray(NULL, count, size));
  CHECK(block[9] == 5);
  t_free(block);
}

static void edge(size_t size) {
  unsigned char *block = t_malloc(size), *zeroed = t_calloc(1, size);
  CHECK_SAY(block && zeroed, "%zu bytes", size);
  CHECK((uintptr_t)block % 16 == 0 || size < 16);
  CHECK(t_usable_size(block) >= size && t_usable_size(zeroed) >= size);
  if (size)
    block[0] = block[size - 1] = 1, CHECK(zeroed[0] == 0 && zeroed[size - 1] == 0);
  t_free(block);
  t_free(zeroed);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  static const size_t near_end[] = {0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 63, 64, 4095, 4096, 65535, 65536, 2097152};
  for (size_t i = 0; i < sizeof near_end / sizeof *near_end; i++) {
    too_big(SIZE_MAX - near_end[i]);
    too_big((size_t)PTRDIFF_MAX + 1 + near_end[i]);
  }
  /* At or under PTRDIFF_MAX nothing is forbidden, but no machine has it. */
  too_big((size_t)PTRDIFF_MAX - 1);
  too_big((size_t)PTRDIFF_MAX);
  overflow(SIZE_MAX, 2);
  overflow(2, SIZE_MAX);
  overflow(SIZE_MAX, SIZE_MAX);
  overflow((size_t)1 << 32, (size_t)1 << 32);
  overflow(((size_t)1 << 32) + 1, (size_t)1 << 32);
  overflow(SIZE_MAX / 16 + 2, 16); /* the product wraps to 16 */
  overflow((size_t)1 << 62, 2);    /* exactly PTRDIFF_MAX + 1 */
  for (size_t power = 1; power <= (size_t)64 << 20; power *= 2) {
    for (size_t step = 0; step < 8; step++) {
      size_t size = power + power / 8 * step;
      edge(size - 1), edge(size), edge(size + 1);
    }
  }
  CHECK(t_usable_size(NULL) == 0);
  /* Zero: a pointer of its own each time. */
  void *a = t_malloc(0), *b = t_malloc(0), *c = t_calloc(0, 5), *d = t_calloc(5, 0);
  CHECK(a && b && c && d && a != b && b != c && c != d && a != d);
  t_free(a), t_free(b), t_free(c), t_free(d);
}
