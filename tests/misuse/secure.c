/* What the preset `secure` promises (docs/security.md): no block shows what others left, freed blocks wait, places
 * cannot be foreseen, canaries differ between blocks, processes and after a fork, and all of this goes on in threads
 * and children. */
#include <pthread.h>
#include <sys/wait.h>

#include "../check.h"
#include "../heap_api.h"

#define FILL 0x5a
#define QUARANTINE 8 /* the preset's value */

static void shows_nothing(const unsigned char *block, size_t size) {
  for (size_t i = 0; i < size; i++)
    CHECK_SAY(block[i] == 0, "byte %zu of %zu shows 0x%x", i, size, block[i]);
}

/* Blocks of all sizes, again and again: new and longer ones read as zero, and the program's bytes stay. */
static void *never_stale(void *seed_of_thread) {
  enum { SLOTS = 64 };
  unsigned char *blocks[SLOTS] = {0};
  size_t sizes[SLOTS];
  uint64_t seed = test_seed + (uintptr_t)seed_of_thread;
  for (long n = test_rounds(1000, 20); n > 0; n--) {
    unsigned i = (unsigned)(test_random(&seed) % SLOTS);
    unsigned shift = (unsigned)(test_random(&seed) % 20);
    size_t size = 1 + test_random(&seed) % ((size_t)2 << shift);
    if (blocks[i] != NULL && n % 3 == 0) {
      unsigned char *moved = t_realloc(blocks[i], size);
      CHECK(moved != NULL && t_usable_size(moved) >= size);
      size_t kept = size < sizes[i] ? size : sizes[i];
      for (size_t b = 0; b < kept; b++)
        CHECK(moved[b] == FILL);
      shows_nothing(moved + kept, size - kept);
      blocks[i] = moved;
    } else {
      t_free(blocks[i]);
      blocks[i] = n % 7 == 0 ? t_aligned_alloc(256, (size + 255) / 256 * 256) : t_malloc(size);
      CHECK(blocks[i] != NULL && (n % 7 != 0 || (uintptr_t)blocks[i] % 256 == 0));
      shows_nothing(blocks[i], size);
    }
    memset(blocks[i], FILL, sizes[i] = size);
  }
  for (unsigned i = 0; i < SLOTS; i++)
    t_free(blocks[i]);
  return NULL;
}

static void in_threads(void) {
  pthread_t threads[3];
  for (uintptr_t i = 0; i < 3; i++)
    CHECK(pthread_create(&threads[i], NULL, never_stale, (void *)i) == 0);
  for (int i = 0; i < 3; i++)
    pthread_join(threads[i], NULL);
}

/* A freed block is not given out before QUARANTINE others of its class were freed. */
static void freed_blocks_wait(void) {
  for (int turn = 0; turn < 200; turn++) {
    void *freed[QUARANTINE];
    for (int i = 0; i < QUARANTINE; i++)
      freed[i] = t_malloc(100);
    for (int i = 0; i < QUARANTINE; i++) {
      t_free(freed[i]);
      void *next = t_malloc(100);
      for (int before = 0; before <= i; before++)
        CHECK(next != freed[before]);
      CHECK(next != NULL);
    }
  }
}

/* Of the blocks that follow each other, about as many lie higher as lie lower, and neighbours are rare. */
static void places_are_random(void) {
  enum { BLOCKS = 4000 };
  static char *blocks[BLOCKS];
  unsigned higher = 0, beside = 0;
  for (int i = 0; i < BLOCKS; i++) {
    blocks[i] = t_malloc(100);
    ptrdiff_t step = i > 0 ? blocks[i] - blocks[i - 1] : 0;
    higher += step > 0;
    beside += step == 112;
  }
  CHECK_SAY(higher > BLOCKS / 4 && higher < BLOCKS * 3 / 4, "%u of %d lie higher", higher, BLOCKS);
  CHECK_SAY(beside < BLOCKS / 4, "%u of %d lie beside the one before", beside, BLOCKS);
  for (int i = 0; i < BLOCKS; i++)
    t_free(blocks[i]);
}

static uint64_t canary_behind(const char *block, size_t size) {
  uint64_t word;
  memcpy(&word, block + size, sizeof word);
  return word;
}

/* A block of before the fork keeps its canary; the child's new blocks have others, also at the same address. */
static void canaries_differ(void) {
  enum { BLOCKS = 400 };
  static char *blocks[BLOCKS];
  int result[2];
  CHECK(pipe(result) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = t_malloc(1000);
  if (child == 0) {
    for (int i = 0; i < BLOCKS; i++) {
      uint64_t pair[2] = {(uintptr_t)blocks[i], canary_behind(blocks[i], 1000)};
      CHECK(write(result[1], pair, sizeof pair) == (ssize_t)sizeof pair);
    }
    _exit(0);
  }
  close(result[1]);
  unsigned same_place = 0;
  for (uint64_t pair[2]; read(result[0], pair, sizeof pair) == (ssize_t)sizeof pair;)
    for (int i = 0; i < BLOCKS; i++) {
      CHECK(i == 0 || canary_behind(blocks[i], 1000) != canary_behind(blocks[i - 1], 1000));
      if ((uintptr_t)blocks[i] != pair[0])
        continue;
      same_place++;
      CHECK(canary_behind(blocks[i], 1000) != pair[1]);
    }
  close(result[0]);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_SAY(same_place > 0, "no address is in both processes");
  for (int i = 0; i < BLOCKS; i++)
    t_free(blocks[i]);
}

/* Blocks of before a fork are freed in the child of a child, where the secret is another one. */
static void forks_go_on(int depth) {
  enum { BLOCKS = 100 };
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = t_malloc((size_t)i * 100 + 1);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    if (depth > 0)
      forks_go_on(depth - 1);
    for (int i = 0; i < BLOCKS; i++)
      t_free(blocks[i]);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  for (int i = 0; i < BLOCKS; i++)
    t_free(blocks[i]);
}

int main(int argc, char **argv) {
  if (!getenv("TEST_EXPECT_HAKMEM"))
    test_skip("another allocator promises none of this");
  test_begin(argc, argv);
  never_stale(NULL);
  in_threads();
  freed_blocks_wait();
  places_are_random();
  canaries_differ();
  forks_go_on(10);
  puts("secure: ok");
  return 0;
}
