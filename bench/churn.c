/* churn: millions of live blocks; one picked at random is freed and replaced by one of random size.
 * Every step meets memory that left the caches long ago, in the program and in the allocator. */
#include "bench.h"

#include <stdlib.h>

int main(int argc, char **argv) {
  enum { LIVE, MIN, MAX, OPS, SEED, PARAMS };
  struct bench_param params[PARAMS] = {
      {"LIVE", 2000000, 1, 1000000000, "live blocks"},
      {"MIN", 40, 1, 1 << 20, "smallest block, bytes"},
      {"MAX", 103, 1, 1 << 20, "largest block, bytes"},
      {"OPS", 4000000, 1, 1000000000000, "replacements, each a free and a malloc"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
  };
  struct bench bench = {.name = "churn",
                        .about = "Fills LIVE blocks, then replaces random ones; the replacements are timed.",
                        .params = params,
                        .param_count = PARAMS,
                        .repeats = true};
  bench_arguments(&bench, argc, argv);
  const uint64_t live = params[LIVE].value, ops = params[OPS].value, size_min = params[MIN].value;
  const uint64_t span = params[MAX].value - size_min + 1;
  unsigned char **blocks = bench_table(&bench, live, sizeof *blocks);
  uint64_t random = bench_seed(params[SEED].value, 0), size_sum = 0;

  uint64_t fill_ns = bench_clock_ns();
  for (uint64_t i = 0; i < live; i++) {
    uint64_t r = bench_random(&random);
    size_t size = size_min + bench_pick_low(r, span);
    blocks[i] = bench_block(malloc(size));
    bench_mark(blocks[i], size, r);
  }
  fill_ns = bench_clock_ns() - fill_ns;

  bench_start(&bench);
  do {
    for (uint64_t i = 0; i < ops; i++) {
      uint64_t r = bench_random(&random);
      unsigned char **slot = &blocks[bench_pick(r, live)];
      size_t size = size_min + bench_pick_low(r, span);
      free(*slot);
      *slot = bench_block(malloc(size));
      bench_mark(*slot, size, r);
      size_sum += size;
    }
  } while (bench_again(&bench, ops));
  bench_stop(&bench, bench.ops);

  uint64_t hash = bench_mix(random, size_sum), empty_ns = bench_clock_ns();
  for (uint64_t i = 0; i < live; i++) {
    hash = bench_mix(hash, blocks[i][0]);
    free(blocks[i]);
  }
  empty_ns = bench_clock_ns() - empty_ns;
  bench_extra(&bench, "fill_ns_per_block", (double)fill_ns / (double)live);
  bench_extra(&bench, "empty_ns_per_block", (double)empty_ns / (double)live);
  return bench_report(&bench, hash);
}
