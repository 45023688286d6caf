/* heap: bins that grow and shrink, envelopes and inboxes, heaps of dead threads. */
#include "heap/envelope.h"
#include "unit.h"

#include "policy/bin_policy.h"
#include "reclaim/background.h"

#define KIB ((size_t)1024)
#define LOOKS 2048u /* slow calls between two decisions about a bin */

static void *blocks[1 << 16];

static void come_and_go(size_t count, size_t size) {
  unit_alloc(blocks, count, size);
  unit_free(blocks, count);
}

static size_t granted_in_bins(const struct heap *heap) {
  size_t slots_max = (size_t)option_value(OPTION_BIN_SLOTS), bytes = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++)
    if (heap->bin_state[cls].base)
      bytes += sub_sat(heap->bin_state[cls].slots, bin_slots_initial(slots_max, class_bytes(cls))) * class_bytes(cls);
  return bytes;
}

/* blocks[0..count) of `owner` were freed by `freer`: they must all be home when the inboxes are empty. */
static void assert_home(struct heap *owner) {
  lock_take(&heap_pool(owner)->lock);
  inbox_drain_to_slabs(heap_pool(owner));
  lock_give(&heap_pool(owner)->lock);
  assert_int_equal(atomic_load(&heap_pool(owner)->inbox_bytes), 0);
  assert_int_equal(heap_pool(owner)->slabs.taken_bytes, bins_content(owner).bytes);
  UNIT_HEAP_VALID(owner);
}

static void tick_of(struct heap *heap, unsigned calls, size_t block_bytes) {
  lock_take(&heap_pool(heap)->lock);
  for (unsigned i = 0; i < calls; i++)
    bins_tick(heap, hak_class_of(block_bytes));
  lock_give(&heap_pool(heap)->lock);
}

static void tick(struct heap *heap, unsigned calls) { tick_of(heap, calls, 16); }

static void *short_life(void *unused) {
  void *some[20];
  for (unsigned i = 0; i < 20; i++)
    some[i] = hak_malloc(16 + i * 40);
  unit_free(some, 20);
  return NULL;
}

UNIT_TEST(many_short_threads_need_few_heaps) {
  unit_needs_ends();
  unsigned threads = unit_rounds(10000, 1);
  uint32_t before = heap_count();
  size_t tables = metadata_bytes();
  for (unsigned i = 0; i < threads; i++)
    test_thread_run(short_life, NULL);
  assert_true(heap_count() <= before + 4);
  assert_true(metadata_bytes() <= tables + 512 * KIB);
}

static void *allocate_and_end(void *count) {
  for (size_t i = 0; i < (size_t)count; i++)
    blocks[i] = hak_malloc(16 + i % 3000);
  for (size_t i = 0; i < (size_t)count; i += 2)
    hak_free(blocks[i]);
  return heap_current();
}

static struct heap *thread_that_left(size_t count) { return test_thread_run(allocate_and_end, (void *)count); }

UNIT_TEST(a_dead_threads_heap_is_swept_and_parked) {
  unit_needs_ends();
  struct heap *self = unit_heap_attach();
  size_t live = pools_live_bytes();
  struct heap *heap = thread_that_left(2000);
  heaps_sweep_all(false);
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    inbox_drain_to_slabs(pool);
  assert_false(heap_is_owned(heap->id));
  assert_int_equal(bins_content(heap).bytes, 0);
  for (size_t i = 1; i < 2000; i += 2)
    live += hak_usable_size(blocks[i]);
  assert_int_equal(pools_live_bytes(), live);
  UNIT_HEAP_VALID(heap);
  /* What is freed now is drained as soon as it arrives. */
  for (size_t i = 1; i < 2000; i += 2)
    hak_free(blocks[i]);
  heap_flush_all(self); /* its bins keep some */
  assert_false(inbox_has_mail(heap_pool(heap)));
  assert_int_equal(heap_pool(heap)->slabs.taken_bytes, 0);
}

UNIT_TEST(a_new_thread_adopts_a_dead_ones_heap) {
  unit_needs_ends();
  struct heap *heap = thread_that_left(1000); /* not swept: bins and all */
  size_t taken = heap_pool(heap)->slabs.taken_bytes;
  uint32_t count = heap_count();
  assert_true(bins_content(heap).bytes > 0);
  assert_ptr_equal(thread_that_left(0), NULL);
  for (unsigned i = 0; i < 70; i++)
    heaps_sweep_next();
  struct heap *next = thread_that_left(10);
  assert_int_equal(heap_count(), count);
  assert_true(next->id <= count);
  assert_true(taken >= heap_pool(heap)->slabs.taken_bytes);
}

