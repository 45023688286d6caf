/* Pools: several heaps take from and free into the slabs of one pool, and keep blocks of other pools; how heaps are
 * distributed; what happens when threads end, when a pool's lock is never given, and in the child of a fork. Controls
 * `apart`: each heap has a pool of its own; `strange`: bins take no block of another pool. The test must fail then. */
#include "unit.h"

#include "heap/envelope.h"
#include "os/nodes.h"
#include "threads/watch.h"

#include <stdatomic.h>

#define BLOCKS 200
#define BYTES 64u
#define LONG_BYTES 1000u

static bool clock_moves;
static uint64_t waited_ms;
static void *blocks[BLOCKS];

TEST_WRAP(uint64_t, os_milliseconds, void) { return __real_os_milliseconds() + waited_ms; }

static bool has_no_metadata;
TEST_WRAP(void *, metadata_take, unsigned order) { return has_no_metadata ? NULL : __real_metadata_take(order); }

static void no_metadata(void) {
  envelopes_trim(); /* the pools keep some */
  has_no_metadata = true;
}

TEST_WRAP(void, os_futex_wait_for, _Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  if (clock_moves)
    waited_ms += timeout_ms;
  else
    __real_os_futex_wait_for(word, expected, timeout_ms);
}

static void (*instead_of_a_heap)(void);
TEST_WRAP(bool, heap_ids_grow, void) {
  if (instead_of_a_heap == NULL)
    return __real_heap_ids_grow();
  instead_of_a_heap();
  return false;
}

static const char *one_pool(void) { return unit_lies("apart") ? "1024" : "1"; }

static int all_pools_cleared(void **unused) {
  unit_pools_clear();
  return 0;
}
#define POOL_TEST(test) UNIT_TEST_BETWEEN(test, NULL, all_pools_cleared)

POOL_TEST(heaps_of_a_pool_free_each_others_blocks) {
  unit_option("HAKMEM_POOLS", one_pool());
  struct heap *taker = unit_heap_attach(), *freer = unit_heap_attach();
  assert_ptr_equal(heap_pool(taker), heap_pool(freer));
  assert_ptr_not_equal(taker, freer);
  unit_heap_become(taker);
  unit_alloc(blocks, BLOCKS, BYTES);
  unit_heap_become(freer);
  size_t freed = usage_freed();
  unit_free(blocks, BLOCKS);
  /* What bins took counts as freed: the background thread comes for what ended threads leave in bins. */
  assert_true(usage_freed() - freed >= bins_content(freer).bytes);
  assert_int_equal(atomic_load(&freer->outbox.open_bytes), 0);
  assert_int_equal(atomic_load(&freer->outbox.envelopes_sent), 0);
  assert_true(bins_content(freer).blocks > 0);
  size_t taken = heap_pool(freer)->slabs.taken_bytes;
  assert_int_equal(taken, bins_content(freer).bytes + bins_content(taker).bytes);
  UNIT_HEAP_VALID(freer);
  UNIT_HEAP_VALID(taker);
  void *again = hak_malloc(BYTES);
  bool is_same = false;
  for (unsigned i = 0; i < BLOCKS; i++)
    is_same |= again == blocks[i];
  assert_true(is_same);
  hak_free(again);
}

static void flush_current(void) { UNIT_SLOWLY(heap_flush_all(heap_current())); }

/* The heap that owns the block flushes last: what the other one sent is there by then. */
static void free_in_both(void *heaps) {
  struct heap **two = heaps;
  for (unsigned i = 0; i < 2; i++) {
    unit_heap_become(two[i]);
    hak_free(test_opaque(blocks[0]));
  }
  for (unsigned i = 2; i > 0; i--) {
    unit_heap_become(two[i - 1]);
    flush_current();
  }
}

/* The block is in two bins. The second flush finds its bit set. */
POOL_TEST(a_double_free_through_two_heaps_is_found) {
  unit_option("HAKMEM_POOLS", one_pool());
  struct heap *two[2] = {unit_heap_attach(), unit_heap_attach()};
  unit_heap_become(two[0]);
  blocks[0] = UNIT_GOT(hak_malloc(BYTES));
  unit_must_die(free_in_both, two, "double free of block ", blocks[0], "");
  hak_free(blocks[0]);
}

