/* The program limits its memory itself, after it has begun to allocate. It fills the limit and frees all, again and
 * again, and gets as much each time: the library asks for the limit again when memory runs out. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "../heap_api.h"

#define LIMIT_BYTES (400 * MIB)
#define BLOCK_BYTES_MAX 3000000
#define ROUNDS 30
#define REFUSALS 40
#define PLACES 4096

/* Fills the limit and frees all. Returns the bytes that it got. */
static size_t fill(char **blocks, uint64_t *seed) {
  size_t got = 0, count = 0;
  for (unsigned refused = 0; refused < REFUSALS && count < PLACES;) {
    size_t size = 1 + test_random(seed) % BLOCK_BYTES_MAX;
    char *block = test_random(seed) % 8 ? t_malloc(size) : t_memalign((size_t)64 << test_random(seed) % 14, size);
    if (block == NULL) {
      refused++;
      continue;
    }
    block[0] = block[size - 1] = 1;
    blocks[count++] = block;
    got += size;
  }
  while (count > 0)
    t_free(blocks[--count]);
  return got;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(TEST_SANITIZED, "a sanitizer's shadow does not fit under a limit");
  uint64_t seed = test_seed;
  struct rlimit limit = {LIMIT_BYTES, LIMIT_BYTES};
  char **blocks = mmap(NULL, PLACES * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(blocks != MAP_FAILED);
  t_free(t_malloc(BLOCK_BYTES_MAX)); /* for which the library asks whether there is a limit */
  CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  size_t first = fill(blocks, &seed), got = 0;
  for (unsigned round = 1; round < ROUNDS; round++)
    got = fill(blocks, &seed);
  printf("%zu MiB at first, %zu in round %d\n", first / MIB, got / MIB, ROUNDS);
  CHECK_SAY(got >= first / 20 * 19, "%zu of %zu bytes", got, first);
}