static void *end_in_first_call(void *unused) { return slow_path_begin() ? heap_attach() : NULL; }

/* Nobody knows what the slow path left. */
UNIT_TEST(a_heap_whose_owner_ended_in_its_first_slow_path_is_left_alone) {
  unit_needs_ends();
  struct heap *heap = test_thread_run(end_in_first_call, NULL);
  heaps_sweep_all(false);
  assert_true(heap_is_owned(heap->id));
  assert_true(heap->lost);
  atomic_fetch_sub(&gate.inside_without_heap, 1);
  heap->inside = 0;
}

UNIT_TEST(a_living_threads_heap_is_left_alone) {
  struct heap *heap = unit_heap_attach();
  come_and_go(100, 64);
  size_t ready = bins_content(heap).bytes;
  assert_true(ready > 0);
  struct heap *other = unit_heap_attach();
  assert_ptr_not_equal(other, heap);
  heaps_sweep_all(false);
  assert_int_equal(bins_content(heap).bytes, ready);
  assert_true(heap_is_owned(heap->id));
}

/* An envelope that a thread had open when it died reaches its owner. */
static void *free_all_and_end(void *count) {
  unit_free(blocks, (size_t)count);
  return heap_current();
}

UNIT_TEST(open_envelopes_of_a_dead_thread_are_sent) {
  unit_needs_ends();
  struct heap *owner = unit_heap_attach();
  unit_alloc(blocks, 90, 64);
  lock_take(&heap_pool(owner)->lock);
  bins_flush_all(owner);
  lock_give(&heap_pool(owner)->lock);
  test_thread_run(free_all_and_end, (void *)90);
  assert_int_equal(heap_pool(owner)->slabs.taken_bytes, 90 * 64);
  heaps_sweep_all(false);
  assert_home(owner);
  assert_int_equal(heap_pool(owner)->slabs.taken_bytes, 0);
}

UNIT_TEST(bins_grow_within_the_budget_and_shrink_when_idle) {
  struct heap *heap = unit_heap_attach();
  const size_t sizes[] = {16, 64, 200, 1024, 5000, 40000, 65536};
  uint32_t slots_max = 0;
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (unsigned round = 0; round < 6; round++) {
      size_t count = min_size(8000, (16u << 20) / sizes[i]);
      come_and_go(count, sizes[i]);
      slots_max = (uint32_t)max_size(slots_max, heap->bin_state[hak_class_of(64)].slots);
      assert_int_equal(heap->granted_bytes, granted_in_bins(heap));
      assert_true(heap->granted_bytes <= (size_t)option_value(OPTION_HEAP_KB_MAX) * KIB);
      UNIT_HEAP_VALID(heap);
    }
  assert_true(heap->counters.bin_growths > 5);
  assert_true(slots_max > 1000);
  come_and_go(100, 64);
  assert_true(bins_content(heap).bytes > 0 && bins_content(heap).bytes <= heap_pool(heap)->slabs.taken_bytes);
  tick(heap, 40 * LOOKS);
  assert_int_equal(bins_content(heap).bytes, 0);
  assert_int_equal(heap->granted_bytes, 0);
  assert_int_equal(heap->granted_bytes, granted_in_bins(heap));
  assert_int_equal(heap_pool(heap)->slabs.taken_bytes, 0);
  assert_true(heap->counters.bin_shrinks >= heap->counters.bin_growths);
  UNIT_HEAP_VALID(heap);
}

/* One block in a bin would keep a slab open. What goes back to slabs here was freed long ago, but the slabs that close
 * count as freed: there is something for the background thread. */
