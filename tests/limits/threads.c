/* Memory runs out in several threads at once under RLIMIT_AS: each gets NULL at some point, none crashes,
 * and after all freed, each gets memory again. */
#include <sys/resource.h>

#include "../chain.h"
#include "../threads.h"

#define THREADS 4

static void *worker(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  for (int round = 0; round < 3; round++) {
    struct link *chain = NULL;
    int refused = 0;
    for (size_t got = 0; got < 512 * MIB && refused <= 20;) {
      size_t size = test_random(&seed) % 100 ? test_random(&seed) % 60000 + 8 : test_random(&seed) % 4000000 + 8;
      if (chain_add(&chain, size))
        got += size;
      else
        refused++;
    }
    CHECK(refused > 0);
    chain_drain(chain);
  }
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(TEST_SANITIZED, "a sanitizer's shadow does not fit under a limit");
  if (!getenv("TEST_LIMITED")) {
    struct rlimit limit = {(size_t)320 << 20, (size_t)320 << 20};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0 && setenv("TEST_LIMITED", "1", 1) == 0);
    execv(argv[0], argv);
    check_failed(__FILE__, __LINE__, "execv", "%s", strerror(errno));
  }
  pthread_attr_t attributes;
  pthread_t threads[THREADS];
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], &attributes, worker, (void *)(uintptr_t)(i + 1)) == 0);
  test_threads_join(threads, THREADS);
  void *block = t_malloc((size_t)100 << 20);
  CHECK_SAY(block != NULL, "100 MiB after everything was freed");
  t_free(block);
}
