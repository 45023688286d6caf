/* random_mixed: slots picked at random; a full one is freed, an empty one gets a block of random size
 * and a write to both its ends.
 *
 * --ideal runs the same loop on a free list per size that is inlined, checks nothing and is told the
 * size at free: what no general allocator can beat by much. With BENCH_FAST the loop calls hak_malloc
 * and hak_free through hakmem/inline.h.
 */
#include "bench.h"

#include <stdlib.h>
#include <sys/mman.h>
#ifdef BENCH_FAST
#include <hakmem/inline.h>
#endif

enum mode { MODE_MALLOC, MODE_IDEAL };
enum { IDEAL_SIZE_MAX = 64 * 1024, IDEAL_STEP = 16, IDEAL_CHUNK = 1 << 20 };

struct slot {
  unsigned char *block;
  size_t size;
};

/* Free blocks are linked through their first word; fresh ones are cut from a mapped chunk. */
static void *ideal_head[IDEAL_SIZE_MAX / IDEAL_STEP + 1];
static char *ideal_next, *ideal_end;

static __attribute__((noinline)) void *ideal_cut(size_t bytes) {
  if ((size_t)(ideal_end - ideal_next) < bytes) {
    ideal_next = mmap(NULL, IDEAL_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ideal_next == MAP_FAILED)
      bench_die("no memory for the ideal list");
    ideal_end = ideal_next + IDEAL_CHUNK;
  }
  ideal_next += bytes;
  return ideal_next - bytes;
}

static inline __attribute__((always_inline)) void *block_take(enum mode mode, size_t size) {
  if (mode == MODE_IDEAL) {
    size_t step = (size + IDEAL_STEP - 1) / IDEAL_STEP;
    void *block = ideal_head[step];
    if (__builtin_expect(!block, 0))
      return ideal_cut(step * IDEAL_STEP);
    ideal_head[step] = *(void **)block;
    return block;
  }
#ifdef BENCH_FAST
  return bench_block(hak_malloc(size));
#else
  return bench_block(malloc(size));
#endif
}

static inline __attribute__((always_inline)) void block_give(enum mode mode, void *block, size_t size) {
  if (mode == MODE_IDEAL) {
    void **head = &ideal_head[(size + IDEAL_STEP - 1) / IDEAL_STEP];
    *(void **)block = *head;
    *head = block;
    return;
  }
#ifdef BENCH_FAST
  hak_free(block);
#else
  free(block);
#endif
}

static inline __attribute__((always_inline)) uint64_t work(enum mode mode, struct slot *slots, const uint64_t *args) {
  const uint64_t iterations = args[0], ws = args[1], size_min = args[3], span = args[4] - size_min + 1;
  uint64_t random = bench_seed(args[2], 0), size_sum = 0;
  for (uint64_t i = 0; i < iterations; i++) {
    uint64_t r = bench_random(&random);
    struct slot *slot = &slots[bench_pick(r, ws)];
    if (slot->block) {
      block_give(mode, slot->block, slot->size);
      slot->block = NULL;
    } else {
      size_t size = size_min + bench_pick_low(r, span);
      unsigned char *block = block_take(mode, size);
      bench_mark(block, size, r);
      slot->block = block;
      slot->size = size;
      size_sum += size;
    }
  }
  return bench_mix(random, size_sum);
}

static __attribute__((noinline)) uint64_t work_malloc(struct slot *slots, const uint64_t *args) {
  return work(MODE_MALLOC, slots, args);
}
static __attribute__((noinline)) uint64_t work_ideal(struct slot *slots, const uint64_t *args) {
  return work(MODE_IDEAL, slots, args);
}

/* A further round, on other numbers. Marked cold so that the compiler sees two single calls of the loops, and makes
 * the same code of them as without this one. */
static __attribute__((cold, noinline)) uint64_t work_again(const struct bench *bench, struct slot *slots,
                                                           uint64_t *args) {
  enum { SEED = 2 };
  args[SEED]++;
  return bench->flag_given ? work_ideal(slots, args) : work_malloc(slots, args);
}

int main(int argc, char **argv) {
  enum { ITERATIONS, WS, SEED, MIN, MAX, PARAMS };
  struct bench_param params[PARAMS] = {
      {"ITERATIONS", 20000000, 1, 1000000000000, "operations, each a malloc or a free"},
      {"WS", 400, 1, 100000000, "slots"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"MIN", 16, 1, 1 << 30, "smallest block, bytes"},
      {"MAX", 1024, 1, 1 << 30, "largest block, bytes; MIN = MAX is one fixed size"},
  };
  struct bench bench = {
#ifdef BENCH_FAST
      .name = "random_mixed_fast",
#else
      .name = "random_mixed",
#endif
      .about = "Random slots: free the block there, or allocate one of random size and write to both ends.",
      .params = params,
      .param_count = PARAMS,
      .repeats = true,
      .flag = "--ideal",
      .flag_text = "an inlined, unchecked free list per size in place of malloc",
  };
  bench_arguments(&bench, argc, argv);
  uint64_t args[PARAMS];
  for (int i = 0; i < PARAMS; i++)
    args[i] = params[i].value;
  if (bench.flag_given && args[MAX] > IDEAL_SIZE_MAX)
    bench_refuse(&bench, "--ideal serves up to %d bytes", IDEAL_SIZE_MAX);

  struct slot *slots = bench_table(&bench, args[WS], sizeof *slots);
  bench_start(&bench);
  uint64_t hash = bench.flag_given ? work_ideal(slots, args) : work_malloc(slots, args);
  while (bench_again(&bench, args[ITERATIONS]))
    hash = bench_mix(hash, work_again(&bench, slots, args));
  bench_stop(&bench, bench.ops);

  for (uint64_t i = 0; i < args[WS]; i++)
    if (slots[i].block) {
      hash = bench_mix(bench_mix(hash, i), slots[i].size);
      hash = bench_mix(hash, bench_marks(slots[i].block, slots[i].size));
      block_give(bench.flag_given ? MODE_IDEAL : MODE_MALLOC, slots[i].block, slots[i].size);
    }
  return bench_report(&bench, hash);
}
