/* shift: a long churn whose sizes move from small to mid and back while the live bytes stay the same.
 * Blocks die at random, so the memory of sizes that went out of use is full of holes. What counts is
 * the resident memory at the end against the live bytes.
 *
 * By default the share of mid sizes rises from nothing to PEAK percent and falls back to nothing.
 * With --window all sizes come from a window, half to one and a half of a middle that moves from the
 * small sizes to the mid ones and back: every class is used for a while and then never again, so
 * free blocks that are kept in caches of idle classes show.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

/* A block and its size in one word: 48 bits of address, 16 of size. */
enum { ADDRESS_BITS = 48, SIZE_LIMIT = 40000, SIZE_MIN = 16, MOVE_EVERY = 1024 };
_Static_assert(SIZE_LIMIT + SIZE_LIMIT / 2 <= 0xffff, "every size of the window fits the packed word");

struct pool {
  uint64_t *slots, count, count_max, live_bytes, random;
};

static void *slot_block(uint64_t packed) { return (void *)(uintptr_t)(packed & ((1ull << ADDRESS_BITS) - 1)); }

static void drop_one(struct pool *pool) {
  uint64_t *slot = &pool->slots[bench_pick(bench_random(&pool->random), pool->count)];
  uint64_t packed = *slot;
  *slot = pool->slots[--pool->count];
  pool->live_bytes -= packed >> ADDRESS_BITS;
  free(slot_block(packed));
}

static void add_one(struct pool *pool, size_t size, uint64_t r) {
  unsigned char *block = bench_block(malloc(size));
  bench_mark(block, size, r);
  if ((uintptr_t)block >> ADDRESS_BITS || pool->count == pool->count_max)
    bench_die("a block does not fit the table");
  pool->slots[pool->count++] = (uint64_t)size << ADDRESS_BITS | (uintptr_t)block;
  pool->live_bytes += size;
}

int main(int argc, char **argv) {
  enum { LIVE_MIB, OPS, SEED, SMALL_MAX, MID_MAX, PEAK, PARAMS };
  struct bench_param params[PARAMS] = {
      {"LIVE_MIB", 100, 1, 65536, "live MiB, kept all the time"},
      {"OPS", 6000000, 1, 1000000000000, "mallocs; as many frees as keep the live bytes"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"SMALL_MAX", 512, 64, 4096, "small sizes are 16 to this"},
      {"MID_MAX", 8192, 65, SIZE_LIMIT, "mid sizes are over SMALL_MAX, up to this"},
      {"PEAK", 30, 0, 100, "percent of mid sizes half-way"},
  };
  struct bench bench = {.name = "shift",
                        .about = "Churn under a constant number of live bytes, sizes moving up and back down.",
                        .params = params,
                        .param_count = PARAMS,
                        .repeats = true,
                        .flag = "--window",
                        .flag_text = "one moving window of sizes in place of a mix"};
  bench_arguments(&bench, argc, argv);
  const uint64_t live_max = params[LIVE_MIB].value << 20, ops = params[OPS].value;
  const uint64_t small_max = params[SMALL_MAX].value, mid_max = params[MID_MAX].value;
  if (small_max >= mid_max)
    bench_refuse(&bench, "MID_MAX %ju is not over SMALL_MAX %ju", (uintmax_t)mid_max, (uintmax_t)small_max);
  const double small_mean = (double)(SIZE_MIN + small_max) / 2, mid_mean = (double)(small_max + mid_max) / 2;

  /* The mean size is small_mean or more; twice the blocks of that size leave room for chance. */
  struct pool pool = {.count_max = (uint64_t)((double)live_max / small_mean) * 2 + 64};
  pool.random = bench_seed(params[SEED].value, 0);
  pool.slots = bench_table(&bench, pool.count_max, sizeof *pool.slots);
  uint64_t mid_below = 0, window_min = SIZE_MIN, window_span = 1;

  bench_start(&bench);
  do {
    for (uint64_t i = 0; i < ops; i++) {
      if (i % MOVE_EVERY == 0) {
        double way = 1 - fabs(2 * (double)i / (double)ops - 1); /* 0 to 1 to 0 */
        double middle = small_mean * pow(mid_mean / small_mean, way);
        mid_below = (uint64_t)(way * (double)params[PEAK].value / 100 * 0x1p32);
        window_min = (uint64_t)(middle / 2);
        window_span = (uint64_t)middle + 1;
      }
      uint64_t r = bench_random(&pool.random), size;
      if (bench.flag_given)
        size = window_min + bench_pick_low(r, window_span);
      else if (r >> 32 < mid_below)
        size = small_max + 1 + bench_pick_low(r, mid_max - small_max);
      else
        size = SIZE_MIN + bench_pick_low(r, small_max - SIZE_MIN + 1);
      while (pool.live_bytes + size > live_max)
        drop_one(&pool);
      add_one(&pool, size, r);
    }
  } while (bench_again(&bench, ops));
  bench_stop(&bench, bench.ops);

  uint64_t hash = bench_mix(bench_mix(pool.random, pool.live_bytes), pool.count);
  for (uint64_t i = 0; i < pool.count; i++)
    hash = bench_mix(hash, *(unsigned char *)slot_block(pool.slots[i]));
  bench_extra(&bench, "live_kb", (double)pool.live_bytes / 1024);
  bench_extra(&bench, "rss_over_live",
              ((double)bench.rss_kb - (double)bench.tables_kb) * 1024 / (double)pool.live_bytes);
  return bench_report(&bench, hash);
}
