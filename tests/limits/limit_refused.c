/* HAKMEM_LIMIT_MB: a request that does not fit is refused, and nobody else's with it. One thread asks for more than the
 * limit all the time; the others together use a small part of it and get all they ask for. */

#include <stdatomic.h>

#include "../reclaim/again.h"
#include "../threads.h"

#define LIMIT_MB 256
#define LIMIT_TEXT "256"
#define HOPELESS_BYTES ((size_t)4 << 40) /* nothing is given back for it, so that many can be asked for */
#define THREADS 3
#define LIVE 12
#define BYTES_MAX ((size_t)900000)

static _Atomic long working = THREADS, refused, asked;

static void *uses_little(void *argument) {
  uint64_t seed = (uintptr_t)argument + test_seed;
  char *live[LIVE] = {NULL};
  for (long step = test_rounds(150000, 10); step > 0; step--) {
    unsigned i = (unsigned)(test_random(&seed) % LIVE);
    t_free(live[i]);
    live[i] = t_malloc(300000 + test_random(&seed) % (BYTES_MAX - 300000));
    refused += live[i] == NULL;
    asked++;
  }
  t_free_all(live, LIVE);
  working--;
  return NULL;
}

int main(int argc, char **argv) {
  test_begin_with(argc, argv, "HAKMEM_LIMIT_MB", LIMIT_TEXT);
  pthread_t threads[THREADS];
  test_threads_start(threads, THREADS, uses_little, NULL, 1000);
  while (working > 0) {
    CHECK(t_malloc(2 * LIMIT_MB * MIB) == NULL);
    for (int i = 0; i < 1000; i++)
      CHECK(t_malloc(HOPELESS_BYTES) == NULL);
  }
  test_threads_join(threads, THREADS);
  CHECK_SAY(refused == 0, "%ld of %ld requests refused", refused, asked);
}
