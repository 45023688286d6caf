/* drawn: a work whose shape is drawn: sizes, live bytes, how often a block is resized, cleared or aligned, in which
 * order blocks are replaced, what is written, phases between which most blocks are freed; with THREADS also what one
 * thread frees of another's. Each DRAW is another shape, so many draws find what nobody thought of. */
#include "bench.h"

#include <malloc.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SIZES = 1024, PHASES_MAX = 6, ALIGNMENTS = 9 };
enum order { AT_RANDOM, FIRST_IN_FIRST_OUT, LAST_FIRST, MOSTLY_FEW, ORDERS };
#define BYTES_OF_STEP 200u /* what a step counts beyond what it writes */
#define SIZE_LIMIT 3e7

struct slot {
  unsigned char *block;
  size_t size;
};

static struct shape {
  double size_min, size_max;
  uint64_t live, phases, shared; /* live blocks of a thread; blocks that any thread may free */
  double resized, grown, factor, cleared, aligned, crossed; /* shares of the steps; of resized blocks, and by what */
  double written;                                           /* share of a block */
  double shift;                                             /* of sizes, from phase to phase */
  enum order order;
} shape;

static uint64_t threads, seed, bytes_max;
static size_t sizes[PHASES_MAX][SIZES]; /* log-uniform */
static _Atomic(unsigned char *) *shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t steps_done, marks_sum; /* under lock */

static double share(uint64_t *random) { return (double)(bench_random(random) >> 11) * 0x1p-53; }
static double between(uint64_t *random, double least, double most) {
  return least * exp(share(random) * log(most / least));
}
static double often(uint64_t *random, double never, double most) {
  return share(random) < never ? 0 : share(random) * most;
}

static void draw(uint64_t number) {
  uint64_t random = bench_seed(number, 0);
  double least = between(&random, 8, 4000), most = fmin(least * between(&random, 1.01, 1000), SIZE_LIMIT);
  double mean = (most - least) / log(most / least);
  double live_bytes = between(&random, 2e6, 1.5e8);
  /* A statement each: the compiler chooses the order of the initializers of a struct. */
  shape.size_min = least;
  shape.size_max = most;
  shape.live = (uint64_t)fmin(fmax(live_bytes / mean / (double)threads, 8), 400000);
  shape.phases = share(&random) < 0.6 ? 1 : 1 + bench_random(&random) % PHASES_MAX;
  shape.shared = 1 + (uint64_t)between(&random, 1, 2000);
  shape.resized = often(&random, 0.5, 0.8);
  shape.grown = 0.5 + share(&random) / 2;
  shape.factor = 1 + share(&random);
  shape.cleared = often(&random, 0.5, 0.5);
  shape.aligned = often(&random, 0.7, 0.3);
  shape.crossed = threads > 1 ? often(&random, 0.4, 0.9) : 0;
  shape.written = share(&random) < 0.5 ? 1 : share(&random) * 0.3;
  shape.shift = share(&random) < 0.5 ? 1 : between(&random, 0.3, 3);
  shape.order = (enum order)(bench_random(&random) % ORDERS);
  for (uint64_t phase = 0; phase < shape.phases; phase++) {
    for (unsigned i = 0; i < SIZES; i++)
      sizes[phase][i] = (size_t)between(&random, least, most);
    most = fmin(fmax(most * shape.shift, 16), SIZE_LIMIT);
    least = fmin(fmax(least * shape.shift, 8), most / 1.01);
  }
}

static uint64_t marks(const struct slot *slot) { return bench_marks(slot->block, slot->size) + slot->size; }

/* Writes the first part of what is new from `from` on, and the marks. Returns the bytes that count. */
static uint64_t write_block(const struct slot *slot, size_t from, uint64_t value) {
  size_t fresh = slot->size - from, written = (size_t)((double)fresh * shape.written);
  memset(slot->block + from, (int)(value & 0xff), written);
  bench_mark(slot->block, slot->size, value);
  return written + BYTES_OF_STEP;
}

static uint64_t drop(struct slot *slot) {
  uint64_t sum = slot->block ? marks(slot) : 0;
  free(slot->block);
  slot->block = NULL;
  return sum;
}

static uint64_t next_place(uint64_t step, uint64_t r) {
  uint64_t few = shape.live / 8 + 1;
  switch (shape.order) {
  case FIRST_IN_FIRST_OUT:
    return step % shape.live;
  case LAST_FIRST:
    return shape.live - 1 - step % shape.live;
  case MOSTLY_FEW:
    return bench_pick(r, r % 16 ? few : shape.live);
  default:
    return bench_pick(r, shape.live);
  }
}

static void allocate(struct slot *slot, uint64_t *random, const size_t *phase_sizes) {
  double kind = share(random);
  uint64_t r = bench_random(random);
  slot->size = phase_sizes[r % SIZES];
  if (kind < shape.cleared)
    slot->block = bench_block(calloc(1, slot->size));
  else if (kind < shape.cleared + shape.aligned)
    slot->block = bench_block(memalign((size_t)16 << (r >> 32) % ALIGNMENTS, slot->size));
  else
    slot->block = bench_block(malloc(slot->size));
}

