/* free keeps errno, whatever it has to do: cached, flushed, unmapped, from another thread, and where
 * its system calls fail. Allocation that succeeds leaves errno alone too, also where the system refused something on
 * the way. posix_memalign that fails sets it, as glibc's does. */
#include <sys/mman.h>

#include "../heap_api.h"
#include "../threads.h"

static void freed(void *block) {
  errno = 4242;
  t_free(block);
  CHECK_SAY(errno == 4242, "errno %d after free", errno);
}

static void *stranger(void *argument) {
  void **blocks = argument;
  for (int i = 0; i < 500; i++)
    freed(blocks[i]);
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  freed(NULL);
  for (size_t size = 0; size < (size_t)600 << 20; size = size * 3 + 1) {
    errno = 4242;
    void *block = CHECK_GOT(t_malloc(size));
    CHECK_SAY(errno == 4242, "errno %d after malloc(%zu)", errno, size);
    if (size)
      ((char *)block)[size - 1] = 1;
    freed(block);
  }
  void *blocks[500];
  for (int round = 0; round < 40; round++) { /* enough to overflow bins and evict cached ranges */
    size_t size = (size_t)round * 20000 + 10;
    for (int i = 0; i < 500; i++)
      blocks[i] = CHECK_GOT(t_malloc(i % 50 ? size % 4000 : size));
    for (int i = 0; i < 500; i++)
      freed(blocks[i]);
  }
  for (int i = 0; i < 500; i++)
    blocks[i] = t_malloc((size_t)i * 1000);
  /* The pages of a block that the program changed a part of cannot be moved: it is copied. */
  for (size_t size = (size_t)2 << 20; size < (size_t)200 << 20; size *= 3) {
    char *block = CHECK_GOT(t_malloc(size));
    char *page = (char *)(((uintptr_t)block + size / 2) & ~(uintptr_t)65535);
    CHECK(madvise(page, 65536, MADV_DONTFORK) == 0);
    CHECK(madvise(page, 65536, MADV_DOFORK) == 0 && madvise(page, 65536, MADV_RANDOM) == 0);
    mmap(block + t_usable_size(block), 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    errno = 4242;
    block = CHECK_GOT(t_realloc(block, size * 2));
    CHECK_SAY(errno == 4242, "errno %d after realloc(%zu)", errno, size * 2);
    freed(block);
  }
  void *aligned = blocks;
  errno = 4242;
  CHECK(t_posix_memalign(&aligned, 4096, 100) == 0 && errno == 4242);
  freed(aligned);
  aligned = blocks;
  CHECK(t_posix_memalign(&aligned, 4096, PTRDIFF_MAX - 65536) == ENOMEM && errno == ENOMEM && aligned == blocks);
  test_thread_run(stranger, blocks);
}