UNIT_TEST(bins_of_unused_classes_are_emptied_when_the_heap_grows) {
  struct heap *heap = unit_heap_attach();
  const size_t sizes[] = {40, 1000, 40000, 60000};
  size_t slab_bytes = 0;
  unit_others_lock();
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    heap->bin_state[hak_class_of(sizes[i])].looks = UINT8_MAX; /* its own class serves it at once */
    hak_free(hak_malloc(sizes[i]));
    assert_true(bin_count(heap, hak_class_of(sizes[i])) > 0);
    slab_bytes += class_slab_bytes(hak_class_of(sizes[i]));
  }
  size_t freed_bytes = usage_freed();
  unit_alloc(blocks, 16 << 10, KIB);
  assert_int_equal(usage_freed() - freed_bytes, slab_bytes);
  assert_true(slab_bytes >= BACKGROUND_FREED_BYTES); /* much, which a look on the way may have noted by now */
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    assert_int_equal(bin_count(heap, hak_class_of(sizes[i])), 0);
    assert_int_equal(heap_pool(heap)->slabs.classes[hak_class_of(sizes[i])].slab_count, 0);
  }
  unit_free(blocks, 16 << 10);
  UNIT_HEAP_VALID(heap);
  unit_others_unlock();
  heap_flush_all(heap);
}

static size_t granted_to_heaps(void) {
  size_t bytes = 0;
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap))
    bytes += heap->granted_bytes;
  return bytes;
}

static unsigned turns_of_bins(const struct heap *heap) {
  unsigned turns = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++)
    turns += heap->bin_state[cls].turns;
  return turns;
}

/* Replaces blocks of a set in random order. */
static void replace_blocks(size_t count, size_t least, size_t most, unsigned times) {
  uint64_t seed = UNIT_SEED;
  for (unsigned i = 0; i < times; i++) {
    void **block = &blocks[test_random(&seed) % count];
    hak_free(*block);
    assert_non_null(*block = hak_malloc(least + test_random(&seed) % (most - least)));
  }
}

UNIT_TEST(bins_of_a_steady_set_may_hold_more_until_the_slabs_grow) {
  enum { COUNT = 100, GROWTH = 4000 };
  struct heap *heap = unit_heap_attach();
  size_t budget = 512 * KIB + (size_t)COUNT * 34000 / 2; /* of a heap that is not steady */
  unit_alloc(blocks, COUNT, 20000);
  replace_blocks(COUNT, 4096, 34000, 1000);
  assert_true(heap->granted_bytes <= budget);
  replace_blocks(COUNT, 4096, 34000, 100000);
  assert_true(heap->granted_bytes > budget);
  assert_true(heap->granted_bytes <= 4 * KIB * KIB + (size_t)COUNT * 34000);
  assert_int_equal(bins_granted_bytes(), granted_to_heaps());
  for (unsigned i = 0; turns_of_bins(heap) == 0 && i < 100; i++)
    replace_blocks(COUNT, 4096, 34000, 1000);
  assert_true(turns_of_bins(heap) > 0);
  unit_free(blocks, COUNT);
  unit_alloc(blocks, GROWTH, 3000);
  assert_int_equal(turns_of_bins(heap), 0);
  unit_free(blocks, GROWTH);
  heap_flush_all(heap);
  assert_int_equal(bins_granted_bytes(), granted_to_heaps());
  UNIT_HEAP_VALID(heap);
}

/* What lies in bins could not be had where memory runs out. */
UNIT_TEST(bins_of_a_steady_set_hold_no_more_near_a_limit) {
  enum { COUNT = 100 };
  struct heap *heap = unit_heap_attach();
  assert_int_equal(option_set(OPTION_LIMIT_MB, "40"), OPTION_OK);
  usage_limits_apply();
  unit_alloc(blocks, COUNT, 20000);
  replace_blocks(COUNT, 4096, 34000, 100000);
  assert_true(heap->granted_bytes <= 512 * KIB + (size_t)COUNT * 34000 / 2);
  assert_int_equal(option_set(OPTION_LIMIT_MB, NULL), OPTION_OK);
  usage_limits_apply();
  unit_free(blocks, COUNT);
  heap_flush_all(heap);
  UNIT_HEAP_VALID(heap);
}

/* Class by class is freed. Each bin could keep half a MiB. */
UNIT_TEST(bins_fall_with_the_heap) {
  struct heap *heap = unit_heap_attach();
  const size_t first = 576, bytes = (size_t)6 << 20;
  size_t count = 0;
  for (size_t size = first; size <= KIB; size += 64)
    for (size_t i = 0; i < bytes / size; i++)
      blocks[count++] = UNIT_GOT(hak_malloc(size));
  assert_true(count <= sizeof blocks / sizeof blocks[0]);
  unit_free(blocks, count);
  assert_true(heap->counters.bin_growths > 8);
  assert_true(bins_content(heap).bytes <= 3 * KIB * KIB);
  UNIT_HEAP_VALID(heap);
}

