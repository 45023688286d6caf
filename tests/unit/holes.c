/* holes: pages of free blocks go back while threads allocate, free, and free each other's blocks: no live block
 * changes, and nothing is lost. Rounds of all depths run one after another, from two threads, all the time.
 *
 * Positive control: with an argument, purging goes wrong: `wide` takes a page too many, `late` purges a hole only
 * when the next one is due, when its slab is in use again. The test must fail then.
 *     unit-holes wide | late
 */
#include "unit.h"

static _Atomic uint64_t purges;

TEST_WRAP(bool, os_purge, void *address, size_t size) {
  static __thread struct {
    void *address;
    size_t size;
  } last;
  atomic_fetch_add(&purges, 1);
  if (unit_lies("late")) {
    if (last.address)
      __real_os_purge(last.address, last.size);
    last.address = address;
    last.size = size;
    return true;
  }
  return __real_os_purge(address, size + (unit_lies("wide") ? os_page_bytes() : 0));
}

#define WORKERS 3u
#define LIVE 2000u
#define SHARED 512u

struct block {
  size_t size;
  uint64_t words[];
};

/* Content depends on the address: a block that was given out twice, or moved, shows. */
static uint64_t word(const struct block *block, size_t i) {
  return ((uintptr_t)block ^ block->size) * 0x9e3779b97f4a7c15u + i;
}
static size_t word_count(size_t size) { return (size - sizeof(struct block)) / sizeof(uint64_t); }

static _Atomic bool ending, broken;

static void check(struct block *block) {
  size_t count = word_count(block->size);
  for (size_t i = 0; i < count; i++)
    if (block->words[i] != word(block, i)) {
      if (!atomic_exchange(&broken, true))
        print_message("word %zu of %zu at %p\n", i, count, (void *)block);
      if (*unit_word) /* seen; memory that is damaged further may hang */
        _exit(1);
      return;
    }
}

static struct block *make(uint64_t *seed) {
  static const size_t sizes_max[] = {64, 300, 1200, 1200, 5000, 5000, 20000, 200000};
  size_t size = sizeof(struct block) + test_random(seed) % sizes_max[test_random(seed) % 8];
  if (test_random(seed) % 512 == 0)
    size += HAK_SMALL_MAX;
  struct block *block = CHECK_GOT(hak_malloc(size));
  block->size = size;
  for (size_t i = 0; i < word_count(size); i++)
    block->words[i] = word(block, i);
  return block;
}

static void drop(struct block *block) {
  if (block == NULL)
    return;
  check(block);
  hak_free(block);
}

static struct block *_Atomic shared[SHARED]; /* freed by any thread */

static void *work(void *argument) {
  uint64_t seed = UNIT_SEED + (uintptr_t)argument;
  static __thread struct block *live[LIVE];
  for (unsigned step = 0; step < unit_rounds(60000, 33) && !atomic_load(&broken); step++) {
    unsigned i = (unsigned)(test_random(&seed) % LIVE);
    bool shrinks = step / 8192 % 2; /* many are freed, then taken again: into the holes */
    unsigned dice = (unsigned)(test_random(&seed) % 100);
    if (dice < 10) {
      drop(atomic_exchange(&shared[test_random(&seed) % SHARED], make(&seed)));
    } else if (dice < 15) {
      if (live[i])
        check(live[i]);
    } else {
      drop(live[i]);
      live[i] = dice < (shrinks ? 25 : 90) ? make(&seed) : NULL;
    }
  }
  for (unsigned i = 0; i < LIVE; i++)
    drop(live[i]);
  return NULL;
}

static void *purge_on(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  while (!atomic_load(&ending)) {
    usleep((useconds_t)(test_random(&seed) % 300));
    if (test_random(&seed) % 3)
      reclaim_round((enum reclaim_depth)(test_random(&seed) % 3), NULL);
    else
      hak_trim(0);
    UNIT_DEBUG(if (test_random(&seed) % 16 == 0 && !extents_are_valid()) atomic_store(&broken, true));
  }
  return NULL;
}

UNIT_TEST(live_blocks_keep_their_contents) {
  unit_option("HAKMEM_PURGE_DELAY_MS", "0");
  unit_option("HAKMEM_KEEP_MB", "0");
  pthread_t purgers[2];
  test_threads_start(purgers, 2, purge_on, (void *)(uintptr_t)1, 1);
  test_threads_run(WORKERS, work, NULL, 1);
  atomic_store(&ending, true);
  test_threads_join(purgers, 2);
  assert_false(atomic_load(&broken));
  assert_true(atomic_load(&purges) > 500);
  for (unsigned i = 0; i < SHARED; i++)
    drop(atomic_exchange(&shared[i], NULL));
  assert_false(atomic_load(&broken));
}

/* Afterwards every slab is found again, and closes: none stayed out of its list. */
UNIT_TEST(nothing_is_lost) {
  unit_needs_ends();
  hak_trim(0);
  hak_trim(0);
  size_t slab_bytes = 0, taken_bytes = 0;
  for (uint32_t id = 1; id <= heap_count(); id++) {
    struct heap *heap = heap_by_id(id);
    lock_take(&heap_pool(heap)->lock);
    slab_bytes += heap_pool(heap)->slabs.slab_bytes;
    taken_bytes += heap_pool(heap)->slabs.taken_bytes;
    UNIT_HEAP_VALID(heap);
    lock_give(&heap_pool(heap)->lock);
  }
  assert_int_equal(taken_bytes, 0);
  assert_int_equal(slab_bytes, 0);
  assert_int_equal(usage_taken(), 0);
  assert_int_equal(usage_free(), 0);
}

static void gives_up(int number) { _exit(1); }

static void begin(void) {
  unit_alone();
  if (*unit_word) { /* what is damaged may also hang */
    signal(SIGALRM, gives_up);
    alarm(30);
  }
}

UNIT_MAIN(begin())