/* Two heaps of two pools. The first one has allocated blocks[0..BLOCKS), the second one has a bin for them. */
static void two_pools(struct heap *two[2]) {
  unit_option("HAKMEM_POOLS", "2");
  for (unsigned i = 0; i < 2; i++) {
    two[i] = unit_heap_attach();
    unit_alloc(blocks, BLOCKS, BYTES);
    unit_free(blocks, BLOCKS);
  }
  assert_ptr_not_equal(heap_pool(two[0]), heap_pool(two[1]));
  assert_true(entries_are_alike(heap_pool(two[0])->slabs.key, heap_pool(two[1])->slabs.key));
  if (unit_lies("strange"))
    two[1]->front.key = KEY_OF_NONE;
  unit_heap_become(two[0]);
  unit_alloc(blocks, BLOCKS, BYTES);
  unit_heap_become(two[1]);
}

/* Tells how many of the blocks a bin holds that are another pool's. */
static size_t others_in_bin(const struct heap *heap) {
  const struct hak_bin *bin = &heap->front.bins[hak_class_of(BYTES)];
  size_t count = 0;
  for (void **slot = bin->top - 1; *slot != NULL; slot--)
    count += entry_pool_id(map_entry(*slot)) != heap_pool(heap)->id;
  return count;
}

POOL_TEST(bins_keep_blocks_of_other_pools) {
  struct heap *two[2];
  two_pools(two);
  void *last = NULL;
  uint64_t sent = atomic_load(&two[1]->outbox.remote_frees);
  for (unsigned i = 0; i < BLOCKS; i++) {
    hak_free(blocks[i]);
    last = others_in_bin(two[1]) == i + 1 ? blocks[i] : last;
  }
  assert_non_null(last);
  size_t kept = others_in_bin(two[1]), open = atomic_load(&two[1]->outbox.open_bytes) / BYTES;
  assert_true(kept > 0);
  sent = atomic_load(&two[1]->outbox.remote_frees) - sent;
  assert_int_equal(kept + open + sent, BLOCKS); /* what finds no room takes an envelope */
  UNIT_HEAP_VALID(two[1]);
  assert_ptr_equal(hak_malloc(BYTES), last);
  assert_int_equal(others_in_bin(two[1]), kept - 1);
  hak_free(last);

  /* An overflow by its own pool's block makes room: the others go into envelopes, its own into slabs. */
  void *own[BLOCKS];
  unit_alloc(own, BLOCKS, BYTES);
  unit_free(own, BLOCKS);
  UNIT_HEAP_VALID(two[1]);
  flush_current();
  UNIT_HEAP_VALID(two[1]);
  assert_int_equal(heap_pool(two[1])->slabs.taken_bytes, 0);
  unit_heap_become(two[0]);
  flush_current();
  assert_int_equal(heap_pool(two[0])->slabs.taken_bytes, 0);
}

/* A pool without a free block of a long class takes those of another before it opens a slab, unless that pool's lock is
 * taken. */
UNIT_TEST(free_blocks_of_other_pools_serve) {
  enum { MANY = 2000 }; /* more than a slab has */
  static void *held[MANY];
  for (unsigned is_short = 0; is_short < 2; is_short++) {
    size_t bytes = is_short ? LONG_BYTES : 2 * LONG_BYTES;
    struct heap *two[2];
    unit_option("HAKMEM_POOLS", "2");
    for (unsigned i = 0; i < 2; i++)
      two[i] = unit_heap_attach();
    unit_heap_become(two[0]);
    unit_alloc(blocks, BLOCKS, bytes);
    unit_free(blocks + 1, BLOCKS - 1);
    flush_current();
    unit_heap_become(two[1]);
    uint64_t opened = heap_pool(two[1])->slabs.counters.slabs_opened;
    size_t taken = slab_set_taken_bytes(&heap_pool(two[0])->slabs);
    lock_take(&heap_pool(two[0])->lock);
    held[0] = hak_malloc(bytes);
    assert_int_equal(heap_pool(two[1])->slabs.counters.slabs_opened, opened + 1);
    lock_give(&heap_pool(two[0])->lock);
    unit_alloc(held + 1, MANY - 1, bytes);
    assert_int_equal(slab_set_taken_bytes(&heap_pool(two[0])->slabs) > taken, !is_short);
    UNIT_HEAP_VALID(two[1]);
    hak_free(blocks[0]);
    unit_free(held, MANY);
    unit_pools_clear();
  }
}

