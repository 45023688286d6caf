/* bin_policy: limits hold and every rule is monotone, for random numbers and at the corners. */
#include "unit.h"

#include "policy/bin_policy.h"

#define ROUNDS 20000
#define START_BYTES_MAX ((size_t)64 * 1024) /* what a bin that has not grown may hold */

static uint64_t seed = UNIT_SEED;

static size_t draw(size_t maximum) { return (size_t)(test_random(&seed) % (maximum + 1)); }

static struct bin_limits limits_random(void) {
  return (struct bin_limits){
      .bin_bytes_max = draw((size_t)1 << draw(30)),
      .heap_bytes_max = draw((size_t)1 << draw(34)),
  };
}

UNIT_TEST(initial_slots_stay_in_their_limits) {
  for (size_t start = 4; start <= 2048; start++) {
    size_t before = SIZE_MAX;
    for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
      size_t slots = bin_slots_initial(start, class_bytes(cls));
      assert_true(is_power_of_two(slots));
      assert_true(slots >= BIN_SLOTS_MIN && slots <= start);
      assert_true(slots == BIN_SLOTS_MIN || slots * class_bytes(cls) <= START_BYTES_MAX);
      assert_true(slots <= before); /* bigger blocks, not more slots */
      size_t first = bin_slots_first(slots, class_bytes(cls));
      assert_true(is_power_of_two(first) && first <= slots && first >= min_size(slots, 2));
      assert_true(class_bytes(cls) < 512 || first <= max_size(slots / 4, 2));
      before = slots;
    }
  }
}

UNIT_TEST(bins_up_to_8_kib_start_with_room_for_three_blocks) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    size_t bytes = class_bytes(cls), slots = bin_slots_initial(16, bytes);
    assert_true(bytes > HAK_MID_MAX || slots > 3);
    assert_true((slots > BIN_SLOTS_MIN) == (bytes <= HAK_SMALL_MAX / 4));
  }
}

UNIT_TEST(doubling_never_passes_a_limit) {
  for (unsigned i = 0; i < ROUNDS; i++) {
    struct bin_limits limits = limits_random();
    size_t slots = (size_t)1 << (1 + draw(14)), bytes = class_bytes(1 + (unsigned)draw(HAK_CLASS_COUNT - 2));
    size_t granted = draw((size_t)1 << draw(34)), taken = draw((size_t)1 << draw(36));
    size_t heaps = 1 + draw(100);
    if (!bin_may_double(&limits, slots, bytes, granted, taken, heaps))
      continue;
    assert_true(slots * 2 <= BIN_SLOTS_MAX);
    assert_true(slots * bytes <= limits.bin_bytes_max);
    assert_true(granted + slots * bytes <= limits.heap_bytes_max);
    /* Less granted, more at work, fewer heaps, or wider limits never forbid it. */
    struct bin_limits wider = limits;
    wider.bin_bytes_max += draw(1 << 20);
    wider.heap_bytes_max += draw(1 << 20);
    assert_true(bin_may_double(&wider, slots, bytes, granted, taken, heaps));
    assert_true(bin_may_double(&limits, slots, bytes, draw(granted), taken, heaps));
    assert_true(bin_may_double(&limits, slots, bytes, granted, taken + draw(1 << 20), heaps));
    assert_true(bin_may_double(&limits, slots, bytes, granted, taken, 1 + draw(heaps - 1)));
    assert_true(slots == 1 || bin_may_double(&limits, slots / 2, bytes, granted, taken, heaps));
  }
}

/* Growth of the slabs counts from 512 KiB and a 32nd on, a fall from 4 MiB and a quarter on. */
UNIT_TEST(bins_follow_what_moved_far) {
  const size_t least = (size_t)512 << 10, least_fall = (size_t)4 << 20;
  for (unsigned i = 0; i < ROUNDS; i++) {
    size_t seen = draw((size_t)1 << draw(36)), far = max_size(least, seen / 32);
    size_t fall = max_size(least_fall, seen / 4);
    assert_int_equal(bins_follow(seen, seen + draw(far)), FOLLOW_NOTHING);
    assert_int_equal(bins_follow(seen, seen + far + 1 + draw(far)), FOLLOW_GROWTH);
    if (seen > fall) {
      assert_int_equal(bins_follow(seen, seen - draw(fall)), FOLLOW_NOTHING);
      assert_int_equal(bins_follow(seen, draw(seen - fall - 1)), FOLLOW_FALL);
    }
  }
}

/* Half of them, and more than 2 MiB. More that is taken never makes it so. */
UNIT_TEST(slabs_are_mostly_free_from_half_on) {
  const size_t least = (size_t)2 << 20;
  assert_false(slabs_are_mostly_free(least, 0));
  assert_true(slabs_are_mostly_free(least + 1, 0));
  for (unsigned i = 0; i < ROUNDS; i++) {
    size_t bytes = 4 * least + draw((size_t)1 << draw(36)), taken = draw(bytes);
    assert_int_equal(slabs_are_mostly_free(bytes, taken), bytes - taken > bytes / 2);
    assert_true(slabs_are_mostly_free(bytes, draw(taken)) || !slabs_are_mostly_free(bytes, taken));
  }
}

/* A bin pins slabs if at least half of them would close without it. It must be half of them at most, and not of a few. */
UNIT_TEST(bins_pin_what_nothing_else_holds_open) {
  const size_t slab_bytes = UNIT_BYTES, block_bytes = 256, blocks = 256; /* of a slab */
  assert_true(bin_pins_slabs(3 * blocks, 3 * blocks, block_bytes, 6, slab_bytes));
  assert_false(bin_pins_slabs(3 * blocks + 1, 3 * blocks + 1, block_bytes, 6, slab_bytes));
  assert_true(bin_pins_slabs(blocks, blocks + 4, block_bytes, 8, slab_bytes));
  assert_false(bin_pins_slabs(blocks, blocks + 5, block_bytes, 8, slab_bytes));
  assert_true(bin_pins_slabs(1, 1, block_bytes, 5, slab_bytes));
  assert_false(bin_pins_slabs(1, 1, block_bytes, 4, slab_bytes));
}

