/* Producers and consumers, 1-1, 2-2 and 4-4: every block is freed by another thread than its maker's. */
#include <pthread.h>

#include "../check.h"
#include "../heap_api.h"
#include "ring.h"

static struct ring ring;
static long messages;

static void *producer(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  for (long i = 0; i < messages; i++) {
    size_t size = test_random(&seed) % 2000 + sizeof(size_t);
    size_t *block = t_malloc(size);
    CHECK(block != NULL);
    block[0] = size;
    ((unsigned char *)block)[size - 1] = (unsigned char)(size == sizeof(size_t) ? size >> 56 : size);
    ring_give(&ring, block);
  }
  return NULL;
}

static void *consumer(void *argument) {
  (void)argument;
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
  for (int pairs = 1; pairs <= 4; pairs *= 2) {
    pthread_t makers[4], takers[4];
    for (int i = 0; i < pairs; i++) {
      CHECK(pthread_create(&makers[i], NULL, producer, (void *)(uintptr_t)(i + 1)) == 0);
      CHECK(pthread_create(&takers[i], NULL, consumer, NULL) == 0);
    }
    for (int i = 0; i < pairs; i++)
      pthread_join(makers[i], NULL), pthread_join(takers[i], NULL);
  }
  puts("producers: ok");
  return 0;
}