/* Blocks of others leave a bin by envelopes. If there is no memory for one, and their pool's lock is taken, they
 * stay. */
POOL_TEST(blocks_of_others_stay_if_memory_is_out) {
  struct heap *two[2];
  two_pools(two);
  unit_free(blocks, 4);
  size_t kept = others_in_bin(two[1]);
  assert_int_equal(kept, 4);
  no_metadata();
  lock_take(&heap_pool(two[0])->lock);
  flush_current();
  assert_int_equal(others_in_bin(two[1]), kept);
  assert_int_equal(bins_content(two[1]).blocks, kept);
  UNIT_HEAP_VALID(two[1]);
  struct pool *left = heap_pool(two[1]);
  UNIT_SLOWLY(assert_false(heap_move(two[1], pool_attach()))); /* not with blocks in its bins */
  assert_ptr_equal(heap_pool(two[1]), left);
  pool_unlock(heap_pool(two[0]));
  flush_current(); /* straight into their slabs */
  assert_int_equal(bins_content(two[1]).blocks, 0);
  assert_int_equal(heap_pool(two[0])->slabs.taken_bytes, (BLOCKS - kept) * BYTES + bins_content(two[0]).bytes);
  has_no_metadata = false;
  unit_free(blocks + 4, BLOCKS - 4);
}

/* A heap with such blocks is not parked: its next owner may belong to any pool. */
POOL_TEST(a_dead_heap_keeps_blocks_that_stay) {
  struct heap *two[2];
  two_pools(two);
  hak_free(blocks[0]);
  assert_int_equal(others_in_bin(two[1]), 1);
  no_metadata();
  lock_take(&heap_pool(two[0])->lock);
  unit_heap_give_up(two[1]);
  unit_heap_become(two[0]);
  unit_sweep();
  assert_true(heap_is_owned(two[1]->id));
  assert_int_equal(others_in_bin(two[1]), 1);
  pool_unlock(heap_pool(two[0]));
  has_no_metadata = false;
  unit_sweep();
  assert_false(heap_is_owned(two[1]->id));
  assert_int_equal(bins_content(two[1]).blocks, 0);
  unit_free(blocks + 1, BLOCKS - 1);
}

/* The block is in two bins, of two pools. */
POOL_TEST(a_double_free_through_two_pools_is_found) {
  struct heap *two[2];
  two_pools(two);
  unit_must_die(free_in_both, two, "double free of block ", blocks[0], "");
  unit_free(blocks, BLOCKS);
}

POOL_TEST(heaps_spread_over_the_pools) {
  unit_option("HAKMEM_POOLS", "3");
  uint32_t before = pool_count();
  for (unsigned i = 0; i < 7; i++)
    unit_heap_attach();
  assert_int_equal(pool_count(), max_size(before, 3));
  uint32_t most = 0, least = UINT32_MAX, used = 0;
  for (uint32_t id = 1; id <= 3; id++) {
    uint32_t heaps = atomic_load(&pool_by_id(id)->heaps);
    most = heaps > most ? heaps : most;
    least = heaps < least ? heaps : least;
  }
  assert_int_equal(most, 3);
  assert_int_equal(least, 2);
  unit_pools_clear();
  unit_option("HAKMEM_POOLS", "0");
  for (unsigned i = 0; i < 8192; i++) /* more than one for each processor */
    if (atomic_load(&heap_pool(unit_heap_attach())->heaps) > 1)
      break;
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    used += pool_heaps(pool) > 0;
  assert_int_equal(used, min_size(os_cpus_add(), POOLS_MAX));
}

