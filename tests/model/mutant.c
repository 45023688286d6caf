/* mutant.c: hak_* over libc with one fault, chosen by MUTANT. The model tests must fail on each of
 * them: that is their positive control. MUTANT 0 has no fault. */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hakmem/hakmem.h"

enum { SOUND, OVERLAP, ALIGNMENT, ZEROING, CONTENTS, USABLE_SHORT, USABLE_UNSTABLE, SCRIBBLE };

static _Atomic unsigned calls;
static __thread void *previous;

static int due(void) { return ++calls % 1000 == 0; }

void *hak_malloc(size_t size) {
  if (MUTANT == OVERLAP && size >= 16 && size < 500 && due() && previous && malloc_usable_size(previous) >= size) {
    return previous; /* still live: two owners */
  }
  void *block = malloc(size);
  if (MUTANT == OVERLAP)
    previous = block;
  if (MUTANT == ALIGNMENT && due())
    return (char *)block + 8;
  if (MUTANT == SCRIBBLE && due() && previous)
    ((char *)previous)[0] ^= 1;
  if (MUTANT == SCRIBBLE)
    previous = block;
  return block;
}

void *hak_calloc(size_t count, size_t size) {
  void *block = calloc(count, size);
  if (MUTANT == ZEROING && block && count * size > 8)
    ((char *)block)[count * size - 1] = 1;
  return block;
}

void *hak_realloc(void *block, size_t size) {
  void *moved = realloc(block, size);
  if (MUTANT == CONTENTS && moved && size > 8 && due())
    ((char *)moved)[size / 2] ^= 1;
  return moved;
}

void hak_free(void *block) {
  if (MUTANT == OVERLAP || MUTANT == ALIGNMENT || MUTANT == SCRIBBLE)
    return; /* keep libc's own heap intact */
  free(block);
}

void *hak_aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int hak_posix_memalign(void **out, size_t alignment, size_t size) { return posix_memalign(out, alignment, size); }

size_t hak_usable_size(const void *block) {
  size_t usable = malloc_usable_size((void *)(uintptr_t)block);
  if (MUTANT == USABLE_SHORT && usable > 8 && due())
    return usable - 8;
  if (MUTANT == USABLE_UNSTABLE && usable > 1024 && (calls += 1) % 2)
    return usable - 1;
  return usable;
}

int hak_trim(size_t keep_bytes) {
  (void)keep_bytes;
  return 0;
}
