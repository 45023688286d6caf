/* Under a limit on memory the heap gives nine tenths of it, then NULL and ENOMEM, never a crash; after a
 * free it gives again.
 *
 *   address_space LIMIT SIZE   LIMIT: as (RLIMIT_AS), data (RLIMIT_DATA), none; SIZE: bytes a block, or `mixed`:
 *                              16 B to 256 KiB, as many of each doubling
 *
 * The limit is set here and the program runs itself again under it, since a library learns about limits
 * when it starts. */
#include <sys/resource.h>

#include "../chain.h"

#define LIMIT_BYTES ((size_t)(TEST_SANITIZED ? 32 : 256) << 20)

#define MIXED 0

static size_t mixed_size(uint64_t *seed) {
  size_t least = (size_t)16 << test_random(seed) % 14;
  return least + test_random(seed) % least;
}

/* Returns the bytes asked for and got. What is limited is address space, so a page of each 64 KiB is as good as all. */
static size_t fill(struct link **chain, size_t asked, size_t bytes_max) {
  size_t got = 0;
  uint64_t seed = test_seed;
  *chain = NULL;
  while (got < bytes_max) {
    size_t size = asked == MIXED ? mixed_size(&seed) : asked;
    if (!chain_link(chain, chain_block_written(size, 65536)))
      break;
    got += size;
  }
  return got;
}

static void limited_run(const char *limit, size_t size) {
  struct link *chain;
  size_t bytes_max = strcmp(limit, "none") == 0 ? LIMIT_BYTES : LIMIT_BYTES * 2, expected = LIMIT_BYTES / 10 * 9;
  size_t first = fill(&chain, size, bytes_max);
  CHECK_SAY(strcmp(limit, "none") == 0 || first < LIMIT_BYTES, "%zu bytes under a limit of %zu", first, LIMIT_BYTES);
  CHECK_SAY(first >= expected, "%zu bytes under a limit of %zu", first, LIMIT_BYTES);
  /* Out of memory: every way to ask says so, and the old block stays. */
  if (strcmp(limit, "none") != 0) {
    CHECK(t_calloc(1, LIMIT_BYTES) == NULL && errno == ENOMEM);
    char *block = t_realloc(NULL, LIMIT_BYTES);
    CHECK(block == NULL);
    CHECK(t_aligned_alloc(4096, LIMIT_BYTES) == NULL && errno == ENOMEM);
    struct link *next = chain->next;
    CHECK(t_realloc(test_opaque(chain), LIMIT_BYTES) == NULL && errno == ENOMEM);
    CHECK(chain->next == next);
  }
  chain_drain(chain);
  /* What was freed serves again: the same size, and another. */
  size_t again = fill(&chain, size, bytes_max);
  CHECK_SAY(again >= first * 9 / 10, "%zu bytes the second time, %zu the first", again, first);
  chain_drain(chain);
  t_trim(0);
  size_t other = fill(&chain, size > 65536 ? 40000 : size > 10000 ? 64 : 200000, bytes_max);
  CHECK_SAY(other >= LIMIT_BYTES / 10 * 8, "%zu bytes of another size afterwards", other);
  chain_drain(chain);
  printf("address_space %s %zu: ok (%zu %% of the limit)\n", limit, size, first * 100 / LIMIT_BYTES);
}

int main(int argc, char **argv) {
  CHECK(argc > 2);
  test_begin(argc, argv);
  size_t size = strcmp(argv[2], "mixed") == 0 ? MIXED : strtoul(argv[2], NULL, 0);
  if (strcmp(argv[1], "none") == 0 || getenv("TEST_LIMITED")) {
    limited_run(argv[1], size);
    return 0;
  }
  test_skip_if(TEST_SANITIZED, "a sanitizer's shadow does not fit under a limit");
  struct rlimit limit = {LIMIT_BYTES, LIMIT_BYTES};
  CHECK(setrlimit(strcmp(argv[1], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA, &limit) == 0);
  CHECK(setenv("TEST_LIMITED", "1", 1) == 0);
  execv(argv[0], argv);
  check_failed(__FILE__, __LINE__, "execv", "%s", strerror(errno));
}
