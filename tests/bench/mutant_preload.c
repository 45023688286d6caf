/* mutant_preload.c: a malloc that hands a live block out twice now and then, and a realloc that takes only the first
 * page along. Preloaded into a benchmark it must change the hash or end it: the positive control of the smoke test. */
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc(size_t size);

enum { PAGE = 4096, LIMIT = 16 << 20 };

static __thread void *block;
static __thread size_t block_size;
static __thread unsigned calls;

void *malloc(size_t size) {
  if (++calls % 50 == 0 && block && size <= block_size)
    return block;
  void *fresh = __libc_malloc(size);
  if (size >= 16 && size <= LIMIT)
    block = fresh, block_size = size;
  return fresh;
}

/* Every block that is reallocated holds a page at least. */
void *realloc(void *pointer, size_t size) {
  void *fresh = __libc_malloc(size);
  if (pointer && fresh)
    memcpy(fresh, pointer, size < PAGE ? size : PAGE);
  return fresh;
}

void free(void *pointer) { (void)pointer; /* nothing is freed, so libc's own heap stays whole */ }