/* Leaves a block to all threads, and frees one of theirs. */
static uint64_t cross(struct slot *slot, uint64_t r) {
  uint64_t sum = slot->block ? marks(slot) : 0;
  unsigned char *theirs = atomic_exchange(&shared[bench_pick(r, shape.shared)], slot->block);
  slot->block = NULL;
  sum += theirs ? theirs[0] : 0;
  free(theirs);
  return sum;
}

static bool resize(struct slot *slot, uint64_t *random, const size_t *phase_sizes) {
  double factor = share(random) < shape.grown ? shape.factor : 1 / shape.factor;
  size_t before = slot->size, size = (size_t)((double)before * factor) + 1;
  size = (double)size > 4 * shape.size_max ? phase_sizes[0] : size;
  size_t kept = before < size ? before : size;
  uint64_t kept_marks = bench_marks(slot->block, kept);
  slot->block = bench_block(realloc(slot->block, size));
  slot->size = size;
  if (bench_marks(slot->block, kept) != kept_marks)
    bench_die("realloc lost the content of a block of %zu bytes", before);
  return size > before;
}

static uint64_t work_phase(struct slot *slots, uint64_t *random, const size_t *phase_sizes, uint64_t *sum) {
  uint64_t steps = 0;
  for (uint64_t bytes = 0; bytes < bytes_max / shape.phases / threads; steps++) {
    uint64_t r = bench_random(random);
    struct slot *slot = &slots[next_place(steps, r)];
    if (slot->block && share(random) < shape.resized) {
      size_t before = slot->size;
      bool is_longer = resize(slot, random, phase_sizes);
      bytes += write_block(slot, is_longer ? before : slot->size, r);
      continue;
    }
    *sum += share(random) < shape.crossed ? cross(slot, r) : drop(slot);
    allocate(slot, random, phase_sizes);
    bytes += write_block(slot, 0, r);
  }
  return steps;
}

static void *work(void *argument) {
  struct slot *slots = argument;
  uint64_t random = bench_seed(seed, 1 + slots->size), sum = 0, steps = 0;
  for (uint64_t phase = 0; phase < shape.phases; phase++) {
    for (uint64_t i = 0; phase > 0 && i < shape.live; i++)
      if (bench_random(&random) % 10 > 0)
        sum += drop(&slots[i]);
    steps += work_phase(slots, &random, sizes[phase], &sum);
  }
  pthread_mutex_lock(&lock);
  steps_done += steps;
  marks_sum += sum;
  pthread_mutex_unlock(&lock);
  return NULL;
}

int main(int argc, char **argv) {
  enum { DRAW, SEED, THREADS, MIB, PARAMS };
  struct bench_param params[PARAMS] = {
      {"DRAW", 0, 0, 1 << 30, "which shape"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers of the work"},
      {"THREADS", 1, 1, 256, "threads, which share the live bytes"},
      {"MIB", 1500, 1, 1 << 20, "written in all, plus 200 bytes for each step"},
  };
  struct bench bench = {.name = "drawn",
                        .about = "A work whose shape is drawn; a block allocated or resized counts one.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  threads = params[THREADS].value;
  seed = params[SEED].value;
  bytes_max = params[MIB].value << 20;
  draw(params[DRAW].value);
  shared = bench_table(&bench, shape.shared, sizeof *shared);
  struct slot **slots = bench_table(&bench, threads, sizeof *slots);
  pthread_t *ids = bench_table(&bench, threads, sizeof *ids);
  for (uint64_t t = 0; t < threads; t++) {
    slots[t] = bench_table(&bench, shape.live, sizeof **slots);
    slots[t]->size = t; /* its number, until the first block */
  }
  bench_start(&bench);
  for (uint64_t t = 1; t < threads; t++)
    ids[t] = bench_thread(work, slots[t]);
  work(slots[0]);
  for (uint64_t t = 1; t < threads; t++)
    bench_join(ids[t]);
  bench_stop(&bench, steps_done);
  for (uint64_t t = 0; t < threads; t++)
    for (uint64_t i = 0; i < shape.live; i++)
      marks_sum += drop(&slots[t][i]);
  for (uint64_t i = 0; i < shape.shared; i++) {
    marks_sum += shared[i] ? shared[i][0] : 0;
    free(shared[i]);
  }
  bench_extra(&bench, "size_min", shape.size_min);
  bench_extra(&bench, "size_max", shape.size_max);
  bench_extra(&bench, "live", (double)shape.live);
  bench_extra(&bench, "resized", shape.resized);
  bench_extra(&bench, "phases", (double)shape.phases);
  return bench_report(&bench, bench_mix(steps_done, marks_sum));
}
