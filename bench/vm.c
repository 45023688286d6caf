/* vm: COUNT blocks of SIZE from one call site are allocated, get a byte in every page, and are freed, round after
 * round. An allocator that keeps the blocks has its page faults in the first round only; one that gives them
 * back pays for every page again. */
#include "bench.h"

#include <stdlib.h>

int main(int argc, char **argv) {
  enum { SIZE, COUNT, ROUNDS, SEED, PARAMS };
  struct bench_param params[PARAMS] = {
      {"SIZE", 2 << 20, 1, 1ull << 34, "bytes of a block"},
      {"COUNT", 100, 1, 1 << 20, "blocks, all live at once"},
      {"ROUNDS", 100, 2, 1000000000, "rounds; the first brings the memory in"},
      {"SEED", 1, 0, UINT64_MAX, "of what is written"},
  };
  struct bench bench = {.name = "vm",
                        .about = "Allocates, touches and frees COUNT big blocks a round; a block counts one.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  enum { STRIDE = 4096 };
  const uint64_t size = params[SIZE].value, count = params[COUNT].value, rounds = params[ROUNDS].value;
  unsigned char **blocks = bench_table(&bench, count, sizeof *blocks);
  uint64_t random = bench_seed(params[SEED].value, 0), hash = 0, first_ns = 0, first_faults = 0;

  bench_start(&bench);
  for (uint64_t round = 0; round < rounds; round++) {
    uint64_t r = bench_random(&random);
    for (uint64_t i = 0; i < count; i++) {
      blocks[i] = bench_block(malloc(size));
      bench_touch(blocks[i], size, STRIDE, r + i);
    }
    for (uint64_t i = 0; i < count; i++) {
      hash = bench_mix(hash, bench_touched(blocks[i], size, STRIDE));
      free(blocks[i]);
    }
    if (!round) {
      first_faults = bench_faults();
      first_ns = bench_clock_ns() - bench.start_ns;
    }
  }
  bench_stop(&bench, rounds * count);

  bench_extra(&bench, "faults_after_first", (double)(bench.faults_minor - first_faults));
  bench_extra(&bench, "first_round_ms", (double)first_ns / 1e6);
  bench_extra(&bench, "later_ops_per_s", (double)((rounds - 1) * count) / (bench.seconds - (double)first_ns / 1e9));
  bench_extra(&bench, "peak_over_live",
              ((double)bench.rss_peak_kb - (double)bench.tables_kb) * 1024 / ((double)size * (double)count));
  return bench_report(&bench, hash);
}
