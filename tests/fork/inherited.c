/* The child of a fork that works with its parent's heap: it copies few of the shared pages, it does not grow as it
 * replaces all blocks, it uses what it has freed when memory is short, and no block is lost or given out twice. */
#include <semaphore.h>
#include <sys/resource.h>

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

enum { BLOCKS = (TEST_TSAN ? 6 : 48) * 1024, BYTES_LEAST = 16, BYTES_MOST = 1024, STEP = 10007 };
enum { CHANGES = 2000, FAULTS_MOST = CHANGES * 2 / 3 };

/* Block i is in the place i. Its first bytes tell where, its last one is the low byte of that. */
static struct place {
  unsigned char *block;
  size_t size;
} places[BLOCKS];

static void place_fill(size_t i, uint64_t *random) {
  size_t size = BYTES_LEAST + test_random(random) % (BYTES_MOST - BYTES_LEAST + 1);
  unsigned char *block = CHECK_GOT(t_malloc(size));
  memcpy(block, &i, sizeof i);
  block[size - 1] = (unsigned char)i;
  places[i] = (struct place){block, size};
}

static void place_empty(size_t i) {
  size_t is;
  memcpy(&is, places[i].block, sizeof is);
  CHECK_SAY(is == i && places[i].block[places[i].size - 1] == (unsigned char)i, "block %zu shows %zu", i, is);
  t_free(places[i].block);
  places[i].block = NULL;
}

/* Replaces the blocks of `count` places that are `stride` apart, from `first` on. */
static void replace(size_t first, size_t count, size_t stride, uint64_t seed) {
  for (size_t n = 0, i = first; n < count; n++, i = (i + stride) % BLOCKS) {
    place_empty(i);
    place_fill(i, &seed);
  }
}

static void check_all(void) { replace(0, BLOCKS, 1, test_seed); }

static long faults(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_minflt;
}

/* --- the children --- */

static void copies_few_pages(void) {
  long before = faults();
  replace(5, CHANGES, STEP, test_seed + 1);
  long copied = faults() - before;
  printf("inherited: %ld page faults for %d blocks\n", copied, CHANGES);
  fflush(stdout);
  CHECK_SAY(!TEST_RSS_COUNTS || copied <= FAULTS_MOST, "%ld page faults", copied);
  check_all();
}

static int growth_share = 3; /* of the memory at the fork */

static void stays_small(void) {
  long before = test_rss_kib();
  for (int round = 0; round < 4; round++)
    replace(7, BLOCKS, STEP, test_seed + 2);
  long now = test_rss_kib();
  CHECK_SAY(!TEST_RSS_COUNTS || now < before + before / growth_share, "%ld KiB, %ld at the fork", now, before);
  check_all();
}

/* Takes what is to be had, frees so few of the inherited blocks that the pools need not serve it again for that, and
 * asks for as many. */
static void uses_what_it_freed(void) {
  enum { APART = 32, FEW = BLOCKS / APART };
  const struct rlimit none = {0, 0};
  size_t sizes[FEW], got = 0;
  replace(11, CHANGES / 10, STEP, test_seed + 3);
  if (TEST_RSS_COUNTS) {
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    for (size_t bytes = BYTES_MOST; bytes >= BYTES_LEAST; bytes /= 2)
      while (t_malloc(bytes) != NULL)
        ;
  }
  for (size_t i = 0; i < FEW; i++) {
    sizes[i] = places[APART * i].size;
    place_empty(APART * i);
  }
  for (size_t i = 0; i < FEW; i++)
    got += t_malloc(sizes[i]) != NULL;
  CHECK_SAY(got >= FEW * 9 / 10, "%zu of %d blocks", got, FEW);
}

static void *replace_share(void *share) {
  size_t quarter = (size_t)(uintptr_t)share;
  for (unsigned round = 0; round < 3; round++)
    replace(quarter, BLOCKS / 4, 4, test_seed + quarter + 4 * round);
  return NULL;
}

static void has_threads(void) {
  replace(1, BLOCKS / 50, STEP, test_seed + 4);
  test_threads_run(4, replace_share, NULL, 1);
  check_all();
}

static unsigned generation;

static void has_children(void) {
  replace(generation, BLOCKS / 3, STEP, test_seed + generation);
  if (++generation < 6)
    test_in_child(has_children);
  check_all();
}

/* What each generation frees of the blocks of those before it serves the later ones. */
static void stays_small_in_a_chain(void) {
  static long before;
  if (generation == 0)
    before = test_rss_kib();
  replace(generation, BLOCKS / 20, STEP, test_seed + generation);
  if (++generation < 40) {
    test_in_child(stays_small_in_a_chain);
    return;
  }
  long now = test_rss_kib();
  CHECK_SAY(!TEST_RSS_COUNTS || now < before + before / 2, "%ld KiB, %ld in the first", now, before);
  check_all();
}

static void fill_all(void) {
  uint64_t seed = test_seed;
  for (size_t i = 0; i < BLOCKS; i++)
    place_fill(i, &seed);
}

static sem_t filled;

static void *fill_and_sleep(void *unused) {
  fill_all();
  CHECK(sem_post(&filled) == 0);
  for (;;)
    pause();
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  if (argc > 1 && strcmp(argv[1], "worker") == 0) { /* the thread that forks has a small heap itself */
    t_free(t_malloc(1));
    CHECK(sem_init(&filled, 0, 0) == 0);
    pthread_t worker;
    test_threads_start(&worker, 1, fill_and_sleep, NULL, 0);
    CHECK(sem_wait(&filled) == 0);
    test_in_child(copies_few_pages);
    growth_share = 2; /* the child returns to the pool that the thread had */
    test_in_child(stays_small);
    return 0;
  }
  fill_all();
  if (argc > 1 && strcmp(argv[1], "threads") == 0) {
    test_in_child(has_threads);
    return 0;
  }
  test_in_child(copies_few_pages);
  test_in_child(stays_small);
  test_in_child(uses_what_it_freed);
  test_in_child(has_children);
  test_in_child(stays_small_in_a_chain);
  check_all();
}