/* In a private heap, because its pool has given out nothing. */
UNIT_TEST(first_blocks_are_of_the_next_power_of_two) {
  static const struct {
    size_t size, usable;
  } turns[] = {{208, 256}, {208, 256}, {208, 208}, {208, 208}, {40, 64}, {3000, 3072}, {64, 64}, {1000, 1024}};
  struct hak_heap *heap = UNIT_GOT(hak_heap_new(0));
  for (unsigned i = 0; i < sizeof turns / sizeof turns[0]; i++)
    assert_int_equal(hak_usable_size(hak_heap_malloc(heap, turns[i].size)), turns[i].usable);
  for (unsigned i = 0; i < 500; i++) /* it has given out more than a small program */
    assert_non_null(hak_heap_malloc(heap, 64));
  assert_int_equal(hak_usable_size(hak_heap_malloc(heap, 400)), 400);
  assert_true(hak_heap_destroy(heap) == 0);
}

/* What the bins keep of blocks that are freed in any order pins slabs. A turn from allocating to freeing
 * doubles them. */
UNIT_TEST(bins_grow_once_for_each_turn_to_freeing) {
  enum { COUNT = 60000 };
  struct heap *heap = unit_heap_attach();
  const struct bin_state *state = &heap->bin_state[hak_class_of(16)];
  uint32_t slots = 0;
  for (unsigned turn = 0; turn < 4; turn++) {
    unit_alloc(blocks, COUNT, 16);
    uint32_t before = state->slots;
    unit_free(blocks, COUNT);
    assert_true(turn == 0 || before == slots);
    assert_int_equal(state->slots, 2 * before);
    slots = state->slots;
  }
  assert_in_range(slots, 1024, 4096);
  UNIT_HEAP_VALID(heap);
}

/* A long bin shuffles its blocks. It must hold a good part of what a turn allocates. */
UNIT_TEST_OF_ONE_THREAD(bins_are_long_where_they_hold_a_good_part_of_a_turn, NULL, NULL) {
  enum { TURNS = 10, SHORT_SLOTS = 2048 };
  static const size_t counts[] = {60000, 3000, 60000}, slots_max[] = {SHORT_SLOTS, 8 * SHORT_SLOTS, SHORT_SLOTS};
  struct heap *heap = unit_heap_attach();
  const struct bin_state *state = &heap->bin_state[hak_class_of(64)];
  for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    for (unsigned turn = 0; turn < TURNS; turn++)
      come_and_go(counts[i], 64);
    assert_in_range(state->slots, i == 1 ? 2 * SHORT_SLOTS : SHORT_SLOTS, slots_max[i]);
    UNIT_HEAP_VALID(heap);
  }
}

/* What a bin keeps of many blocks that are freed in a row lies anywhere. So it keeps little of them, until it is
 * refilled: then all its slots are in force. */
UNIT_TEST(bins_drain_in_a_long_row_of_frees) {
  enum { COUNT = 60000, SLOTS = 1024, DRAINED = 64, SHORT_ROW = 4 * SLOTS };
  struct heap *heap = unit_heap_attach();
  unsigned cls = hak_class_of(64);
  const struct bin_state *state = &heap->bin_state[cls];
  for (unsigned turn = 0; state->slots < SLOTS && turn < 10; turn++) {
    come_and_go(COUNT, 64);
    UNIT_HEAP_VALID(heap);
  }
  assert_int_equal(state->slots, SLOTS);
  assert_in_range(bin_count(heap, cls), 0, DRAINED - 1);
  come_and_go(SHORT_ROW, 64);
  assert_in_range(bin_count(heap, cls), SLOTS / 2, state->slots);
  UNIT_HEAP_VALID(heap);
}

