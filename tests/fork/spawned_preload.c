/* spawned_preload.c: a malloc that ends a program which another one with this malloc has started. It is the control of
 * spawn.c, which must notice that. */
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
void *malloc(size_t size);

static int is_spawned;

__attribute__((constructor)) static void begin(void) {
  is_spawned = getenv("TEST_SPAWNED") != NULL;
  setenv("TEST_SPAWNED", "1", 1);
}

void *malloc(size_t size) {
  if (is_spawned)
    _exit(9);
  return __libc_malloc(size);
}
