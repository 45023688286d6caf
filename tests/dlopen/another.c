/* another.c: a malloc of its own, without reallocarray, as many programs and libraries bring. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ALIGNMENT 16

static char memory[1 << 20] __attribute__((aligned(ALIGNMENT)));
static size_t used;

/* The block's size lies in front of it. Nothing is used again. */
EXPORT void *malloc(size_t size) {
  size_t bytes = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
  size_t at = __atomic_fetch_add(&used, bytes, __ATOMIC_RELAXED) + ALIGNMENT;
  if (bytes < size || at + bytes > sizeof memory)
    return NULL;
  memcpy(memory + at - sizeof size, &size, sizeof size);
  return memory + at;
}

EXPORT void free(void *block) {
  if (block != NULL && (uintptr_t)block - (uintptr_t)memory >= sizeof memory)
    __builtin_trap();
}

EXPORT void *calloc(size_t count, size_t size) { return malloc(count * size); }

EXPORT void *realloc(void *block, size_t size) {
  size_t before = 0;
  char *resized = malloc(size);
  if (block != NULL)
    memcpy(&before, (char *)block - sizeof before, sizeof before);
  if (resized != NULL && before > 0)
    memcpy(resized, block, before < size ? before : size);
  return resized;
}
