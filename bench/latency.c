/* latency: random_mixed with a clock around every malloc and every free.
 *
 * Each call is timed alone (ticks.h) and counted in a histogram (hdr.h) that is this thread's own; both lie in mapped
 * tables. The first write to the block, where a page may be touched first, stands outside of what is timed. Every
 * eighth operation an empty pair of readings is timed in the same way: what the clock costs by itself, and what
 * interrupts and the host add to any call. That cost is part of every other value. The first 4 x WS operations of a
 * thread are not counted: they set the heap up. --json prints the histograms; percentiles are made of them by the lab
 * alone, which refuses those of too few samples.
 */
#include "bench.h"
#include "hdr.h"
#include "ticks.h"

#include <stdlib.h>

enum {
  LARGE_MIN = 64 * 1024,
  WARM_UP_PER_SLOT = 4,
  EMPTY_EVERY = 8,
  CALIBRATION_NS_MIN = 20 * 1000 * 1000,
  MILLION = 1000000,
};

struct slot {
  unsigned char *block;
  size_t size;
};

struct worker {
  struct slot *slots;
  struct hdr *mallocs, *frees, *empty;
  uint64_t ops, random, size_sum;
} __attribute__((aligned(128)));

static uint64_t ws, size_min, span, large_below, large_span; /* large_below: of 2^32 random numbers, how many */

/* A point in time on both clocks; of several, the one whose readings lie closest together. */
struct moment {
  uint64_t ticks, ns;
};
static struct moment first_moment, last_moment;
static struct hdr *malloc_all, *free_all, *empty_all; /* of all threads, for the report */

static struct moment moment_now(void) {
  struct moment best = {0, 0};
  uint64_t best_width = UINT64_MAX;
  for (int attempt = 0; attempt < 16; attempt++) {
    uint64_t before = ticks_now(), ns = bench_clock_ns(), width = ticks_now() - before;
    if (width < best_width) {
      best = (struct moment){before + width / 2, ns};
      best_width = width;
    }
  }
  return best;
}

static double ticks_per_ns(void) {
  return (double)(last_moment.ticks - first_moment.ticks) / (double)(last_moment.ns - first_moment.ns);
}

static uint64_t time_malloc(size_t size, unsigned char **block) {
  uint64_t begin = ticks_now();
  *block = malloc(size);
  return ticks_now() - begin;
}

static uint64_t time_free(unsigned char *block) {
  uint64_t begin = ticks_now();
  free(block);
  return ticks_now() - begin;
}

static void turn(struct worker *self, bool counted) {
  uint64_t r = bench_random(&self->random), ticks;
  struct slot *slot = &self->slots[bench_pick(r, ws)];
  if (slot->block) {
    ticks = time_free(slot->block);
    slot->block = NULL;
    if (counted)
      hdr_record(self->frees, ticks);
    return;
  }
  uint64_t other = bench_random(&self->random);
  size_t size = size_min + bench_pick_low(r, span);
  if (other >> 32 < large_below)
    size = LARGE_MIN + bench_pick_low(other, large_span);
  ticks = time_malloc(size, &slot->block);
  bench_mark(bench_block(slot->block), size, r);
  slot->size = size;
  self->size_sum += size;
  if (counted)
    hdr_record(self->mallocs, ticks);
}

static void *work(void *argument) {
  struct worker *self = argument;
  for (uint64_t i = 0; i < WARM_UP_PER_SLOT * ws; i++)
    turn(self, false);
  for (uint64_t i = 0; i < self->ops; i++) {
    turn(self, true);
    if (i % EMPTY_EVERY == 0) {
      uint64_t begin = ticks_now();
      hdr_record(self->empty, ticks_now() - begin);
    }
  }
  return NULL;
}

static void print_histogram(FILE *out, const char *name, const struct hdr *hdr) {
  fprintf(out, ", \"%s\": {\"count\": %ju, \"min\": %ju, \"max\": %ju, \"counts\": [", name, (uintmax_t)hdr->count,
          (uintmax_t)hdr->min, (uintmax_t)hdr->max);
  const char *comma = "";
  for (uint64_t slot = 0; slot < HDR_SLOTS; slot++)
    if (hdr->counts[slot]) {
      fprintf(out, "%s[%ju, %ju]", comma, (uintmax_t)slot, (uintmax_t)hdr->counts[slot]);
      comma = ", ";
    }
  fprintf(out, "]}");
}

