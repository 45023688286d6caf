/* Other mappings come and go where those of large objects did: what is cut, moved or ended leaves its addresses to
 * them at once. Addresses inside them are foreign to free, which ignores them. */
#include <sys/mman.h>

#include "../heap_api.h"
#include "../threads.h"

static _Atomic unsigned running;

static size_t random_bytes(uint64_t *seed, size_t least, size_t more) { return least + test_random(seed) % more; }

/* Grows in steps, so that objects become mappings and move; and cuts mappings. */
static void *resize(void *argument) {
  uint64_t seed = test_seed + (uintptr_t)argument;
  for (long round = test_rounds(1000, 10); round > 0; round--) {
    char *object = t_malloc(96 * MIB);
    for (int i = 0; i < 20; i++)
      CHECK((object = t_realloc(object, random_bytes(&seed, 33 * MIB, 90 * MIB))) != NULL);
    t_free(object);
    object = t_malloc(300000);
    for (size_t size = 400000; size < 9 * MIB; size += size / 4) {
      CHECK((object = t_realloc(object, size)) != NULL);
      object[0] = 1;
    }
    CHECK((object = t_realloc(object, 3 * MIB / 2)) != NULL && object[0] == 1);
    t_free(object);
  }
  running--;
  return NULL;
}

static void *map_beside(void *argument) {
  uint64_t seed = test_seed ^ (uintptr_t)argument << 32;
  while (running > 0) {
    size_t bytes = random_bytes(&seed, MIB, 40 * MIB);
    char *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    mapped[bytes / 2] = 42;
    for (size_t part = 0; part < 4; part++)
      t_free(test_opaque(mapped + bytes / 4 * part + 64));
    CHECK(mapped[bytes / 2] == 42 && munmap(mapped, bytes) == 0);
  }
  return NULL;
}

int main(int argc, char **argv) {
#ifndef TEST_CORE
  test_skip_if(!getenv("TEST_EXPECT_HAKMEM"), "another allocator may crash here");
#endif
  test_begin(argc, argv);
  pthread_t resizers[2], others[2];
  running = 2;
  test_threads_start(resizers, 2, resize, (void *)1, 1);
  test_threads_start(others, 2, map_beside, (void *)1, 1);
  test_threads_join(resizers, 2);
  test_threads_join(others, 2);
}
