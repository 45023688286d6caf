/* Alignments: bad ones are EINVAL, any power of two is served or ENOMEM, up to 1 GiB here; realloc and
 * free work on aligned blocks. */

#include "../heap_api.h"

static void refused(size_t alignment) {
  void *out = &out;
  errno = 9;
  CHECK_SAY(t_posix_memalign(&out, alignment, 100) == EINVAL, "alignment %zu", alignment);
  CHECK(out == &out && errno == 9);
}

static void aligned_refused(size_t alignment) {
  errno = 0;
  CHECK_SAY(t_aligned_alloc(test_opaque_size(alignment), 96) == NULL && errno == EINVAL, "alignment %zu errno %d",
            alignment, errno);
}

static void aligned_use(size_t alignment, size_t size) {
  void *out = NULL;
  alignment = test_opaque_size(alignment);
  if (alignment >= sizeof(void *)) {
    CHECK_SAY(t_posix_memalign(&out, alignment, size) == 0, "%zu to %zu", size, alignment);
    CHECK((uintptr_t)out % alignment == 0);
    CHECK(t_usable_size(out) >= size);
    if (size)
      ((char *)out)[0] = ((char *)out)[size - 1] = 1;
    t_free(out);
  }
  unsigned char *block = t_aligned_alloc(alignment, size);
  CHECK_SAY(block && (uintptr_t)block % alignment == 0, "%zu to %zu: %p", size, alignment, (void *)block);
  size_t usable = t_usable_size(block);
  CHECK(usable >= size);
  if (size)
    block[0] = 0x11, block[size - 1] = 0x22;
  block = t_realloc(block, size + 5000);
  CHECK(block && (size < 2 || (block[0] == 0x11 && block[size - 1] == 0x22)));
  if (size)
    block = t_realloc(block, (size + 1) / 2), CHECK(block && (size < 3 || block[0] == 0x11));
  t_free(block);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  refused(0), refused(1), refused(2), refused(3), refused(4), refused(7), refused(9), refused(12), refused(24);
  refused(48), refused(4095), refused(4097), refused(SIZE_MAX), refused(SIZE_MAX - 7);
  refused(((size_t)1 << 62) + 8), refused((size_t)3 << 61);
  aligned_refused(3), aligned_refused(24), aligned_refused(4097), aligned_refused(SIZE_MAX), aligned_refused(0);
  void *out = &out;
  for (int bit = 46; bit < 64; bit++) { /* powers of two no address space can serve, with any size */
    size_t alignment = (size_t)1 << bit;
    int error = t_posix_memalign(&out, alignment, 100);
    CHECK_SAY(error == ENOMEM || (error == 0 && bit < 48), "2^%d: %d", bit, error);
    if (error == 0)
      t_free(out), out = &out;
    CHECK(out == &out);
    errno = 0;
    CHECK(t_posix_memalign(&out, alignment, (size_t)PTRDIFF_MAX) == ENOMEM);
    CHECK(t_posix_memalign(&out, alignment, SIZE_MAX - 16) == ENOMEM);
    CHECK(t_memalign(test_opaque_size(alignment), test_opaque_size(SIZE_MAX - alignment + 16)) == NULL &&
          errno == ENOMEM);
  }
  for (size_t alignment = 1; alignment <= (size_t)1 << 20; alignment *= 2) {
    static const size_t sizes[] = {0, 1, 8, 24, 100, 1000, 4096, 5000, 65536, 70000, 262144, 300000, 3000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      aligned_use(alignment, sizes[i]);
    aligned_use(alignment, alignment), aligned_use(alignment, alignment * 3), aligned_use(alignment, alignment - 1);
  }
  size_t largest = TEST_SANITIZED ? (size_t)64 << 20 : (size_t)1 << 30;
  for (size_t alignment = (size_t)2 << 20; alignment <= largest; alignment *= 2) {
    aligned_use(alignment, 0), aligned_use(alignment, 1), aligned_use(alignment, 100000),
        aligned_use(alignment, 5000000);
    aligned_use(alignment, ((size_t)2 << 20) + 1);
  }
}
