/* The control of the target `family`: a realloc that changes a byte, seldom. */
#include <stddef.h>

void *__real_hak_realloc(void *block, size_t size);
void *__wrap_hak_realloc(void *block, size_t size);

void *__wrap_hak_realloc(void *block, size_t size) {
  unsigned char *moved = __real_hak_realloc(block, size);
  if (moved && size % 32 == 7)
    moved[size / 2] ^= 1;
  return moved;
}