/* One heap allocates so many blocks, and the other frees them. */
static void hand_over(struct heap *taker, struct heap *freer, unsigned rounds) {
  for (unsigned round = 0; round < rounds; round++) {
    unit_heap_become(taker);
    unit_alloc(blocks, BLOCKS, BYTES);
    unit_heap_become(freer);
    unit_free(blocks, BLOCKS);
  }
}

/* Two heaps of one pool. Returns the pool. */
static struct pool *two_of_a_pool(struct heap *two[2]) {
  two[0] = unit_heap_attach();
  do
    two[1] = unit_heap_attach();
  while (heap_pool(two[1]) != heap_pool(two[0]));
  return heap_pool(two[0]);
}

#define ROUNDS_TO_PART 1000

/* A thread that only frees what the others of its pool allocate gets another pool. Others stay. */
POOL_TEST(a_thread_that_only_frees_leaves_its_pool) {
  struct heap *two[2];
  unit_option("HAKMEM_POOLS", "0");
  struct pool *pool = two_of_a_pool(two);
  hand_over(two[0], two[0], ROUNDS_TO_PART);
  hand_over(two[1], two[1], ROUNDS_TO_PART);
  for (unsigned i = 0; i < ROUNDS_TO_PART; i++) /* in turns */
    hand_over(two[i % 2], two[1 - i % 2], 1);
  assert_ptr_equal(heap_pool(two[0]), pool);
  assert_ptr_equal(heap_pool(two[1]), pool);
  uint32_t heaps = pool_heaps(pool);
  hand_over(two[0], two[1], ROUNDS_TO_PART);
  assert_ptr_equal(heap_pool(two[0]), pool);
  assert_ptr_not_equal(heap_pool(two[1]), pool);
  assert_int_equal(pool_heaps(pool), heaps - 1);
  assert_true(atomic_load(&two[1]->outbox.envelopes_sent) > 0);
  UNIT_HEAP_VALID(two[0]);
  UNIT_HEAP_VALID(two[1]);
  struct pool *second = heap_pool(two[1]);
  hand_over(two[0], two[1], ROUNDS_TO_PART); /* once */
  assert_ptr_equal(heap_pool(two[1]), second);
  unit_pools_clear();
  unit_option("HAKMEM_POOLS", "1"); /* is obeyed */
  pool = two_of_a_pool(two);
  hand_over(two[0], two[1], ROUNDS_TO_PART);
  assert_ptr_equal(heap_pool(two[1]), pool);
}

/* A thread that uses a class once holds little of it. */
POOL_TEST(a_new_bin_holds_few_blocks) {
  unit_option("HAKMEM_POOLS", one_pool());
  struct heap *heap = unit_heap_attach();
  void *held[BLOCKS];
  uint64_t refills = heap->counters.refills;
  held[0] = UNIT_GOT(hak_malloc(LONG_BYTES));
  assert_in_range(bins_content(heap).blocks, 0, 1);
  unit_alloc(held + 1, BLOCKS - 1, LONG_BYTES);
  assert_in_range(heap->counters.refills - refills, 1, BLOCKS / 6); /* used more, it holds more */
  unit_free(held, BLOCKS);
  UNIT_HEAP_VALID(heap);
}

/* Each of many threads keeps less in its bins and its envelopes. */
UNIT_TEST(a_crowd_keeps_little) {
  unit_option("HAKMEM_POOLS", "2");
  struct heap *heaps[2 * HEAPS_OF_CROWD + 2], *freer = NULL;
  size_t kept_bytes[2];
  for (unsigned round = 0; round < 2; round++) {
    unsigned count = round == 0 ? 2 : sizeof heaps / sizeof heaps[0];
    for (unsigned i = 0; i < count; i++)
      heaps[i] = unit_heap_attach();
    struct heap *taker = heaps[0];
    freer = heaps[1];
    assert_ptr_not_equal(heap_pool(taker), heap_pool(freer));
    assert_int_equal(pool_is_crowded(heap_pool(freer)), round == 1);
    unit_heap_become(taker);
    unit_alloc(blocks, BLOCKS, LONG_BYTES);
    unit_heap_become(freer);
    kept_bytes[round] = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
      hak_free(blocks[i]);
      kept_bytes[round] = max_size(kept_bytes[round], atomic_load(&freer->outbox.open_bytes));
    }
    unit_pools_clear();
  }
  assert_in_range(kept_bytes[1], 1, 32 * 1024);
  assert_true(kept_bytes[0] > kept_bytes[1]);
}

