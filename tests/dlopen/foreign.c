/* Pointers that are not the heap's: free ignores them, usable_size says 0, and neither reads them. */
#include <sys/mman.h>

#include "../heap_api.h"

static char static_bytes[100000] __attribute__((aligned(4096)));

static void foreign(void *pointer) {
  pointer = test_opaque(pointer);
  errno = 77;
  CHECK_SAY(t_usable_size(pointer) == 0, "%p has a usable size", pointer);
  t_free(pointer);
  CHECK_SAY(errno == 77, "free of %p changed errno", pointer);
}

int main(int argc, char **argv) {
#ifndef TEST_CORE
  test_skip_if(!getenv("TEST_EXPECT_HAKMEM"), "another allocator may crash here");
#endif
  test_begin(argc, argv);
  t_free(t_malloc(1)); /* a heap exists, for the later half */
  char stack_bytes[64];
  foreign(stack_bytes);
  foreign(stack_bytes + 1);
  foreign(static_bytes);
  foreign(static_bytes + 65536);
  foreign((void *)(uintptr_t)main);
  foreign(&errno);
  char *mapped = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  mapped[65536] = 42;
  for (size_t offset = 0; offset < 4 << 20; offset += 16384)
    foreign(mapped + offset);
  CHECK(mapped[65536] == 42);
  char *sealed = mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(sealed != MAP_FAILED);
  for (size_t offset = 0; offset < 4 << 20; offset += 16384)
    foreign(sealed + offset);
  CHECK(munmap(sealed, 4 << 20) == 0);
  foreign(sealed); /* unmapped now */
  foreign(sealed + 8);
  /* Bit patterns: small integers, each power of two, both sides of the canonical hole, the very top. */
  for (int bit = 0; bit < 64; bit++) {
    uintptr_t address = (uintptr_t)1 << bit;
    if (bit >= 47 || bit < 20)
      foreign((void *)address), foreign((void *)(address + 16)), foreign((void *)(address - 1));
  }
  foreign((void *)UINTPTR_MAX);
  foreign((void *)(UINTPTR_MAX - 15));
  foreign((void *)(UINTPTR_MAX & ~(uintptr_t)4095));
  foreign((void *)(UINTPTR_MAX << 47));
  foreign((void *)0xdeadbeefdeadbeefu);
  /* Random addresses; those inside the heap's own reservations are not foreign, so only far ones. */
  uint64_t seed = test_seed;
  for (long n = test_rounds(100000, 20); n > 0; n--)
    foreign((void *)(uintptr_t)(test_random(&seed) | (uint64_t)1 << 62));
}