/* A bin in steady use keeps its slots through all looks. */
UNIT_TEST(busy_bins_keep_their_slots) {
  struct heap *heap = unit_heap_attach();
  unsigned cls = hak_class_of(32);
  for (unsigned round = 0; round < 20; round++)
    come_and_go(2000, 32);
  uint32_t slots = heap->bin_state[cls].slots;
  assert_true(slots >= 2000);
  for (unsigned i = 0; i < 4 * LOOKS; i++) {
    if (i % 100 == 0)
      unit_alloc(blocks, 2000, 32);
    if (i % 100 == 50)
      unit_free(blocks, 2000);
    tick(heap, 1);
  }
  assert_int_equal(heap->bin_state[cls].slots, slots);
  heap_flush_all(heap);
}

/* Idle bins are emptied after a number of bytes, too: a program of long blocks makes few slow calls. */
UNIT_TEST(slow_calls_for_long_blocks_count_for_more) {
  struct heap *heap = unit_heap_attach();
  unsigned calls[2];
  for (unsigned i = 0; i < 2; i++) {
    size_t bytes = i == 0 ? 100 : HAK_SMALL_MAX;
    come_and_go(100, 64);
    assert_true(bins_content(heap).bytes > 0);
    for (calls[i] = 0; bins_content(heap).bytes > 0 && calls[i] < 40 * LOOKS; calls[i]++)
      tick_of(heap, 1, bytes);
    assert_int_equal(bins_content(heap).bytes, 0);
  }
  assert_in_range(calls[1], 1, calls[0] / 2);
  UNIT_HEAP_VALID(heap);
}

/* A program that frees much in few slow calls, none of which ends a period, gets its background thread. */
UNIT_TEST(slabs_that_close_make_the_background_thread_due) {
  enum { LONG = HAK_SMALL_MAX, COUNT = (64 << 20) / LONG };
  struct heap *heap = unit_heap_attach();
  unit_alloc(blocks, COUNT, LONG);
  background_stop();
  store_relaxed(&background_is_told, true);
  store_relaxed(&background_is_due, false);
  for (unsigned i = 0; i < COUNT; i++) {
    heap->slow_calls = 0;
    hak_free(blocks[i]);
  }
  assert_true(load_relaxed(&background_is_due));
  store_relaxed(&background_is_due, false);
  heap_flush_all(heap);
}

/* Slabs that close as the bins follow, and are opened again, do not make them follow once more: a steady mixture of
 * sizes would lose its ready blocks again and again. */
UNIT_TEST(bins_follow_growth_once) {
  enum { LIVE = 200, SIZES = 48000 };
  struct heap *heap = unit_heap_attach();
  uint64_t random = UNIT_SEED;
  for (unsigned i = 0; i < LIVE; i++)
    blocks[i] = UNIT_GOT(hak_malloc(16 + test_random(&random) % SIZES));
  uint64_t flushed = 0;
  for (unsigned i = 0; i < 40 * LOOKS; i++) {
    unsigned place = (unsigned)(test_random(&random) % LIVE);
    hak_free(blocks[place]);
    blocks[place] = UNIT_GOT(hak_malloc(16 + test_random(&random) % SIZES));
    if (i == 20 * LOOKS)
      flushed = heap->counters.flushed_blocks;
  }
  assert_true(heap->counters.flushed_blocks - flushed < 20 * LOOKS / 4);
  unit_free(blocks, LIVE);
  UNIT_HEAP_VALID(heap);
}

/* Opens and closes slabs of one class after the other, 1 MB each, until all bins were looked at some times. */
static void open_others(struct heap *heap) {
  for (uint32_t looks = heap->bins_work.looks; heap->bins_work.looks - looks < 16 * HAK_CLASS_COUNT;)
    for (size_t bytes = 1024; bytes <= 8192; bytes += bytes / 4)
      come_and_go(1000000 / bytes, bytes);
}

/* Frees in an order that leaves blocks of all slabs in the bin. It drains until a refill: so the last ones come after
 * one. */
static void free_scattered(size_t count, size_t size) {
  enum { STEPS = 100, LAST = 98, REFILLED = 200 };
  static void *refilled[REFILLED];
  for (size_t first = 0; first < STEPS; first++) {
    if (first == LAST)
      unit_alloc(refilled, REFILLED, size);
    for (size_t i = first; i < count; i += STEPS)
      hak_free(blocks[i]);
  }
  unit_free(refilled, REFILLED);
}

/* The slabs have grown as far as they will. What the bin of one phase holds goes back in the next one, until no more
 * than 2 MiB of slabs are free. */
