/* Spare memory: what was freed is found again, however much one fork's wait took; threads take and free in chunks of
 * one class, each other's blocks too, and no block is given out twice. */
#include "unit.h"

#include "threads/spare.h"

#include <stdatomic.h>

#define BYTES 1000u
#define BLOCKS 40000u
#define THREADS 4u
#define SHARED 64u

static void *take(size_t bytes) { return spare_take(bytes, BLOCK_ALIGNMENT, hak_class_of(bytes)); }
static void give(void *block) { spare_give(block, map_entry(block)); }

static size_t held_after_spares(void) {
  static void *blocks[BLOCKS];
  for (unsigned i = 0; i < BLOCKS; i++) {
    blocks[i] = UNIT_GOT(take(BYTES));
    memset(blocks[i], (int)i, BYTES);
  }
  for (unsigned i = 0; i < BLOCKS; i++) {
    assert_int_equal(((unsigned char *)blocks[i])[BYTES - 1], (unsigned char)i);
    give(blocks[i]);
  }
  return usage_held();
}

/* Threads may take much while a fork goes on. The next fork finds it again. */
UNIT_TEST(what_was_freed_serves_again) {
  size_t held = held_after_spares();
  for (unsigned i = 0; i < 5; i++)
    assert_true(held_after_spares() <= held + UNIT_BYTES); /* a round may begin in the middle of a chunk */
}

/* A block's first word is its own address while a thread or `shared` has it. */
static _Atomic(void *) shared[SHARED];

static void *stir(void *seed) {
  uint64_t state = (uintptr_t)seed;
  for (long i = test_rounds(30000, 10); i > 0; i--) {
    void **block = take(i % 16 == 0 ? 16000 : 4000); /* 4 and 16 to a chunk */
    CHECK(block != NULL);
    CHECK(*block != block);
    *block = block;
    block = atomic_exchange(&shared[test_random(&state) % SHARED], block);
    if (block == NULL)
      continue;
    CHECK(*block == block);
    *block = NULL;
    give(block);
  }
  return NULL;
}

UNIT_TEST(threads_share_chunks) {
  test_threads_run(THREADS, stir, (void *)(uintptr_t)UNIT_SEED, 1);
  for (unsigned i = 0; i < SHARED; i++)
    if (shared[i] != NULL)
      give(atomic_exchange(&shared[i], NULL));
  assert_true(usage_held() < (size_t)64 << 20);
}

UNIT_MAIN(unit_alone())
