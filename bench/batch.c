/* batch: allocate many, then free them all: first come first, last come first, in random order. */
#include "bench.h"

#include <stdlib.h>

int main(int argc, char **argv) {
  enum { COUNT, ROUNDS, SEED, MIN, MAX, PARAMS };
  struct bench_param params[PARAMS] = {
      {"COUNT", 10000, 1, 100000000, "blocks allocated before the first free"},
      {"ROUNDS", 300, 1, 1000000000, "times each order is done"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"MIN", 16, 1, 1 << 20, "smallest block, bytes"},
      {"MAX", 256, 1, 1 << 20, "largest block, bytes"},
  };
  struct bench bench = {.name = "batch",
                        .about =
                            "Allocates COUNT blocks and frees them in three orders; malloc and free count one each.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  const uint64_t count = params[COUNT].value, rounds = params[ROUNDS].value, size_min = params[MIN].value;
  const uint64_t span = params[MAX].value - size_min + 1;

  enum { FIFO, LIFO, RANDOM, ORDERS };
  static const char *const names[ORDERS] = {"fifo_seconds", "lifo_seconds", "random_seconds"};
  uint64_t spent_ns[ORDERS] = {0}, random = bench_seed(params[SEED].value, 0), hash = 0;
  unsigned char **blocks = bench_table(&bench, count, sizeof *blocks);
  uint32_t *order[ORDERS];
  for (int o = 0; o < ORDERS; o++) {
    order[o] = bench_table(&bench, count, sizeof *order[o]);
    for (uint64_t i = 0; i < count; i++)
      order[o][i] = (uint32_t)(o == LIFO ? count - 1 - i : i);
  }
  for (uint64_t i = count - 1; i > 0; i--) {
    uint64_t j = bench_pick(bench_random(&random), i + 1);
    uint32_t kept = order[RANDOM][i];
    order[RANDOM][i] = order[RANDOM][j];
    order[RANDOM][j] = kept;
  }

  bench_start(&bench);
  for (uint64_t round = 0; round < rounds; round++)
    for (int o = 0; o < ORDERS; o++) {
      uint64_t began_ns = bench_clock_ns(), size_sum = 0;
      for (uint64_t i = 0; i < count; i++) {
        uint64_t r = bench_random(&random);
        size_t size = size_min + bench_pick_low(r, span);
        blocks[i] = bench_block(malloc(size));
        bench_mark(blocks[i], size, r);
        size_sum += size;
      }
      hash = bench_mix(bench_mix(hash, size_sum), blocks[count / 2][0]);
      for (uint64_t i = 0; i < count; i++)
        free(blocks[order[o][i]]);
      spent_ns[o] += bench_clock_ns() - began_ns;
    }
  bench_stop(&bench, rounds * ORDERS * count * 2);
  for (int o = 0; o < ORDERS; o++)
    bench_extra(&bench, names[o], (double)spent_ns[o] / 1e9);
  return bench_report(&bench, hash);
}
