/* handoff: producers allocate and fill batches, consumers free them and do nothing else.
 * Batches go through a bounded queue: a full one stops the producers, an empty one the consumers. */
#include "bench.h"

#include <stdlib.h>

enum { THREADS_MAX = 256 };

struct queue {
  uint32_t *items, head, count, capacity;
  pthread_cond_t not_empty;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue full_batches, empty_batches; /* numbers of batches; under lock */
static uint64_t producers_running;               /* under lock */
static void **blocks;                            /* batch b owns blocks[b * batch] on */
static uint64_t batch, size_min, span;

struct producer {
  uint64_t random, size_sum, batches;
} __attribute__((aligned(128)));

static void queue_open(struct queue *queue, uint32_t *items, uint32_t capacity) {
  *queue = (struct queue){.items = items, .capacity = capacity};
  pthread_cond_init(&queue->not_empty, NULL);
}

static void queue_push(struct queue *queue, uint32_t item) {
  queue->items[(queue->head + queue->count++) % queue->capacity] = item;
  pthread_cond_signal(&queue->not_empty);
}

static uint32_t queue_pop(struct queue *queue) {
  uint32_t item = queue->items[queue->head];
  queue->head = (queue->head + 1) % queue->capacity;
  queue->count--;
  return item;
}

static void *produce(void *argument) {
  struct producer *self = argument;
  for (uint64_t n = 0; n < self->batches; n++) {
    pthread_mutex_lock(&lock);
    while (!empty_batches.count)
      pthread_cond_wait(&empty_batches.not_empty, &lock);
    uint32_t number = queue_pop(&empty_batches);
    pthread_mutex_unlock(&lock);
    void **mine = &blocks[number * batch];
    for (uint64_t i = 0; i < batch; i++) {
      uint64_t r = bench_random(&self->random);
      size_t size = size_min + bench_pick_low(r, span);
      mine[i] = bench_block(malloc(size));
      bench_mark(mine[i], size, r);
      self->size_sum += size;
    }
    pthread_mutex_lock(&lock);
    queue_push(&full_batches, number);
    pthread_mutex_unlock(&lock);
  }
  pthread_mutex_lock(&lock);
  if (--producers_running == 0)
    pthread_cond_broadcast(&full_batches.not_empty);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void *consume(void *unused) {
  for (;;) {
    pthread_mutex_lock(&lock);
    while (!full_batches.count && producers_running)
      pthread_cond_wait(&full_batches.not_empty, &lock);
    if (!full_batches.count) {
      pthread_mutex_unlock(&lock);
      return unused;
    }
    uint32_t number = queue_pop(&full_batches);
    pthread_mutex_unlock(&lock);
    void **mine = &blocks[number * batch];
    for (uint64_t i = 0; i < batch; i++)
      free(mine[i]);
    pthread_mutex_lock(&lock);
    queue_push(&empty_batches, number);
    pthread_mutex_unlock(&lock);
  }
}

int main(int argc, char **argv) {
  enum { PRODUCERS, CONSUMERS, BATCHES, SEED, MIN, MAX, BATCH, QUEUE, PARAMS };
  struct bench_param params[PARAMS] = {
      {"PRODUCERS", 1, 1, THREADS_MAX, "threads that allocate"}, {"CONSUMERS", 1, 1, THREADS_MAX, "threads that free"},
      {"BATCHES", 20000, 1, 1000000000, "batches in all"},       {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"MIN", 16, 1, 1 << 20, "smallest block, bytes"},          {"MAX", 256, 1, 1 << 20, "largest block, bytes"},
      {"BATCH", 500, 1, 1000000, "blocks of a batch"},           {"QUEUE", 64, 1, 100000, "batches under way at most"},
  };
  struct bench bench = {.name = "handoff",
                        .about = "Producers allocate, consumers free; a malloc with its free counts one.",
                        .params = params,
                        .param_count = PARAMS,
                        .repeats = true};
  bench_arguments(&bench, argc, argv);
  const uint64_t producer_count = params[PRODUCERS].value, batches = params[BATCHES].value;
  const uint32_t capacity = (uint32_t)params[QUEUE].value;
  batch = params[BATCH].value;
  size_min = params[MIN].value;
  span = params[MAX].value - size_min + 1;

  blocks = bench_table(&bench, capacity * batch, sizeof *blocks);
  uint32_t *items = bench_table(&bench, 2 * (size_t)capacity, sizeof *items);
  queue_open(&full_batches, items, capacity);
  queue_open(&empty_batches, items + capacity, capacity);
  for (uint32_t number = 0; number < capacity; number++)
    queue_push(&empty_batches, number);
  struct producer *producers = bench_table(&bench, producer_count, sizeof *producers);
  pthread_t threads[2 * THREADS_MAX];
  for (uint64_t p = 0; p < producer_count; p++) {
    producers[p].random = bench_seed(params[SEED].value, p);
    producers[p].batches = batches / producer_count + (p < batches % producer_count);
  }

  bench_start(&bench);
  do {
    uint64_t thread_count = 0;
    producers_running = producer_count;
    for (uint64_t p = 0; p < producer_count; p++)
      threads[thread_count++] = bench_thread(produce, &producers[p]);
    for (uint64_t c = 0; c < params[CONSUMERS].value; c++)
      threads[thread_count++] = bench_thread(consume, NULL);
    for (uint64_t t = 0; t < thread_count; t++)
      bench_join(threads[t]);
  } while (bench_again(&bench, batches * batch));
  bench_stop(&bench, bench.ops);

  uint64_t hash = 0;
  for (uint64_t p = 0; p < producer_count; p++)
    hash = bench_mix(bench_mix(hash, producers[p].random), producers[p].size_sum);
  return bench_report(&bench, hash);
}
