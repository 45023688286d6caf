/* The program limits its address space to little more than it has, before it allocates. However much is left, blocks
 * come from it: the range for blocks leaves room for the tables that it needs. */
#include <sys/resource.h>

#include "../child.h"
#include "../heap_api.h"

#define KIB ((size_t)1 << 10)
#define LEFT_FIRST (1280 * KIB)
#define LEFT_LAST (4 * MIB)
#define STEP (64 * KIB)
#define SIZE 1000
#define EXPECTED (128 * KIB)

/* Allocates nothing. */
static size_t address_space(void) {
  char text[256] = "";
  int file = open("/proc/self/statm", O_RDONLY);
  CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
  return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv) {
  test_skip_if(TEST_SANITIZED, "a sanitizer's shadow does not fit under a limit");
  for (size_t left = LEFT_FIRST; left <= LEFT_LAST; left += STEP) {
    TEST_IN_CHILD {
      size_t bytes = address_space() + left, got = 0;
      CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}) == 0);
      while (t_malloc(SIZE) != NULL)
        got += SIZE;
      CHECK_SAY(got >= EXPECTED, "%zu KiB of %zu that are left", got / KIB, left / KIB);
    }
  }
  test_begin(argc, argv); /* not before: it allocates */
}
