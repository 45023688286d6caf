/* The cgroup's limit is read when the heap is about to hold 16 MiB. A slab that would pass this bound is refused until
 * then. A free block of a larger class must not be given instead: nobody would read the limit, and each malloc of the
 * class would take a slow path for as long as the heap stays there. In children that fill the heap to other lengths. */
#include <malloc.h>
#include <stdbool.h>

#include "../child.h"

#define LENGTHS 64
#define STEP_BYTES ((size_t)128 << 10)
#define FIRST_BYTES ((size_t)6 << 20)
#define LARGER_COUNT 300
#define LARGER 20000 /* may serve in place of WANTED */
#define WANTED 10000
#define SMALL 1000

static bool is_served_by_its_class(size_t fill_bytes) {
  static void *larger[LARGER_COUNT];
  for (unsigned i = 0; i < LARGER_COUNT; i++)
    larger[i] = CHECK_GOT(malloc(LARGER));
  for (unsigned i = 0; i < LARGER_COUNT; i += 2) /* no slab becomes empty */
    free(larger[i]);
  for (size_t filled = 0; filled < fill_bytes; filled += SMALL)
    CHECK(malloc(SMALL) != NULL);
  return malloc_usable_size(malloc(WANTED)) < LARGER;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  for (size_t i = 0; i < LENGTHS; i++) {
    int status;
    pid_t child = test_fork();
    if (child == 0)
      _exit(!is_served_by_its_class(FIRST_BYTES + i * STEP_BYTES));
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_SAY(status == 0, "after %zu bytes a larger class serves", FIRST_BYTES + i * STEP_BYTES);
  }
}
