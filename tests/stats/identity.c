/* "mapped = sum of the parts": while threads allocate, free each other's blocks, resize and trim, to within what moves;
 * exactly when all rest; in children of forks too. In check builds the library asserts the same at each fork.
 *
 * Positive control: with `units`, `extents` or `large`, the reading forgets a part; a CHECK must fail.
 */
#include "../child.h"
#include "../reclaim/again.h"
#include "../threads.h"

#include <stdatomic.h>

static const char *lie = "";

#ifdef TEST_CORE
#include "large/large.h"
#include "pages/extent.h"

TEST_WRAP(void, extents_stats, struct extent_stats *out) {
  __real_extents_stats(out);
  if (strcmp(lie, "extents") == 0)
    out->unused_bytes = 0;
}
TEST_WRAP(void, large_stats, struct large_stats *out) {
  __real_large_stats(out);
  if (strcmp(lie, "large") == 0)
    out->mapping_bytes = 0;
}
#endif

#define THREADS 4
#define PLACES 512
#define PART_SUM(group, name, kind, unit, sentence) +(IS_##group ? stats->name : 0)
enum { IS_PART = 1, IS_MEMORY = 0, IS_HEAP = 0, IS_REFILL = 0, IS_FREE = 0 };
enum { IS_LARGE = 0, IS_COUNTED = 0, IS_EARLY = 0, IS_PURGE = 0, IS_SYSTEM = 0, IS_POLICY = 0 };

static _Atomic(void *) places[PLACES]; /* whoever takes a block from here frees it */
static _Atomic int ending;

static uint64_t parts_sum(const struct hak_stats *stats) { return 0 HAK_STATS_ROWS(PART_SUM); }

static void check(const char *when, int at_rest) {
  static int (*get)(struct hak_stats *);
  struct hak_stats stats;
  if (get == NULL)
    get = TEST_HAK(hak_stats_get);
  get(&stats);
  uint64_t sum = parts_sum(&stats), mapped = stats.mapped_bytes;
  uint64_t apart = sum > mapped ? sum - mapped : mapped - sum;
  CHECK_SAY(apart <= stats.moving_bytes, "%s: mapped %lu, parts %lu, moving %lu", when, mapped, sum,
            stats.moving_bytes);
  if (at_rest)
    CHECK_SAY(stats.moving_bytes == 0, "%s: %lu move", when, stats.moving_bytes);
  CHECK(mapped == stats.committed_bytes + stats.large_mapping_bytes + stats.metadata_bytes);
  CHECK(stats.committed_bytes <= stats.reserved_bytes && stats.heap_bytes <= stats.heap_peak_bytes);
}

static size_t size_drawn(uint64_t *seed) {
  unsigned dice = (unsigned)(test_random(seed) % 1000);
  size_t most = dice < 800 ? 2000 : dice < 950 ? 100000 : dice < 995 ? 4000000 : 40000000;
  return 1 + test_random(seed) % most;
}

static void step(uint64_t *seed) {
  _Atomic(void *) *place = &places[test_random(seed) % PLACES];
  unsigned dice = (unsigned)(test_random(seed) % 4000);
  void *block = atomic_exchange(place, NULL);
  if (dice < 2 * 400 && block) {
    void *resized = t_realloc(block, size_drawn(seed));
    block = resized ? resized : block;
  } else {
    t_free(block);
    block = t_malloc(size_drawn(seed));
  }
  if (block)
    *(char *)block = 1;
  t_free(atomic_exchange(place, block));
  if (dice == 3999)
    t_trim(test_random(seed) % 2 ? 0 : 1 << 20);
}

static void *work(void *argument) {
  uint64_t seed = test_seed + (uintptr_t)argument;
  while (!atomic_load(&ending))
    step(&seed);
  return NULL;
}

/* What was on its way when the other threads were lost stays moving. */
static void fork_and_check(void) {
  pid_t child = test_fork();
  if (child == 0) {
    uint64_t seed = 99;
    check("in a child", 0);
    for (int i = 0; i < 100; i++)
      step(&seed);
    check("in a child that works", 0);
    _exit(0);
  }
  test_child_passes(child);
}

static void run_threads(long snapshots, int may_fork) {
  pthread_t threads[THREADS];
  atomic_store(&ending, 0);
  test_threads_start(threads, THREADS, work, (void *)(uintptr_t)1, 1);
  for (long i = 0; i < snapshots; i++) {
    check("while threads run", 0);
    if (may_fork && i % 32 == 31)
      fork_and_check();
    if (i % 8 == 0)
      usleep(200);
  }
  atomic_store(&ending, 1);
  test_threads_join(threads, THREADS);
}

int main(int argc, char **argv) {
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", "off");
#ifdef TEST_CORE
  if (argc > 1 && argv[1][0] != '-')
    lie = argv[1];
#else
  test_skip_if(TEST_HAK(hak_stats_get) == NULL, "hakmem is not loaded");
#endif
  check("at the start", 1);
  void *mapping = t_malloc((size_t)64 << 20);
  void *small = t_malloc(100);
  CHECK(mapping != NULL && small != NULL);
  check("after two blocks", 1);
  for (int round = 0; round < 3; round++) {
    run_threads(test_rounds(400, 20), !TEST_TSAN && !TEST_EMULATED && *lie == 0); /* a fork may find the lie first */
    check("at rest", 1);
    t_trim(0);
    check("after a trim", 1);
  }
  t_free(small);
  t_free(mapping);
  for (int i = 0; i < PLACES; i++)
    t_free(atomic_exchange(&places[i], NULL));
  check("after all was freed", 1);
}