UNIT_TEST(no_budget_means_no_growth) {
  struct bin_limits none = {0};
  struct bin_limits no_heap = {.bin_bytes_max = SIZE_MAX};
  struct bin_limits ample = {.bin_bytes_max = SIZE_MAX, .heap_bytes_max = SIZE_MAX};
  assert_false(bin_may_double(&none, 2, 16, 0, 1 << 30, 1));
  assert_false(bin_may_double(&no_heap, 2, 16, 0, 1 << 30, 1));
  assert_true(bin_may_double(&ample, BIN_SLOTS_MAX / 2, 16, 0, 1 << 30, 1));
  assert_false(bin_may_double(&ample, BIN_SLOTS_MAX, 16, 0, 1 << 30, 1));
}

/* Grows the bins of equal heaps that hold all they were granted, as far as they may. Returns what all were granted. */
static size_t granted_to_all(size_t heaps, size_t heaps_told, size_t used_bytes, size_t step) {
  struct bin_limits ample = {.bin_bytes_max = SIZE_MAX, .heap_bytes_max = SIZE_MAX};
  const size_t grown_max = (size_t)1 << 30; /* two more slots of half a `step` are granted at a time, in many bins */
  size_t granted = 0;
  while (granted < grown_max && bin_may_double(&ample, 2, step / 2, granted, used_bytes / heaps + granted, heaps_told))
    granted += step;
  return granted * heaps;
}

/* Blocks in bins count as taken. So all bins of several heaps are bounded by what the program uses; those for tiny
 * blocks of one heap are not, and hold a batch of any size. Longer blocks leave tiny ones a part. */
UNIT_TEST(bins_of_several_heaps_are_bounded) {
  const size_t tiny = 256, mid = 4096;
  for (size_t heaps = 1; heaps <= 32; heaps *= 2)
    for (size_t used = 0; used <= (size_t)64 << 20; used = used * 2 + (1 << 20)) {
      size_t of_mid = granted_to_all(heaps, heaps, used, mid);
      assert_true(of_mid <= ((size_t)1 << 20) + used);
      if (heaps == 1)
        continue;
      size_t of_tiny = granted_to_all(heaps, heaps, used, tiny);
      assert_true(of_tiny <= ((size_t)1 << 20) + used);
      assert_true(of_mid <= of_tiny - of_tiny / 8); /* a part is left to tiny blocks */
    }
  assert_true(granted_to_all(4, 1, 0, tiny) >= (size_t)1 << 30); /* the control: each is told that it is alone */
}

/* Grows the bins of steady heaps that hold all they were granted, as far as they may. Returns what all were granted. */
static size_t granted_to_steady(size_t used_bytes, size_t block_bytes) {
  struct bin_limits ample = {.bin_bytes_max = SIZE_MAX, .heap_bytes_max = SIZE_MAX};
  size_t granted = 0;
  while (bin_may_double_steadily(&ample, 2, block_bytes, 0, granted, used_bytes + granted))
    granted += 2 * block_bytes;
  return granted;
}

UNIT_TEST(steady_bins_have_more_and_are_bounded_together) {
  const size_t mid = 4096;
  for (size_t used = 0; used <= (size_t)64 << 20; used = used * 2 + (1 << 20)) {
    size_t granted = granted_to_steady(used, mid);
    assert_true(granted > granted_to_all(1, 1, used, mid) && granted <= ((size_t)4 << 20) + used);
    size_t of_tiny = granted_to_steady(used, 64);
    assert_true(of_tiny > granted_to_all(8, 8, used, 64) && of_tiny <= ((size_t)4 << 20) + used);
  }
  struct bin_limits limits = {.bin_bytes_max = 4 * mid, .heap_bytes_max = 8 * mid};
  assert_true(bin_may_double_steadily(&limits, 4, mid, 4 * mid, 0, 0));
  assert_false(bin_may_double_steadily(&limits, 8, mid, 0, 0, 0));
  assert_false(bin_may_double_steadily(&limits, 4, mid, 5 * mid, 0, 0));
}

UNIT_TEST(surplus_is_part_of_what_lay_idle) {
  assert_int_equal(bin_surplus(0), 0);
  for (size_t low = 1; low <= BIN_SLOTS_MAX; low++) {
    assert_true(bin_surplus(low) >= 1 && bin_surplus(low) <= low);
    assert_true(bin_surplus(low) >= bin_surplus(low - 1));
  }
}

UNIT_TEST(shrinking_keeps_what_is_used) {
  for (size_t initial = BIN_SLOTS_MIN; initial <= 2048; initial *= 2)
    for (size_t slots = initial; slots <= BIN_SLOTS_MAX; slots *= 2) {
      size_t before = 0;
      for (size_t high = 0; high < slots; high += 1 + high / 16) {
        size_t after = bin_slots_after(slots, initial, high);
        assert_true(after == slots || (after == slots / 2 && after >= initial && after > high));
        assert_true(after >= before); /* busier, not smaller */
        before = after;
      }
      assert_int_equal(bin_slots_after(slots, initial, slots - 1), slots);
      if (slots > 4 && slots > initial)
        assert_int_equal(bin_slots_after(slots, initial, 0), slots / 2);
    }
}

UNIT_MAIN()