UNIT_TEST_OF_ONE_THREAD(bins_of_the_last_phase_pin_no_slabs, NULL, NULL) {
  const size_t few = ((size_t)2 << 20) / UNIT_BYTES;
  struct heap *heap = unit_heap_attach();
  unsigned cls = hak_class_of(100);
  const uint32_t *slabs = &heap_pool(heap)->slabs.classes[cls].slab_count;
  for (unsigned turn = 0; turn < 4; turn++) {
    unit_alloc(blocks, 40000, 100);
    free_scattered(40000, 100);
    size_t blocks_before = bin_count(heap, cls);
    assert_true(blocks_before > 2 * few && *slabs > few);
    open_others(heap);
    assert_true(bin_count(heap, cls) < blocks_before / 2 && *slabs <= few);
  }
  heap_flush_all(heap);
}

/* The same, but live blocks hold the slabs open, too. */
UNIT_TEST_OF_ONE_THREAD(bins_that_pin_no_slabs_keep_their_blocks, NULL, NULL) {
  static void *live[10000];
  struct heap *heap = unit_heap_attach();
  open_others(heap);
  unit_alloc(blocks, 10000, 100);
  unit_alloc(live, sizeof live / sizeof live[0], 100);
  for (unsigned turn = 0; turn < 3; turn++) { /* in the last one no growth is left to follow */
    open_others(heap);
    unit_alloc(blocks, 10000, 100);
    free_scattered(10000, 100);
  }
  open_others(heap);
  assert_true(bin_count(heap, hak_class_of(100)) > 0);
  unit_free(live, sizeof live / sizeof live[0]);
  heap_flush_all(heap);
}

/* A large object that ends makes bins give back, too, though nothing is opened: its like finds the memory of the slabs.
 * A program frees a table of this kind when its entries are gone. */
UNIT_TEST(bins_pin_no_slabs_when_a_large_object_ends) {
  struct heap *heap = unit_heap_attach();
  unsigned cls = hak_class_of(100);
  for (unsigned is_large = 0; is_large <= 1; is_large++) { /* the control: a short one makes them give back a part */
    void *object = UNIT_GOT(hak_malloc(is_large ? 4 * KIB * KIB : 70 * KIB));
    unit_alloc(blocks, 40000, 100);
    free_scattered(40000, 100);
    size_t blocks_before = bin_count(heap, cls);
    assert_true(blocks_before > 0 && heap_pool(heap)->slabs.classes[cls].slab_count > 8);
    hak_free(object);
    assert_true(is_large ? bin_count(heap, cls) == 0 : bin_count(heap, cls) + 2 * UNIT_BYTES / 512 >= blocks_before);
    assert_true(is_large ? heap_pool(heap)->slabs.classes[cls].slab_count <= 1 : bin_count(heap, cls) > 0);
  }
  heap_flush_all(heap);
  UNIT_HEAP_VALID(heap);
}

UNIT_TEST(a_sleeping_owner_pins_nothing) {
  const size_t sizes[] = {16, 100, 1000, 10000, 200000};
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    struct heap *owner = unit_heap_attach();
    size_t count = min_size(1 << 16, (32u << 20) / sizes[i]);
    unit_alloc(blocks, count, sizes[i]);
    struct heap *freer = unit_heap_attach();
    size_t in_flight_max = 0;
    for (size_t b = 0; b < count; b++) {
      hak_free(blocks[b]);
      in_flight_max = max_size(in_flight_max, atomic_load(&heap_pool(owner)->inbox_bytes));
    }
    assert_true(in_flight_max <= 256 * KIB + 256 * KIB);     /* the bound, and one envelope of the largest blocks */
    assert_int_equal(heap_pool(freer)->slabs.slab_bytes, 0); /* a heap that only frees gets no slabs */
    assert_int_equal(bins_content(freer).bytes, 0);
    outbox_send_all(freer);
    assert_home(owner);
  }
}

static uint32_t emptied(struct heap *owner) { return atomic_load(&heap_pool(owner)->emptied.count); }

