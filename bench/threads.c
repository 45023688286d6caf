/* threads: short-lived threads, some at a time; each allocates a few blocks, frees them and ends.
 * Most of the time is the kernel's and libc's; the allocator adds what a thread's first malloc, its
 * caches and its exit cost. */
#include "bench.h"

#include <stdlib.h>

enum { AT_ONCE_MAX = 256, BLOCKS_MAX = 10000 };

static uint64_t block_count, size_min, span;

struct job {
  uint64_t random, size_sum;
  unsigned char **blocks;
} __attribute__((aligned(128)));

static void *live(void *argument) {
  struct job *job = argument;
  for (uint64_t i = 0; i < block_count; i++) {
    uint64_t r = bench_random(&job->random);
    size_t size = size_min + bench_pick_low(r, span);
    job->blocks[i] = bench_block(malloc(size));
    bench_mark(job->blocks[i], size, r);
    job->size_sum += size;
  }
  for (uint64_t i = 0; i < block_count; i++)
    free(job->blocks[i]);
  return NULL;
}

int main(int argc, char **argv) {
  enum { COUNT, AT_ONCE, BLOCKS, SEED, MIN, MAX, PARAMS };
  struct bench_param params[PARAMS] = {
      {"COUNT", 20000, 1, 1000000000, "threads in all"},
      {"AT_ONCE", 4, 1, AT_ONCE_MAX, "threads started together, then joined"},
      {"BLOCKS", 200, 1, BLOCKS_MAX, "blocks of a thread"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"MIN", 16, 1, 1 << 20, "smallest block, bytes"},
      {"MAX", 1024, 1, 1 << 20, "largest block, bytes"},
  };
  struct bench bench = {.name = "threads",
                        .about = "Threads that live for a few hundred mallocs; a thread counts one.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  const uint64_t count = params[COUNT].value, at_once = params[AT_ONCE].value;
  block_count = params[BLOCKS].value;
  size_min = params[MIN].value;
  span = params[MAX].value - size_min + 1;

  struct job *jobs = bench_table(&bench, at_once, sizeof *jobs);
  for (uint64_t j = 0; j < at_once; j++) {
    jobs[j].random = bench_seed(params[SEED].value, j);
    jobs[j].blocks = bench_table(&bench, block_count, sizeof *jobs[j].blocks);
  }
  bench_start(&bench);
  for (uint64_t done = 0; done < count;) {
    uint64_t wave = count - done < at_once ? count - done : at_once;
    pthread_t threads[AT_ONCE_MAX];
    for (uint64_t j = 0; j < wave; j++)
      threads[j] = bench_thread(live, &jobs[j]);
    for (uint64_t j = 0; j < wave; j++)
      bench_join(threads[j]);
    done += wave;
  }
  bench_stop(&bench, count);

  uint64_t hash = 0;
  for (uint64_t j = 0; j < at_once; j++)
    hash = bench_mix(bench_mix(hash, jobs[j].random), jobs[j].size_sum);
  return bench_report(&bench, hash);
}
