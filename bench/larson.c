/* larson: a server's connections. Every lane is a table of blocks that one thread after another works
 * on: it replaces random blocks, starts the thread that takes over, and ends. So every thread frees
 * what dead threads allocated. The work is fixed, so that times compare. */
#include "bench.h"

#include <stdlib.h>

enum { REPLACEMENTS_PER_CHUNK = 100 };

struct slot {
  unsigned char *block;
  size_t size;
};

struct lane {
  struct slot *slots;
  uint64_t random, size_sum, lives_left;
} __attribute__((aligned(128)));

static uint64_t chunks, size_min, span;
static pthread_attr_t detached;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t lane_ended = PTHREAD_COND_INITIALIZER;
static uint64_t lanes_running; /* under lock */

static void fill(struct slot *slot, struct lane *lane, uint64_t r) {
  slot->size = size_min + bench_pick_low(r, span);
  slot->block = bench_block(malloc(slot->size));
  bench_mark(slot->block, slot->size, r);
  lane->size_sum += slot->size;
}

static void *life(void *argument) {
  struct lane *lane = argument;
  uint64_t random = lane->random;
  for (uint64_t i = 0; i < chunks * REPLACEMENTS_PER_CHUNK; i++) {
    uint64_t r = bench_random(&random);
    struct slot *slot = &lane->slots[bench_pick(r, chunks)];
    free(slot->block);
    fill(slot, lane, r);
  }
  lane->random = random;
  if (--lane->lives_left) {
    pthread_t successor;
    if (pthread_create(&successor, &detached, life, lane))
      bench_die("no thread for the next life");
    return NULL;
  }
  pthread_mutex_lock(&lock);
  lanes_running--;
  pthread_cond_signal(&lane_ended);
  pthread_mutex_unlock(&lock);
  return NULL;
}

int main(int argc, char **argv) {
  enum { THREADS, CHUNKS, LIVES, SEED, MIN, MAX, PARAMS };
  struct bench_param params[PARAMS] = {
      {"THREADS", 2, 1, 1000, "lanes, each worked on by one thread at a time"},
      {"CHUNKS", 256, 1, 10000000, "blocks of a lane; each life replaces 100 times as many"},
      {"LIVES", 200, 1, 100000000, "threads that work on a lane one after another"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"MIN", 8, 1, 1 << 20, "smallest block, bytes"},
      {"MAX", 1000, 1, 1 << 20, "largest block, bytes"},
  };
  struct bench bench = {.name = "larson",
                        .about = "Random replacement in tables of blocks that are handed over to fresh threads.",
                        .params = params,
                        .param_count = PARAMS,
                        .repeats = true};
  bench_arguments(&bench, argc, argv);
  const uint64_t threads = params[THREADS].value, lives = params[LIVES].value;
  chunks = params[CHUNKS].value;
  size_min = params[MIN].value;
  span = params[MAX].value - size_min + 1;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);

  struct lane *lanes = bench_table(&bench, threads, sizeof *lanes);
  for (uint64_t t = 0; t < threads; t++) {
    struct lane *lane = &lanes[t];
    lane->slots = bench_table(&bench, chunks, sizeof *lane->slots);
    lane->random = bench_seed(params[SEED].value, t);
    for (uint64_t i = 0; i < chunks; i++)
      fill(&lane->slots[i], lane, bench_random(&lane->random));
  }

  bench_start(&bench);
  do {
    lanes_running = threads;
    for (uint64_t t = 0; t < threads; t++) {
      pthread_t first;
      lanes[t].lives_left = lives;
      if (pthread_create(&first, &detached, life, &lanes[t]))
        bench_die("no thread for the first life");
    }
    pthread_mutex_lock(&lock);
    while (lanes_running)
      pthread_cond_wait(&lane_ended, &lock);
    pthread_mutex_unlock(&lock);
  } while (bench_again(&bench, threads * lives * chunks * REPLACEMENTS_PER_CHUNK));
  bench_stop(&bench, bench.ops);

  uint64_t hash = 0;
  for (uint64_t t = 0; t < threads; t++) {
    hash = bench_mix(bench_mix(hash, lanes[t].random), lanes[t].size_sum);
    for (uint64_t i = 0; i < chunks; i++) {
      struct slot *slot = &lanes[t].slots[i];
      hash = bench_mix(bench_mix(hash, slot->size), bench_marks(slot->block, slot->size));
      free(slot->block);
    }
  }
  return bench_report(&bench, hash);
}
