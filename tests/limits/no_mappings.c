/* The program has used up the mappings that the system allows a process, but for LEFT: what was reserved before serves,
 * in every set of options; what does not fit gets NULL. With a few left, the library must not use them up by unmapping
 * what lies between others. */
#include <sys/mman.h>

#include "mixed.h"

#define PLACES 1000
#define PAGES 140000
#define REQUESTS 20000
#define REFUSED_PERCENT_MAX 1
#define LONG_PLACES 300 /* with some mappings left: for blocks of up to 3 MB, some up to 40, some at up to 4 MiB */

static const char *const option_sets[] = {
    "HAKMEM_PROFILE=balanced",
    "HAKMEM_PROFILE=speed",
    "HAKMEM_PROFILE=lean",
    "HAKMEM_HUGE=all",
    "HAKMEM_HUGE=off",
    "HAKMEM_COUNT=1",
    "LEFT=60",
};
#define OPTION_SETS (sizeof option_sets / sizeof option_sets[0])

static char *blocks[PLACES];

/* Each page that gets other rights makes one mapping two more. */
static void use_up_mappings(size_t left) {
  char *range = mmap(NULL, (size_t)PAGES * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(range != MAP_FAILED);
  for (size_t i = 0; i < PAGES; i += 2)
    if (mprotect(range + i * 4096, 4096, PROT_READ) != 0) {
      CHECK(mprotect(range + (i - left) * 4096, left * 4096, PROT_NONE) == 0);
      return;
    }
  test_skip("the system allows more mappings than this test makes");
}

static void work(const char *options) {
  uint64_t seed = test_seed;
  long refused = 0;
  const char *left = getenv("LEFT");
  t_free(t_malloc(100));
  use_up_mappings(left ? strtoul(left, NULL, 10) : 0);
  for (long step = 0; step < REQUESTS; step++) {
    unsigned i = (unsigned)(test_random(&seed) % (left ? LONG_PLACES : PLACES));
    size_t size =
        left ? 1 + test_random(&seed) % (test_random(&seed) % 64 ? 3000000 : 40000000) : mixed_size(&seed, 2300000);
    t_free(blocks[i]);
    blocks[i] = left && step % 5 == 0 ? t_memalign((size_t)16 << test_random(&seed) % 19, size) : t_malloc(size);
    if (blocks[i])
      memset(blocks[i], 1, left ? 1 : size);
    else
      refused++;
  }
  printf("no mappings, %s: %ld of %d refused\n", options, refused, REQUESTS);
  fflush(stdout);
  CHECK_SAY(refused <= REQUESTS / 100 * REFUSED_PERCENT_MAX, "%s: %ld of %d refused", options, refused, REQUESTS);
}

static void nothing(char **argv) {}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(TEST_SANITIZED, "a sanitizer needs mappings of its own");
  mixed_in_sets(option_sets, OPTION_SETS, argv, nothing, work);
}