static void print_histograms(FILE *out) {
  fprintf(out,
          ", \"latency\": {\"source\": \"%s\", \"ticks_per_ns\": %.9g, \"significant_figures\": %d, \"lowest\": 1, "
          "\"highest\": %ju",
          TICKS_SOURCE, ticks_per_ns(), HDR_FIGURES, (uintmax_t)HDR_VALUE_MAX);
  print_histogram(out, "malloc", malloc_all);
  print_histogram(out, "free", free_all);
  print_histogram(out, "timer", empty_all);
  fprintf(out, "}");
}

int main(int argc, char **argv) {
  enum { OPS, WS, SEED, MIN, MAX, THREADS, LARGE_PPM, LARGE_KIB, PARAMS };
  struct bench_param params[PARAMS] = {
      {"OPS", 10000000, 1, 1000000000000, "timed operations, each a malloc or a free"},
      {"WS", 400, 1, 100000000, "slots of a thread"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"MIN", 16, 1, 1 << 30, "smallest block, bytes"},
      {"MAX", 1024, 1, 1 << 30, "largest block, bytes"},
      {"THREADS", 1, 1, 256, "threads, each with slots of its own"},
      {"LARGE_PPM", 0, 0, MILLION, "of a million mallocs, how many are large, 64 KiB and more"},
      {"LARGE_KIB", 1024, 64, 1 << 20, "largest of the large blocks, KiB"},
  };
  struct bench bench = {.name = "latency",
                        .about = "Times every malloc and free of random_mixed's work alone; --json has the histograms.",
                        .params = params,
                        .param_count = PARAMS,
                        .json_more = print_histograms};
  bench_arguments(&bench, argc, argv);
  const uint64_t ops = params[OPS].value, threads = params[THREADS].value;
  ws = params[WS].value;
  size_min = params[MIN].value;
  if (size_min > params[MAX].value)
    bench_refuse(&bench, "MIN %ju is over MAX %ju", (uintmax_t)size_min, (uintmax_t)params[MAX].value);
  span = params[MAX].value - size_min + 1;
  large_below = (params[LARGE_PPM].value << 32) / MILLION;
  large_span = params[LARGE_KIB].value * 1024 - LARGE_MIN + 1;

  malloc_all = bench_table(&bench, 1, sizeof *malloc_all);
  free_all = bench_table(&bench, 1, sizeof *free_all);
  empty_all = bench_table(&bench, 1, sizeof *empty_all);
  struct worker *workers = bench_table(&bench, threads, sizeof *workers);
  pthread_t *running = bench_table(&bench, threads, sizeof *running);
  for (uint64_t t = 0; t < threads; t++) {
    struct worker *self = &workers[t];
    self->slots = bench_table(&bench, ws, sizeof *self->slots);
    self->mallocs = threads == 1 ? malloc_all : bench_table(&bench, 1, sizeof *self->mallocs);
    self->frees = threads == 1 ? free_all : bench_table(&bench, 1, sizeof *self->frees);
    self->empty = threads == 1 ? empty_all : bench_table(&bench, 1, sizeof *self->empty);
    self->random = bench_seed(params[SEED].value, t);
    self->ops = ops / threads + (t < ops % threads);
  }

  bench_start(&bench);
  first_moment = moment_now();
  if (threads == 1)
    work(&workers[0]);
  for (uint64_t t = 0; threads > 1 && t < threads; t++)
    running[t] = bench_thread(work, &workers[t]);
  for (uint64_t t = 0; threads > 1 && t < threads; t++)
    bench_join(running[t]);
  bench_stop(&bench, ops);
  uint64_t passed = bench_clock_ns() - first_moment.ns;
  if (passed < CALIBRATION_NS_MIN)
    bench_sleep_ns(CALIBRATION_NS_MIN - passed);
  last_moment = moment_now();

  uint64_t hash = 0;
  for (uint64_t t = 0; t < threads; t++) {
    struct worker *self = &workers[t];
    if (threads > 1) {
      hdr_add(malloc_all, self->mallocs);
      hdr_add(free_all, self->frees);
      hdr_add(empty_all, self->empty);
    }
    hash = bench_mix(bench_mix(hash, self->random), self->size_sum);
    for (uint64_t i = 0; i < ws; i++)
      if (self->slots[i].block) {
        hash = bench_mix(hash, bench_marks(self->slots[i].block, self->slots[i].size));
        free(self->slots[i].block);
      }
  }
  return bench_report(&bench, hash);
}
