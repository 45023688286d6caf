/* mallinfo, mallinfo2 and malloc_stats tell the truth: the numbers move with what is allocated. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
#include "../check.h"
#include "../heap_api.h"

#define COUNT 20000
#define SIZE 1000

int main(int argc, char **argv) {
  test_begin(argc, argv);
#if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 33)
  test_skip("no mallinfo2 in this libc");
#else
  static void *blocks[COUNT];
  struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = CHECK_GOT(malloc(SIZE));
    memset(blocks[i], 1, SIZE);
  }
  struct mallinfo2 full = mallinfo2();
  size_t asked = (size_t)COUNT * SIZE, used = full.uordblks - before.uordblks;
  CHECK_SAY(used >= asked * 9 / 10 && used <= asked * 13 / 10, "uordblks rose by %zu for %zu", used, asked);
  CHECK(full.arena >= before.arena + asked * 9 / 10);
  for (int i = 0; i < COUNT; i++)
    free(blocks[i]);
  struct mallinfo2 empty = mallinfo2();
  CHECK_SAY(empty.uordblks < before.uordblks + asked / 20, "uordblks %zu after free, %zu before", empty.uordblks,
            before.uordblks);
  void *large = CHECK_GOT(malloc((size_t)50 << 20));
  struct mallinfo2 with_large = mallinfo2();
  CHECK_SAY(with_large.hblks == empty.hblks + 1, "hblks %zu, was %zu", with_large.hblks, empty.hblks);
  CHECK(with_large.hblkhd >= empty.hblkhd + ((size_t)50 << 20));
  struct mallinfo narrow = mallinfo();
  CHECK_SAY((size_t)narrow.hblks == with_large.hblks && (size_t)narrow.hblkhd == with_large.hblkhd, "hblks %d",
            narrow.hblks);
  free(large);
  CHECK(mallinfo2().hblks == empty.hblks);
  CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 0 || mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);

  /* malloc_stats writes to stderr, and something. */
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  int kept = dup(2);
  CHECK(dup2(pipe_ends[1], 2) == 2);
  malloc_stats();
  fflush(stderr);
  CHECK(dup2(kept, 2) == 2);
  close(pipe_ends[1]);
  char text[8192];
  ssize_t length = read(pipe_ends[0], text, sizeof text - 1);
  CHECK(length > 20);
#endif
}