/* The envelopes that came to a pool serve its next senders, and a trim gives them back. */
UNIT_TEST(a_pool_keeps_its_emptied_envelopes) {
  struct heap *owner = unit_heap_attach(), *other = unit_heap_attach();
  unit_heap_become(owner);
  for (unsigned round = 0; round < 3; round++) {
    unit_alloc(blocks, 1000, 64);
    struct heap *freer = unit_heap_attach();
    for (unsigned i = 0; i < 1000; i++) {
      uint32_t kept = emptied(owner);
      hak_free(blocks[i]);
      if (round > 0 && i == 0)
        assert_int_equal(emptied(owner), kept - 1);
    }
    outbox_send_all(freer);
    assert_home(owner);
    assert_in_range(emptied(owner), 1, 1000 / ENVELOPE_SLOTS + 1);
    unit_heap_become(owner);
  }
  assert_int_equal(emptied(other), 0);
  envelopes_trim();
  assert_int_equal(emptied(owner), 0);
}

/* A refill takes the envelopes that it needs. The others stay in flight, and count so, until they are drained. */
UNIT_TEST(a_refill_leaves_what_it_does_not_need) {
  struct heap *owner = unit_heap_attach();
  struct pool *pool = heap_pool(owner);
  unit_alloc(blocks, 2000, 64);
  struct heap *freer = unit_heap_attach();
  unit_free(blocks, 2000);
  outbox_send_all(freer);
  unit_heap_become(owner);
  size_t in_flight = atomic_load(&pool->inbox_bytes), in_bins = bins_content(owner).bytes;
  heap_flush_all(owner); /* takes the mail too */
  assert_false(inbox_has_mail(pool));
  assert_true(in_flight > 100 * KIB && in_bins > 0);
  unit_alloc(blocks, 2000, 64);
  unit_heap_become(freer);
  unit_free(blocks, 2000);
  outbox_send_all(freer);
  unit_heap_become(owner);
  for (unsigned cls = hak_class_of(64); bin_count(owner, cls) > 0;)
    assert_non_null(hak_malloc(64));
  size_t before = atomic_load(&pool->inbox_bytes), taken = pool->slabs.taken_bytes;
  assert_non_null(hak_malloc(64));
  size_t after = atomic_load(&pool->inbox_bytes);
  assert_true(after < before && after >= before / 2);
  assert_true(inbox_has_mail(pool));
  assert_int_equal(pool->slabs.taken_bytes, taken); /* no block passed the bitmaps */
  heap_flush_all(owner);
  assert_false(inbox_has_mail(pool));
  assert_int_equal(atomic_load(&pool->inbox_bytes), 0);
  assert_int_equal(atomic_load(&pool->inbox_envelopes), 0);
}

UNIT_TEST(the_owner_takes_its_mail_before_anything_else) {
  struct heap *owner = unit_heap_attach();
  unit_alloc(blocks, 100, 64);
  void *mailed[50];
  struct heap *freer = unit_heap_attach();
  for (unsigned i = 0; i < 50; i++)
    hak_free(mailed[i] = blocks[i]);
  assert_false(inbox_has_mail(heap_pool(owner))); /* still in the open envelope */
  outbox_send_all(freer);
  assert_true(inbox_has_mail(heap_pool(owner)));
  unit_heap_become(owner);
  unsigned cls = hak_class_of(64), found = 0;
  size_t left = bins_content(owner).bytes / class_bytes(cls);
  for (size_t i = 0; i < left; i++)
    assert_non_null(hak_malloc(64));
  for (unsigned i = 0; i < 50; i++) {
    void *block = hak_malloc(64);
    for (unsigned j = 0; j < 50; j++)
      found += block == mailed[j];
  }
  assert_int_equal(found, 50);
  assert_int_equal(owner->counters.flushes, 0);
}

/* A thread that frees the blocks of many sleeping owners holds one open envelope for each at most,
 * and a table of them. */
