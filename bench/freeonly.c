/* freeonly: many threads allocate, ONE thread frees and never allocates.
 *
 * Every producer keeps a set of live blocks and replaces random ones; the old block goes into the
 * producer's bounded queue. The reclaimer takes the queues' chunks and frees one block of each owner
 * in turn. Live bytes are bounded (the sets plus the queues), so whatever peak RSS shows above them
 * is the allocator's: caches that grow in a thread that only frees, or memory nobody finds again.
 */
#include "bench.h"

#include <stdlib.h>

enum { PRODUCERS_MAX = 256, CHUNK = 64, QUEUE_CHUNKS = 8, QUEUE = CHUNK * QUEUE_CHUNKS };

/* A ring between one producer and the reclaimer. put and taken count blocks and change under lock;
 * only the reclaimer writes taken, so it may read it without. */
struct producer {
  unsigned char **set;
  uint64_t set_count, replacements, random, size_sum;
  uint64_t put, taken;
  pthread_cond_t not_full;
  void *ring[QUEUE];
} __attribute__((aligned(128)));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_there = PTHREAD_COND_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, go_ahead = PTHREAD_COND_INITIALIZER;
static struct producer *producers;
static uint64_t producer_count, producers_filled, producers_ended; /* the latter two under lock */
static bool started;                                               /* under lock */
static uint64_t size_min, span;

static unsigned char *make(struct producer *self, uint64_t r) {
  size_t size = size_min + bench_pick_low(r, span);
  unsigned char *block = bench_block(malloc(size));
  bench_mark(block, size, r);
  self->size_sum += size;
  return block;
}

static void *produce(void *argument) {
  struct producer *self = argument;
  for (uint64_t i = 0; i < self->set_count; i++)
    self->set[i] = make(self, bench_random(&self->random));

  pthread_mutex_lock(&lock);
  if (++producers_filled == producer_count)
    pthread_cond_signal(&filled);
  while (!started)
    pthread_cond_wait(&go_ahead, &lock);
  pthread_mutex_unlock(&lock);

  uint64_t put = 0;
  for (uint64_t i = 0; i < self->replacements; i++) {
    if (put % CHUNK == 0) {
      pthread_mutex_lock(&lock);
      self->put = put;
      pthread_cond_signal(&work_there);
      while (put - self->taken > QUEUE - CHUNK)
        pthread_cond_wait(&self->not_full, &lock);
      pthread_mutex_unlock(&lock);
    }
    uint64_t r = bench_random(&self->random);
    unsigned char **slot = &self->set[bench_pick(r, self->set_count)];
    self->ring[put++ % QUEUE] = *slot;
    *slot = make(self, r);
  }
  pthread_mutex_lock(&lock);
  self->put = put;
  producers_ended++;
  pthread_cond_signal(&work_there);
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* A producer with blocks in its queue, and how many of them to free now. */
struct waiting {
  struct producer *producer;
  uint64_t count;
};

/* Lists the producers that have a whole chunk waiting, or anything at all once all have ended; returns
 * how many they are, 0 when there will be no more. */
static uint64_t collect(struct waiting *waiting) {
  pthread_mutex_lock(&lock);
  for (;;) {
    bool ended = producers_ended == producer_count;
    uint64_t found = 0;
    for (uint64_t p = 0; p < producer_count; p++) {
      uint64_t left = producers[p].put - producers[p].taken;
      if (left >= CHUNK || (ended && left))
        waiting[found++] = (struct waiting){&producers[p], left < CHUNK ? left : CHUNK};
    }
    if (found || ended) {
      pthread_mutex_unlock(&lock);
      return found;
    }
    pthread_cond_wait(&work_there, &lock);
  }
}

static void *reclaim(void *unused) {
  struct waiting waiting[PRODUCERS_MAX];
  for (uint64_t found; (found = collect(waiting)) > 0;) {
    for (uint64_t i = 0; i < CHUNK; i++)
      for (uint64_t w = 0; w < found; w++)
        if (i < waiting[w].count)
          free(waiting[w].producer->ring[(waiting[w].producer->taken + i) % QUEUE]);
    pthread_mutex_lock(&lock);
    for (uint64_t w = 0; w < found; w++) {
      waiting[w].producer->taken += waiting[w].count;
      pthread_cond_signal(&waiting[w].producer->not_full);
    }
    pthread_mutex_unlock(&lock);
  }
  return unused;
}

int main(int argc, char **argv) {
  enum { PRODUCERS, LIVE_MIB, OPS, SEED, MIN, MAX, PARAMS };
  struct bench_param params[PARAMS] = {
      {"PRODUCERS", 16, 1, PRODUCERS_MAX, "threads that allocate"},
      {"LIVE_MIB", 370, 1, 1 << 20, "MiB live in all, in blocks of mean size"},
      {"OPS", 8000000, 1, 1000000000000, "replacements in all, each a malloc and a free by the reclaimer"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"MIN", 592, 1, 1 << 20, "smallest block, bytes"},
      {"MAX", 592, 1, 1 << 20, "largest block, bytes"},
  };
  struct bench bench = {.name = "freeonly",
                        .about = "Producers replace blocks of their live sets; one thread frees what they drop.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  const uint64_t ops = params[OPS].value;
  producer_count = params[PRODUCERS].value;
  size_min = params[MIN].value;
  span = params[MAX].value - size_min + 1;
  uint64_t set_count = (params[LIVE_MIB].value << 20) / producer_count / ((size_min + params[MAX].value) / 2);
  if (!set_count)
    bench_refuse(&bench, "LIVE_MIB is too small for %ju producers", (uintmax_t)producer_count);

  producers = bench_table(&bench, producer_count, sizeof *producers);
  pthread_t threads[PRODUCERS_MAX + 1];
  for (uint64_t p = 0; p < producer_count; p++) {
    struct producer *self = &producers[p];
    self->set = bench_table(&bench, set_count, sizeof *self->set);
    self->set_count = set_count;
    self->replacements = ops / producer_count + (p < ops % producer_count);
    self->random = bench_seed(params[SEED].value, p);
    pthread_cond_init(&self->not_full, NULL);
    threads[p] = bench_thread(produce, self);
  }
  pthread_mutex_lock(&lock);
  while (producers_filled < producer_count)
    pthread_cond_wait(&filled, &lock);
  uint64_t rss_filled_kb = bench_status_kb("VmRSS:");
  bench_start(&bench);
  started = true;
  pthread_cond_broadcast(&go_ahead);
  pthread_mutex_unlock(&lock);
  threads[producer_count] = bench_thread(reclaim, NULL);
  for (uint64_t t = 0; t <= producer_count; t++)
    bench_join(threads[t]);
  bench_stop(&bench, ops);

  uint64_t hash = 0;
  for (uint64_t p = 0; p < producer_count; p++) {
    hash = bench_mix(bench_mix(hash, producers[p].random), producers[p].size_sum);
    for (uint64_t i = 0; i < set_count; i++)
      hash = bench_mix(hash, producers[p].set[i][0]);
  }
  double live_kb = (double)(producer_count * set_count * (size_min + params[MAX].value) / 2) / 1024;
  bench_extra(&bench, "live_kb", live_kb);
  bench_extra(&bench, "rss_filled_kb", (double)rss_filled_kb);
  bench_extra(&bench, "peak_over_live", ((double)bench.rss_peak_kb - (double)bench.tables_kb) / live_kb);
  return bench_report(&bench, hash);
}
