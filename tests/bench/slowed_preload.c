/* libc's malloc, with some hundred cycles lost in each, half as much again as a pair of malloc and free takes: an
 * allocator that a verdict must call slower. */
#include <stddef.h>

extern void *__libc_malloc(size_t size); // NOLINT(bugprone-reserved-identifier): libc's name

void *malloc(size_t size) {
  for (volatile int i = 0; i < 20; i++) {
  }
  return __libc_malloc(size);
}
