/* Under a cgroup's limit the heap gives most of it, then NULL and ENOMEM, and is not killed; after frees it
 * gives again.
 *
 *   memory_max fill SIZE   blocks of SIZE, until there are no more
 *   memory_max chroot SIZE the same after the program has left /proc and the files of its group
 *   memory_max first       the first request of all is too large
 *   memory_max threads     several threads take what they get
 *   memory_max churn       sizes of all kinds come and go; who gets NULL frees half
 *   memory_max untouched   objects come and go beside one that is never written: their memory is used again
 *
 * Every page given is written to, but for that object's. */

#include <sys/resource.h>

#include "../chain.h"
#include "../threads.h"
#include "group.h"

#define LIMIT_BYTES ((size_t)256 << 20)
#define EXPECTED_BYTES (LIMIT_BYTES * 6 / 10)
#define THREADS 4

/* Returns the bytes asked for and got. */
static size_t fill(struct link **chain, size_t size) {
  size_t got = 0;
  *chain = NULL;
  while (got < LIMIT_BYTES * 2 && chain_add(chain, size))
    got += size;
  return got;
}

static void all_ways_to_ask_for_too_much(void *block) {
  errno = 0;
  CHECK(t_malloc(LIMIT_BYTES) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(t_calloc(1, LIMIT_BYTES) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(t_aligned_alloc(4096, LIMIT_BYTES) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(t_realloc(test_opaque(block), LIMIT_BYTES) == NULL && errno == ENOMEM);
}

static void run_fill(size_t size) {
  struct link *chain;
  size_t first = fill(&chain, size);
  CHECK_SAY(first < LIMIT_BYTES, "%zu bytes under a limit of %zu", first, LIMIT_BYTES);
  CHECK_SAY(first >= EXPECTED_BYTES, "%zu bytes under a limit of %zu", first, LIMIT_BYTES);
  struct link *next = chain->next;
  all_ways_to_ask_for_too_much(chain);
  CHECK(chain->next == next);
  chain_drain(chain);
  size_t again = fill(&chain, size);
  CHECK_SAY(again >= first * 9 / 10 && again < LIMIT_BYTES, "%zu bytes the second time, %zu the first", again, first);
  chain_drain(chain);
  size_t other = fill(&chain, size > 10000 ? 64 : 200000);
  CHECK_SAY(other >= EXPECTED_BYTES && other < LIMIT_BYTES, "%zu bytes of another size afterwards", other);
  chain_drain(chain);
  printf("memory_max fill %zu: ok (%zu %% of the limit)\n", size, first * 100 / LIMIT_BYTES);
}

static void run_elsewhere(size_t size) {
  test_leave_proc();
  run_fill(size);
}

/* What is asked for first meets the limit too. */
static void run_first(void) {
  void *block = CHECK_GOT(chain_block(100));
  all_ways_to_ask_for_too_much(block);
  t_free(block);
  block = chain_block(EXPECTED_BYTES);
  CHECK_SAY(block != NULL, "%zu bytes of %zu", EXPECTED_BYTES, LIMIT_BYTES);
  CHECK(t_malloc(EXPECTED_BYTES) == NULL);
  t_free(block);
  block = CHECK_GOT(chain_block(EXPECTED_BYTES));
  t_free(block);
}

static size_t size_draw(uint64_t *seed) {
  switch (test_random(seed) % 16) {
  case 0:
    return test_random(seed) % 8000000 + 8;
  case 1:
  case 2:
    return test_random(seed) % 300000 + 8;
  default:
    return test_random(seed) % 5000 + 8;
  }
}

static void *run_thread(void *argument) {
  uint64_t seed = test_seed + (uintptr_t)argument;
  for (int round = 0; round < 3; round++) {
    struct link *chain = NULL;
    int refused = 0;
    for (size_t got = 0; got < LIMIT_BYTES * 2 && refused < 20;) {
      size_t size = size_draw(&seed);
      if (chain_add(&chain, size))
        got += size;
      else
        refused++;
    }
    CHECK_SAY(refused > 0, "twice the limit was given");
    chain_drain(chain);
  }
  return NULL;
}

static void run_threads(void) {
  test_threads_run(THREADS, run_thread, (void *)(uintptr_t)1, 1);
  void *block = chain_block(EXPECTED_BYTES);
  CHECK_SAY(block != NULL, "%zu bytes after everything was freed", EXPECTED_BYTES);
  t_free(block);
}

#define SLOTS 60000
static struct {
  void *block;
  size_t size;
} slots[SLOTS];

static void run_churn(void) {
  uint64_t seed = test_seed;
  size_t live = 0, most = 0;
  unsigned count = 0, refused = 0;
  for (long round = test_rounds(20000, 30); round > 0; round--) {
    if (count > 0 && test_random(&seed) % 3 == 0) { /* more come than go, until there are no more */
      unsigned i = (unsigned)(test_random(&seed) % count);
      live -= slots[i].size;
      t_free(slots[i].block);
      slots[i] = slots[--count];
    }
    size_t size = size_draw(&seed);
    void *block = count < SLOTS ? chain_block(size) : NULL;
    if (block) {
      slots[count].block = block;
      slots[count++].size = size;
      live += size;
      most = live > most ? live : most;
      continue;
    }
    refused += count < SLOTS;
    for (unsigned half = count / 2; count > half; live -= slots[count].size)
      t_free(slots[--count].block);
  }
  while (count > 0)
    t_free(slots[--count].block);
  CHECK_SAY(refused > 0, "memory was never out");
  CHECK_SAY(most >= EXPECTED_BYTES, "%zu bytes at most", most);
  printf("memory_max churn: ok (refused %u times, %zu %% of the limit at most)\n", refused, most * 100 / LIMIT_BYTES);
}

#define UNTOUCHED_BYTES (LIMIT_BYTES * 13 / 16)
#define WORKING 8
#define WORKING_BYTES ((size_t)4 << 20)
#define TURNS 500

static long faults(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_minflt;
}

static void run_untouched(void) {
  static char *working[WORKING];
  char *untouched = CHECK_GOT(t_malloc(UNTOUCHED_BYTES));
  usleep(400000); /* what was given out lately counts as written */
  long before = faults(), most = TURNS * (long)(WORKING_BYTES / 2 / 4096) / 4;
  for (int turn = 0; turn < TURNS; turn++) {
    char **object = &working[turn % WORKING];
    t_free(*object);
    *object = CHECK_GOT(t_malloc(WORKING_BYTES - (size_t)(turn % 7) * WORKING_BYTES / 32));
    memset(*object, 1, WORKING_BYTES / 2);
  }
  CHECK_SAY(faults() - before <= most, "%ld page faults, %ld at most", faults() - before, most);
  t_free_all(working, WORKING);
  t_free(untouched);
}

int main(int argc, char **argv) {
  struct group group;
  CHECK(argc > 1);
  test_begin(argc, argv);
  if (!getenv("TEST_LIMITED")) {
    test_skip_if(TEST_SANITIZED || TEST_EMULATED, "a sanitizer or an emulator takes memory of its own");
    group_make(&group, LIMIT_BYTES);
    group_run(&group, argv);
  }
  if (strcmp(argv[1], "fill") == 0 && argc > 2)
    run_fill(strtoul(argv[2], NULL, 0));
  else if (strcmp(argv[1], "chroot") == 0 && argc > 2)
    run_elsewhere(strtoul(argv[2], NULL, 0));
  else if (strcmp(argv[1], "first") == 0)
    run_first();
  else if (strcmp(argv[1], "threads") == 0)
    run_threads();
  else if (strcmp(argv[1], "churn") == 0)
    run_churn();
  else if (strcmp(argv[1], "untouched") == 0)
    run_untouched();
  else
    CHECK_SAY(0, "no such mode: %s", argv[1]);
}
