/* Producers and consumers, 1-1, 2-2 and 4-4: every block is freed by another thread than its maker's. */
#include "../heap_api.h"
#include "../threads.h"
#include "ring.h"

static struct ring ring;
static long messages;

static void *producer(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  for (long i = 0; i < messages; i++) {
    size_t size = test_random(&seed) % 2000 + sizeof(size_t);
    size_t *block = CHECK_GOT(t_malloc(size));
    block[0] = size;
    ((unsigned char *)block)[size - 1] = (unsigned char)(size == sizeof(size_t) ? size >> 56 : size);
    ring_give(&ring, block);
  }
  return NULL;
}

static void *consumer(void *argument) {
  for (long i = 0; i < messages; i++) {
    size_t *block = ring_take(&ring);
    size_t size = block[0];
    CHECK(size >= sizeof(size_t) && size < 2000 + sizeof(size_t));
    if (size > sizeof(size_t))
      CHECK(((unsigned char *)block)[size - 1] == (unsigned char)size);
    block[0] = 0; /* a block that is delivered twice is seen here the second time */
    t_free(block);
  }
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  messages = test_rounds(60000, 400);
  for (size_t pairs = 1; pairs <= 4; pairs *= 2) {
    pthread_t makers[4], takers[4];
    test_threads_start(makers, pairs, producer, (void *)1, 1);
    test_threads_start(takers, pairs, consumer, NULL, 0);
    test_threads_join(makers, pairs);
    test_threads_join(takers, pairs);
  }
}
