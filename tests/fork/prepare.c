/* A fork handler that was registered before the allocator's runs while that holds all its locks. It may allocate,
 * big blocks too, which have the allocator look at its limits: it gets one, or NULL, at once. */
#include <pthread.h>

#include "../child.h"
#include "../heap_api.h"

#define BLOCK_BYTES ((size_t)20 << 20)
#define FORKS 6

static int registered;
static volatile int allocates, calls;
static char *block;

static void prepare(void) {
  if (!allocates)
    return;
  calls++;
  errno = 0;
  block = t_malloc(BLOCK_BYTES);
  CHECK(block != NULL || errno == ENOMEM);
  if (block)
    block[0] = block[BLOCK_BYTES - 1] = 1;
}

static void register_early(void) { registered = pthread_atfork(prepare, NULL, NULL) == 0; }

/* Before the constructors of every library. */
__attribute__((section(".preinit_array"), used)) static void (*const register_first)(void) = register_early;

static void forks(void) {
  t_free(test_opaque(t_malloc(BLOCK_BYTES / 20))); /* an address space that was never used gives NULL in the handler */
  allocates = 1;
  for (int i = 0; i < FORKS; i++) {
    pid_t child = fork();
    CHECK(child >= 0 && calls == i + 1);
    if (child == 0) {
      CHECK(block == NULL || (block[0] == 1 && block[BLOCK_BYTES - 1] == 1));
      t_free(block);
      block = t_malloc(BLOCK_BYTES);
      _exit(block == NULL);
    }
    test_child_passes(child);
    if (i % 2)
      t_free(block);
  }
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(!registered, "nothing runs before constructors here");
  test_in_child(forks);
}
