/* heaps: random replacement of small blocks, as random_mixed, by malloc and free or in a hak_heap; then a heap with
 * many blocks of 64 bytes is destroyed. It is linked with hakmem. */
#include "bench.h"

#include <hakmem/hakmem.h>
#include <stdlib.h>

enum way { PLAIN, EXPLICIT, PLAIN_FREE, DEFAULT, WAYS };
#define DESTROYED_BYTES 64

static hak_heap *heap;

static void *take(enum way way, size_t size) {
  return way == PLAIN || way == DEFAULT ? malloc(size) : hak_heap_malloc(heap, size);
}

static void give(enum way way, void *block) {
  if (way == EXPLICIT)
    hak_heap_free(heap, block);
  else
    free(block);
}

/* One loop for each way, so that none asks which one it is. */
__attribute__((always_inline)) static inline void replace(enum way way, unsigned char **blocks, uint64_t slots,
                                                          uint64_t ops, uint64_t *random) {
  for (uint64_t i = 0; i < ops; i++) {
    uint64_t r = bench_random(random);
    unsigned char **slot = &blocks[bench_pick_low(r, slots)];
    if (*slot != NULL)
      give(way, *slot);
    *slot = bench_block(take(way, 16 + (r >> 40) % 1009));
    (*slot)[0] = (unsigned char)r;
  }
}

static double destroy_ms(uint64_t blocks) {
  hak_heap *big = hak_heap_new(0);
  for (uint64_t i = 0; big != NULL && i < blocks; i++)
    ((unsigned char *)bench_block(hak_heap_malloc(big, DESTROYED_BYTES)))[0] = 1;
  uint64_t start_ns = bench_clock_ns();
  if (big == NULL || hak_heap_destroy(big) != 0)
    bench_die("a heap cannot be made or destroyed");
  return (double)(bench_clock_ns() - start_ns) / 1e6;
}

int main(int argc, char **argv) {
  struct bench_param params[] = {
      {"OPS", 5000000, 1, UINT64_C(1) << 40, "replacements"},
      {"SLOTS", 400, 1, 1 << 20, "live blocks"},
      {"WAY", EXPLICIT, 0, WAYS - 1, "0 malloc and free; in a heap: 1 hak_heap_free, 2 free, 3 as default"},
      {"DESTROYED", 1000000, 1, UINT64_C(1) << 30, "blocks of the heap that is destroyed"},
  };
  struct bench bench = {.name = "heaps",
                        .about = "blocks in a hak_heap beside malloc's, and the end of a heap",
                        .params = params,
                        .param_count = 4};
  bench_arguments(&bench, argc, argv);
  uint64_t ops = params[0].value, slots = params[1].value, random = 1;
  unsigned char **blocks = bench_table(&bench, slots, sizeof *blocks);
  if ((heap = hak_heap_new(0)) == NULL)
    bench_die("a heap cannot be made");
  if (params[2].value == DEFAULT)
    hak_heap_set_default(heap, NULL);
  bench_start(&bench);
  switch ((enum way)params[2].value) {
  case PLAIN:
    replace(PLAIN, blocks, slots, ops, &random);
    break;
  case EXPLICIT:
    replace(EXPLICIT, blocks, slots, ops, &random);
    break;
  case PLAIN_FREE:
    replace(PLAIN_FREE, blocks, slots, ops, &random);
    break;
  default:
    replace(DEFAULT, blocks, slots, ops, &random);
    break;
  }
  bench_stop(&bench, ops);
  hak_heap_set_default(NULL, NULL);
  bench_extra(&bench, "destroy_ms", destroy_ms(params[3].value));
  return bench_report(&bench, random);
}
