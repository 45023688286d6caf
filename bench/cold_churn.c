/* cold_churn: big blocks from many call sites, in sizes that hardly repeat. A few neighbouring sites are in use at a
 * time; the group moves on, so what was kept for a site comes too late or is thrown out first. The number of
 * live blocks swings between LIVE and a quarter of it, so that much is freed before it is wanted again.
 * The oldest block goes first. */
#include "bench.h"
#include "sites.h"

#include <math.h>
#include <stdlib.h>

enum { SITES_MAX = 256, GROUP = 8 };

ALL_256(SITE)
static unsigned char *(*const sites[SITES_MAX])(size_t) = {ALL_256(SITE_NAME)};

struct item {
  unsigned char *block;
  uint64_t size;
};

/* Blocks in the order of their birth: a ring. */
struct queue {
  struct item *items;
  uint64_t capacity, first, count, live_bytes, hash, stride;
};

static void drop_oldest(struct queue *queue) {
  struct item *item = &queue->items[queue->first];
  queue->first = (queue->first + 1) % queue->capacity;
  queue->count--;
  queue->live_bytes -= item->size;
  queue->hash = bench_mix(queue->hash, bench_touched(item->block, item->size, queue->stride));
  free(item->block);
}

static void add(struct queue *queue, uint64_t site, uint64_t size, uint64_t value) {
  struct item *item = &queue->items[(queue->first + queue->count++) % queue->capacity];
  item->block = bench_block(sites[site](size));
  item->size = size;
  queue->live_bytes += size;
  bench_touch(item->block, size, queue->stride, value);
}

int main(int argc, char **argv) {
  enum { SITES, LIVE, MIN_KIB, MAX_KIB, OPS, SEED, STRIDE, PARAMS };
  struct bench_param params[PARAMS] = {
      {"SITES", SITES_MAX, GROUP, SITES_MAX, "call sites"},
      {"LIVE", 100, 4, 1 << 20, "most live blocks"},
      {"MIN_KIB", 64, 1, 1 << 24, "smallest block, KiB"},
      {"MAX_KIB", 4096, 1, 1 << 24, "largest block, KiB"},
      {"OPS", 40000, 1, 1000000000000, "mallocs; the frees follow"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"STRIDE", 4096, 1, 1 << 30, "bytes from one write to the next; 1: all of the block"},
  };
  struct bench bench = {.name = "cold_churn",
                        .about = "Big blocks of many sites and sizes that are hardly ever asked for again.",
                        .params = params,
                        .param_count = PARAMS,
                        .repeats = true};
  bench_arguments(&bench, argc, argv);
  const uint64_t live = params[LIVE].value, ops = params[OPS].value, site_count = params[SITES].value;
  const double size_min = (double)params[MIN_KIB].value * 1024;
  const double doublings = log2((double)params[MAX_KIB].value / (double)params[MIN_KIB].value);
  const uint64_t move_every = live / 4 + 1, swing = live * 4;
  struct queue queue = {.capacity = live + 1, .stride = params[STRIDE].value};
  queue.items = bench_table(&bench, queue.capacity, sizeof *queue.items);
  uint64_t random = bench_seed(params[SEED].value, 0), live_bytes_max = 0;

  bench_start(&bench);
  uint64_t i = 0;
  do {
    for (uint64_t end = i + ops; i < end; i++) {
      uint64_t r = bench_random(&random);
      uint64_t site = (i / move_every + bench_pick(r, GROUP)) % site_count;
      /* A site's sizes span a doubling that its number chooses, spread evenly over what there is. */
      double place = (double)(site * 37 % site_count) / (double)site_count * fmax(doublings - 1, 0);
      double within = fmin(doublings, 1) * (double)(uint32_t)r * 0x1p-32;
      uint64_t size = (uint64_t)(size_min * exp2(place + within));
      uint64_t phase = i % swing, half = swing / 2;
      uint64_t wanted = live / 4 + (live - live / 4) * (phase < half ? phase : swing - phase) / half;
      while (queue.count && queue.count >= wanted)
        drop_oldest(&queue);
      add(&queue, site, size, r);
      live_bytes_max = queue.live_bytes > live_bytes_max ? queue.live_bytes : live_bytes_max;
    }
  } while (bench_again(&bench, ops));
  bench_stop(&bench, bench.ops);

  bench_extra(&bench, "live_kb", (double)queue.live_bytes / 1024);
  bench_extra(&bench, "live_peak_kb", (double)live_bytes_max / 1024);
  bench_extra(&bench, "peak_over_live",
              ((double)bench.rss_peak_kb - (double)bench.tables_kb) * 1024 / (double)live_bytes_max);
  return bench_report(&bench, bench_mix(queue.hash, queue.live_bytes));
}
