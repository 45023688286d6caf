/* mutant_preload.c: a malloc that hands a live block out twice now and then. Preloaded into a benchmark it
 * must change the hash: the positive control of the smoke test. */
#include <stddef.h>

extern void *__libc_malloc(size_t size);

static __thread void *block;
static __thread size_t block_size;
static __thread unsigned calls;

void *malloc(size_t size) {
  if (++calls % 50 == 0 && block && size <= block_size)
    return block;
  void *fresh = __libc_malloc(size);
  if (size >= 16 && size <= 1024)
    block = fresh, block_size = size;
  return fresh;
}

void free(void *pointer) { (void)pointer; /* nothing is freed, so libc's own heap stays whole */ }
