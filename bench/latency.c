/* latency: random_mixed with a clock around every malloc and every free.
 *
 * WORK 1 draws the octave of a size first, so small blocks stay frequent where MAX is far above MIN. WORK 2 works in
 * phases: it builds a set of WS blocks of one octave, drops it in random order, and builds the next one, of another
 * octave: refills, fresh slabs, flushes and slabs that end, one after the other.
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
  uint64_t live, octave; /* WORK_PHASES: slots in use, and the octave of the present set */
  bool is_dropping;
} __attribute__((aligned(128)));

enum { WORK_MIXED, WORK_OCTAVES, WORK_PHASES, WORKS };

static uint64_t ws, size_min, size_max, octaves;
static uint64_t span, large_below, large_span; /* large_below: of 2^32 random numbers, how many */
static unsigned work_kind;

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

static void free_slot(struct worker *self, struct slot *slot, bool counted) {
  uint64_t ticks = time_free(slot->block);
  slot->block = NULL;
  if (counted)
    hdr_record(self->frees, ticks);
}

static void fill_slot(struct worker *self, struct slot *slot, size_t size, uint64_t mark, bool counted) {
  uint64_t ticks = time_malloc(size, &slot->block);
  bench_mark(bench_block(slot->block), size, mark);
  slot->size = size;
  self->size_sum += size;
  if (counted)
    hdr_record(self->mallocs, ticks);
}

static size_t size_in_octave(uint64_t octave, uint64_t r) {
  uint64_t size = (size_min << octave) + bench_pick_low(r, (size_min << octave) + 1);
  return size < size_max ? size : size_max;
}

static size_t size_drawn(uint64_t r, uint64_t other) {
  if (other >> 32 < large_below)
    return LARGE_MIN + bench_pick_low(other, large_span);
  return work_kind == WORK_MIXED ? size_min + bench_pick_low(r, span)
                                 : size_in_octave(bench_pick_low(other, octaves), r);
}

static void turn_steady(struct worker *self, bool counted) {
  uint64_t r = bench_random(&self->random);
  struct slot *slot = &self->slots[bench_pick(r, ws)];
  if (slot->block)
    free_slot(self, slot, counted);
  else
    fill_slot(self, slot, size_drawn(r, bench_random(&self->random)), r, counted);
}

static void turn_in_phases(struct worker *self, bool counted) {
  uint64_t r = bench_random(&self->random);
  if (!self->is_dropping) {
    fill_slot(self, &self->slots[self->live++], size_in_octave(self->octave, r), r, counted);
    self->is_dropping = self->live == ws;
    return;
  }
  struct slot *slot = &self->slots[bench_pick(r, self->live)], *last = &self->slots[--self->live];
  free_slot(self, slot, counted);
  *slot = *last;
  *last = (struct slot){0};
  if (self->live == 0) {
    self->is_dropping = false;
    self->octave = bench_pick_low(r, octaves);
  }
}

static void turn(struct worker *self, bool counted) {
  if (work_kind == WORK_PHASES)
    turn_in_phases(self, counted);
  else
    turn_steady(self, counted);
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
  enum { OPS, WS, SEED, MIN, MAX, THREADS, LARGE_PPM, LARGE_KIB, WORK, PARAMS };
  struct bench_param params[PARAMS] = {
      {"OPS", 10000000, 1, 1000000000000, "timed operations, each a malloc or a free"},
      {"WS", 400, 1, 100000000, "slots of a thread"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"MIN", 16, 1, 1 << 30, "smallest block, bytes"},
      {"MAX", 1024, 1, 1 << 30, "largest block, bytes"},
      {"THREADS", 1, 1, 256, "threads, each with slots of its own"},
      {"LARGE_PPM", 0, 0, MILLION, "of a million mallocs, how many are large, 64 KiB and more"},
      {"LARGE_KIB", 1024, 64, 1 << 20, "largest of the large blocks, KiB"},
      {"WORK", WORK_MIXED, 0, WORKS - 1, "sizes: 0 any alike, 1 any octave alike, 2 in phases, an octave each"},
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
  size_max = params[MAX].value;
  span = size_max - size_min + 1;
  work_kind = (unsigned)params[WORK].value;
  if (work_kind == WORK_PHASES && params[LARGE_PPM].value > 0)
    bench_refuse(&bench, "WORK %u has no large blocks", work_kind);
  for (octaves = 1; size_min << octaves < size_max; octaves++)
    ;
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