static void *allocate_and_end(void *unused) {
  for (unsigned i = 0; i < BLOCKS; i++)
    blocks[i] = hak_malloc(16 + i * 20);
  unit_free(blocks, BLOCKS);
  return heap_pool(heap_current());
}

POOL_TEST(an_ended_threads_blocks_serve_its_pool) {
  unit_needs_ends();
  unit_option("HAKMEM_POOLS", one_pool());
  struct heap *self = unit_heap_attach();
  assert_ptr_equal(test_thread_run(allocate_and_end, NULL), heap_pool(self));
  assert_int_equal(atomic_load(&heap_pool(self)->heaps), 2);
  assert_true(heap_pool(self)->slabs.taken_bytes > 0);
  unit_sweep();
  assert_int_equal(atomic_load(&heap_pool(self)->heaps), 1);
  assert_int_equal(heap_pool(self)->slabs.taken_bytes, 0);
}

#define LEFT_BLOCKS 2000

static void *left_blocks[LEFT_BLOCKS];

static void *leave_blocks(void *unused) {
  unit_alloc(left_blocks, LEFT_BLOCKS, LONG_BYTES);
  return unused;
}

static _Atomic bool is_looked_enough;

static void *look_at_pools(void *unused) {
  while (!is_looked_enough)
    for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool)) {
      struct pool_figures figures;
      CHECK(slow_path_begin());
      pool_figures(pool, &figures);
      heaps_kept_bytes();
      slow_path_end();
    }
  return unused;
}

/* A thread that sends an envelope to a pool without heaps cannot drain it while another one holds the pool's lock. Then
 * that one does. */
POOL_TEST(mail_to_a_pool_without_heaps_does_not_stay) {
  unit_needs_ends();
  unit_option("HAKMEM_POOLS", "2");
  struct heap *self = unit_heap_attach();
  unit_heap_become(self);
  for (unsigned round = unit_rounds(1200, 10); round > 0; round--) {
    pthread_t looker;
    test_thread_run(leave_blocks, NULL);
    unit_sweep();
    is_looked_enough = false;
    test_threads_start(&looker, 1, look_at_pools, NULL, 0);
    unit_free(left_blocks, LEFT_BLOCKS);
    UNIT_SLOWLY(heap_flush_all(self));
    is_looked_enough = true;
    test_threads_join(&looker, 1);
    for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
      assert_true(pool == heap_pool(self) || !inbox_has_mail(pool));
  }
}

static struct heap *sender;

static void sender_flushes(void) {
  uintptr_t thread = hak_thread;
  unit_heap_become(sender);
  flush_current();
  hak_self = FRONT_OF_NONE;
  hak_thread = thread;
}

/* While a thread attaches to a pool, another one sends to it, and does not drain it. Then memory is out for a heap. */
POOL_TEST(mail_to_a_pool_that_gets_no_heap_does_not_stay) {
  struct heap *two[2];
  two_pools(two);
  struct pool *pool = heap_pool(two[0]);
  unit_heap_give_up(two[0]);
  unit_heap_become(sender = two[1]);
  unit_sweep();
  assert_int_equal(pool_heaps(pool), 0);
  hak_free(blocks[0]);
  for (struct heap *heap = heap_from(1, false); heap; heap = heap_from(heap->id + 1, false))
    assert_true(lifeline_take(&heap->lifeline)); /* no parked one serves */
  instead_of_a_heap = sender_flushes;
  assert_null(unit_heap_attach());
  instead_of_a_heap = NULL;
  assert_int_equal(pool_heaps(pool), 0);
  assert_false(inbox_has_mail(pool));
  for (struct heap *heap = heap_from(1, false); heap; heap = heap_from(heap->id + 1, false))
    lifeline_drop(&heap->lifeline);
  unit_heap_become(sender);
  unit_free(blocks + 1, BLOCKS - 1);
}

