/* large_mix: a table of big blocks; one picked at random is replaced by one of random size, every page of which
 * is written once. Sizes are log-uniform: as many blocks in each doubling. With uniform sizes half the blocks
 * would be over half of MAX and the small end would hardly occur. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

struct item {
  unsigned char *block;
  uint64_t size;
};

int main(int argc, char **argv) {
  enum { LIVE, MIN_KIB, MAX_KIB, OPS, SEED, STRIDE, PARAMS };
  struct bench_param params[PARAMS] = {
      {"LIVE", 100, 1, 1 << 20, "live blocks"},
      {"MIN_KIB", 64, 1, 1 << 24, "smallest block, KiB"},
      {"MAX_KIB", 16384, 1, 1 << 24, "largest block, KiB"},
      {"OPS", 5000, 1, 1000000000000, "replacements, each a free and a malloc"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"STRIDE", 4096, 1, 1 << 30, "bytes from one write to the next; 1: all of the block"},
  };
  struct bench bench = {.name = "large_mix",
                        .about = "Replaces random ones of LIVE big blocks and writes to every page of the fresh one.",
                        .params = params,
                        .param_count = PARAMS,
                        .repeats = true};
  bench_arguments(&bench, argc, argv);
  const uint64_t live = params[LIVE].value, ops = params[OPS].value, stride = params[STRIDE].value;
  const double size_min = (double)params[MIN_KIB].value * 1024;
  const double doublings = log2((double)params[MAX_KIB].value / (double)params[MIN_KIB].value);
  struct item *items = bench_table(&bench, live, sizeof *items);
  uint64_t random = bench_seed(params[SEED].value, 0), hash = 0, live_bytes = 0, live_bytes_max = 0;

  bench_start(&bench);
  uint64_t filled = 0, done;
  do {
    for (uint64_t i = filled; i < live + ops; i++) {
      uint64_t r = bench_random(&random);
      struct item *item = i < live ? &items[i] : &items[bench_pick(r, live)];
      if (item->block) {
        hash = bench_mix(hash, bench_touched(item->block, item->size, stride));
        live_bytes -= item->size;
        free(item->block);
      }
      item->size = (uint64_t)(size_min * exp2(doublings * (double)(uint32_t)r * 0x1p-32));
      item->block = bench_block(malloc(item->size));
      bench_touch(item->block, item->size, stride, r);
      live_bytes += item->size;
      live_bytes_max = live_bytes > live_bytes_max ? live_bytes : live_bytes_max;
    }
    done = live + ops - filled;
    filled = live; /* once */
  } while (bench_again(&bench, done));
  bench_stop(&bench, bench.ops);

  bench_extra(&bench, "live_kb", (double)live_bytes / 1024);
  bench_extra(&bench, "live_peak_kb", (double)live_bytes_max / 1024);
  bench_extra(&bench, "peak_over_live",
              ((double)bench.rss_peak_kb - (double)bench.tables_kb) * 1024 / (double)live_bytes_max);
  return bench_report(&bench, bench_mix(hash, live_bytes));
}