UNIT_TEST(envelopes_of_many_owners_are_bounded) {
  enum { OWNERS = 2 * OUTBOX_PLACES, EACH = 100 };
  static void *owned[OWNERS][EACH];
  static struct heap *owners[OWNERS];
  for (unsigned o = 0; o < OWNERS; o++) {
    owners[o] = unit_heap_attach();
    for (unsigned i = 0; i < EACH; i++)
      owned[o][i] = hak_malloc(48);
  }
  struct heap *freer = unit_heap_attach();
  size_t before = metadata_bytes();
  for (unsigned i = 0; i < EACH; i++) /* owner by owner, the worst order */
    for (unsigned o = 0; o < OWNERS; o++)
      hak_free(owned[o][i]);
  size_t sent = 0;
  for (unsigned o = 0; o < OWNERS; o++)
    sent += atomic_load(&heap_pool(owners[o])->inbox_envelopes);
  assert_true(sent <= 3 * OWNERS); /* of sweeps, on their way */
  assert_true(metadata_bytes() - before <= 4 * OWNERS * KIB + 256 * KIB);
  /* Where two owners share a place, one's blocks go to their slabs without envelopes. */
  assert_true(atomic_load(&freer->outbox.envelopes_sent) < OWNERS * EACH / 8);
  outbox_send_all(freer);
  for (unsigned o = 0; o < OWNERS; o++)
    assert_home(owners[o]);
}

/* ARCHITECTURE.md, "How much one call does": whatever a bin or an inbox holds, a call moves a part of it. */
static struct {
  uint64_t refilled, flushed;
  uint32_t envelopes;
} seen, most;

static void note_call(struct heap *heap, struct heap *owner) {
  uint32_t envelopes = atomic_load(&heap_pool(owner)->inbox_envelopes);
  most.refilled = max_size(most.refilled, heap->counters.refilled_blocks - seen.refilled);
  most.flushed = max_size(most.flushed, heap->counters.flushed_blocks - seen.flushed);
  most.envelopes = (uint32_t)max_size(most.envelopes, sub_sat(seen.envelopes, envelopes));
  seen.refilled = heap->counters.refilled_blocks;
  seen.flushed = heap->counters.flushed_blocks;
  seen.envelopes = envelopes;
}

UNIT_TEST_OF_ONE_THREAD(one_call_moves_few_blocks, NULL, NULL) {
  enum { COUNT = 60000, BLOCKS_MAX = 128, ENVELOPES_OF_SENDER = 4, ENVELOPES_OF_REFILL = 16 };
  struct heap *heap = unit_heap_attach();
  for (unsigned round = 0; round < 10; round++) {
    size_t size = round < 4 ? 1000 : 16;
    for (size_t i = 0; i < COUNT; i++) {
      blocks[i] = UNIT_GOT(hak_malloc(size));
      note_call(heap, heap);
    }
    for (size_t i = 0; i < COUNT; i++) {
      hak_free(blocks[i]);
      note_call(heap, heap);
    }
  }
  assert_true(heap->bin_state[hak_class_of(16)].slots > 16 * BLOCKS_MAX);
  assert_in_range(most.refilled, 1, BLOCKS_MAX);
  assert_in_range(most.flushed, 1, 2 * BLOCKS_MAX); /* its own, of bins that shrink, of bins that follow the slabs */
  unit_alloc(blocks, COUNT, 16);
  struct heap *freer = unit_heap_attach();
  for (size_t i = 0; i < COUNT; i++) {
    hak_free(blocks[i]);
    note_call(freer, heap);
  }
  assert_in_range(most.envelopes, 1, ENVELOPES_OF_SENDER);
  outbox_send_all(freer);
  unit_heap_become(heap);
  seen.envelopes = atomic_load(&heap_pool(heap)->inbox_envelopes);
  for (size_t i = 0; i < 20; i++) {
    blocks[i] = UNIT_GOT(hak_malloc(96 + 32 * i));
    note_call(heap, heap);
  }
  assert_in_range(most.envelopes, ENVELOPES_OF_SENDER + 1, ENVELOPES_OF_REFILL);
  unit_free(blocks, 20);
  heap_flush_all(heap);
  UNIT_HEAP_VALID(heap);
}

/* A producer does not keep what comes back to it. This is the last test, because the background thread may be there from
 * now on. */
UNIT_TEST(bins_hold_no_more_for_received_blocks) {
  enum { SENT = 40, TURNS = 300 };
  struct heap *heap = unit_heap_attach();
  for (unsigned turn = 0; turn < TURNS; turn++) {
    unit_alloc(blocks, SENT, 8000);
    test_thread_run(free_all_and_end, (void *)SENT);
    assert_int_equal(turns_of_bins(heap), 0);
  }
  UNIT_HEAP_VALID(heap);
}

/* What goes back depends on the clock, and which slabs are opened next depends on that. */
UNIT_MAIN({
  unit_alone();
  unit_option("HAKMEM_PURGE_DELAY_MS", "3600000");
})