static void deliver_from(unsigned i) {
  for (; i < BLOCKS; i++)
    block_deliver(blocks[i], map_entry(blocks[i]));
}

/* The holder of a pool's lock may have ended or jumped out of its slow path. Others of the pool go on elsewhere. */
POOL_TEST(a_lock_that_is_never_given_stops_no_thread) {
  unit_option("HAKMEM_POOLS", one_pool());
  struct heap *holder = unit_heap_attach(), *other = unit_heap_attach();
  struct pool *pool = heap_pool(other);
  assert_ptr_equal(heap_pool(holder), pool);
  assert_non_null(blocks[0] = hak_malloc(BYTES)); /* fills a bin of `other` */
  unit_alloc(blocks + 2, BLOCKS - 2, LONG_BYTES);
  lock_take(&pool->lock);
  clock_moves = true;
  blocks[1] = UNIT_GOT(hak_malloc(BYTES * 5));
  clock_moves = false;
  assert_true(waited_ms >= 500);
  assert_ptr_not_equal(heap_current(), other);
  assert_ptr_not_equal(heap_pool(heap_current()), pool);
  assert_true(heap_is_owned(other->id)); /* a sweep leaves it alone until the lock is free */
  unit_sweep();
  assert_true(heap_is_owned(other->id));
  hak_free(blocks[0]); /* by an envelope */
  hak_free(blocks[1]);
  waited_ms = 0;
  clock_moves = true;
  deliver_from(2); /* frees that were deferred: they are lost, after one wait for all of them */
  clock_moves = false;
  assert_true(waited_ms < 5000);
  lock_give(&pool->lock);
  deliver_from(2);
  unit_sweep();
  assert_false(heap_is_owned(other->id));
}

static void nothing(void) {}

/* If there is no memory for another heap either, the thread keeps its own, and what belongs to that. */
POOL_TEST(a_thread_keeps_its_heap_if_there_is_no_other) {
  struct heap *heap = unit_heap_attach();
  for (struct heap *each = heap_from(1, false); each; each = heap_from(each->id + 1, false))
    assert_true(lifeline_take(&each->lifeline)); /* no parked one serves */
  lock_take(&heap_pool(heap)->lock);
  instead_of_a_heap = nothing;
  clock_moves = true;
  hak_free(hak_malloc(BYTES)); /* from elsewhere, or none */
  clock_moves = false;
  assert_ptr_equal(heap_current(), heap);
  instead_of_a_heap = NULL;
  lock_give(&heap_pool(heap)->lock);
  blocks[0] = UNIT_GOT(hak_malloc(BYTES));
  assert_ptr_equal(heap_current(), heap);
  hak_free(blocks[0]);
  for (struct heap *each = heap_from(1, false); each; each = heap_from(each->id + 1, false))
    lifeline_drop(&each->lifeline);
}

static void check_child(void *pool) {
  for (struct pool *each = pool_next(NULL); each; each = pool_next(each))
    CHECK(atomic_load(&each->heaps) == (each == pool ? 1 : 0));
  CHECK(pools_heaps() == 1);
  for (unsigned i = 0; i < BLOCKS; i++)
    blocks[i] = CHECK_GOT(hak_malloc(BYTES));
}

POOL_TEST(a_forks_child_keeps_one_heap) {
  unit_option("HAKMEM_POOLS", "2");
  for (unsigned i = 0; i < 5; i++) {
    unit_heap_attach();
    hak_free(hak_malloc(BYTES));
  }
  unit_passes_in_child(check_child, heap_pool(heap_current()));
}

UNIT_MAIN(unit_alone())
