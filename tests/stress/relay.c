/* Generations of threads: each takes over the blocks of the dead generation before it, verifies and
 * frees half of them, allocates replacements and dies. Every block is freed by a stranger, most after
 * the death of the thread that made it. */

#include "../heap_api.h"
#include "../threads.h"

#define LINES 4
#define BLOCKS 2000
#define RSS_KIB_MAX (160L << 10)

struct block {
  unsigned char *address;
  size_t size;
};

struct relay {
  struct block blocks[BLOCKS];
  uint64_t seed;
};

static struct relay relays[LINES];

static void block_make(struct block *block, uint64_t *seed) {
  block->size = test_random(seed) % 64 == 0 ? test_random(seed) % 300000 + 1 : test_random(seed) % 1500 + 1;
  block->address = CHECK_GOT(t_malloc(block->size));
  block->address[0] = (unsigned char)block->size;
  block->address[block->size - 1] = (unsigned char)(block->size >> 3);
  if (block->size == 1)
    block->address[0] = 0;
}

static void block_drop(struct block *block) {
  if (!block->address)
    return;
  if (block->size > 1) {
    CHECK(block->address[0] == (unsigned char)block->size);
    CHECK(block->address[block->size - 1] == (unsigned char)(block->size >> 3));
  }
  t_free(block->address);
  block->address = NULL;
}

static void *runner(void *argument) {
  struct relay *relay = argument;
  for (int i = 0; i < BLOCKS; i++) {
    if (test_random(&relay->seed) % 2)
      continue;
    block_drop(&relay->blocks[i]);
    if (test_random(&relay->seed) % 4)
      block_make(&relay->blocks[i], &relay->seed);
  }
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  long generations = test_rounds(300, 400);
  for (int i = 0; i < LINES; i++)
    relays[i].seed = test_seed + (uint64_t)i * 77;
  for (long generation = 0; generation < generations; generation++) {
    /* The lines rotate, so the blocks of one thread are spread over several successors. */
    test_threads_run(LINES, runner, relays, sizeof *relays);
    for (int i = 0; i < BLOCKS; i += 2) {
      struct block kept = relays[0].blocks[i];
      for (int line = 0; line + 1 < LINES; line++)
        relays[line].blocks[i] = relays[line + 1].blocks[i];
      relays[LINES - 1].blocks[i] = kept;
    }
  }
  /* About 20 MiB are live and gigabytes went by: what is kept for reuse is bounded, nothing leaks. */
  CHECK_SAY(!TEST_RSS_COUNTS || test_rss_kib() < RSS_KIB_MAX, "RSS %ld KiB", test_rss_kib());
  for (int line = 0; line < LINES; line++) {
    for (int i = 0; i < BLOCKS; i++)
      block_drop(&relays[line].blocks[i]);
  }
}
