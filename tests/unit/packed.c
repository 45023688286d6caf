/* Packed blocks do not overlap, keep their content while others are taken, resized, given and purged, and are as
 * aligned as was asked; little is lost between them, and nothing stays of them. Control `wide`: a purge that takes a
 * page too many. */
#include "unit.h"

#include "large/packed.h"

#define BLOCKS 600
#define STEPS unit_rounds(60000, 1)
#define STEPS_A_PURGE 3000

static void *freed_during_purge; /* by another thread, as it were */
static unsigned purges;

TEST_WRAP(bool, os_purge, void *address, size_t size) {
  void *block = freed_during_purge;
  freed_during_purge = NULL;
  purges++;
  if (block != NULL)
    packed_give(block);
  return __real_os_purge(address, size + (unit_lies("wide") ? os_page_bytes() : 0));
}

static struct {
  unsigned char *at;
  size_t size;
  unsigned char mark;
} blocks[BLOCKS];

static void check(unsigned i) {
  for (size_t b = 0; b < blocks[i].size; b++)
    if (blocks[i].at[b] != blocks[i].mark)
      fail_msg("byte %zu of %zu has changed", b, blocks[i].size);
}

static size_t random_size(uint64_t *seed) {
  size_t octave = test_random(seed) % 11;
  return 1 + test_random(seed) % ((size_t)256 << octave);
}

static void fill(unsigned i, uint64_t *seed) {
  size_t alignment = test_random(seed) % 4 == 0 ? (size_t)256 << test_random(seed) % 11 : 16;
  blocks[i].size = random_size(seed);
  blocks[i].mark = (unsigned char)test_random(seed);
  blocks[i].at = packed_take(blocks[i].size, alignment);
  assert_non_null(blocks[i].at);
  assert_int_equal((uintptr_t)blocks[i].at % alignment, 0);
  assert_int_equal(map_entry(blocks[i].at), ENTRY_PACKED);
  assert_int_equal(packed_bytes(blocks[i].at), round_up(blocks[i].size, 256));
  memset(blocks[i].at, blocks[i].mark, blocks[i].size);
}

static void resize(unsigned i, uint64_t *seed) {
  size_t size = random_size(seed), before = packed_bytes(blocks[i].at);
  bool is_done = packed_resize(blocks[i].at, size);
  assert_true(is_done || size > before);
  assert_int_equal(packed_bytes(blocks[i].at), is_done ? round_up(size, 256) : before);
  if (!is_done)
    return;
  blocks[i].size = min_size(blocks[i].size, size);
  check(i);
  blocks[i].size = size;
  memset(blocks[i].at, blocks[i].mark, size);
}

static void drop(unsigned i) {
  check(i);
  packed_give(blocks[i].at);
  blocks[i].at = NULL;
}

UNIT_TEST(blocks_keep_their_content) {
  uint64_t seed = UNIT_SEED;
  for (unsigned step = 1; step <= STEPS; step++) {
    unsigned i = (unsigned)(test_random(&seed) % BLOCKS);
    if (blocks[i].at == NULL)
      fill(i, &seed);
    else if (test_random(&seed) % 4 == 0)
      resize(i, &seed);
    else
      drop(i);
    if (step % STEPS_A_PURGE == 0) {
      packed_purge();
      UNIT_VALID(packed_is_valid());
    }
  }
  for (unsigned i = 0; i < BLOCKS; i++)
    if (blocks[i].at)
      drop(i);
  assert_int_equal(usage_taken(), 0);
}

UNIT_TEST(little_is_lost) {
  static void *many[900];
  static const size_t sizes[] = {3000, 33000, 70000, 100000};
  for (unsigned s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    unsigned count = (unsigned)min_size(900, ((size_t)16 << 20) / sizes[s]);
    for (unsigned i = 0; i < count; i++)
      many[i] = packed_take(sizes[s], 16);
    if (count < 900)
      assert_true(usage_taken() < sizes[s] * count + 5 * ROW_BYTES / 2);
    for (unsigned i = 0; i < count; i++)
      packed_give(many[i]);
    assert_int_equal(usage_taken(), 0);
  }
}

UNIT_TEST(what_is_freed_during_a_purge_goes_with_the_next) {
  const size_t bytes = 2 * os_page_bytes();
  char *blocks_in_order[4];
  for (unsigned i = 0; i < 4; i++)
    blocks_in_order[i] = packed_take(bytes, os_page_bytes());
  for (unsigned i = 1; i < 4; i++)
    assert_true(blocks_in_order[i] > blocks_in_order[i - 1]);
  packed_purge();
  packed_give(blocks_in_order[2]);
  freed_during_purge = blocks_in_order[0];
  size_t given_back = packed_purge(); /* with the rest of the chunk */
  assert_null(freed_during_purge);
  assert_int_equal(packed_purge(), given_back + bytes);
  assert_int_equal(packed_purge(), 0);
  packed_give(blocks_in_order[1]);
  packed_give(blocks_in_order[3]);
}

#define CHUNKS 40

UNIT_TEST(a_purge_visits_changed_chunks_only) {
  static void *blocks_of_chunks[CHUNKS * 1000];
  size_t count = 0, taken = usage_taken();
  if (unit_lies("wide")) /* it takes the library's own pages here, and a lock stays held */
    return;
  for (size_t chunks = 0; chunks < CHUNKS; taken = usage_taken()) {
    assert_true(count < CHUNKS * 1000);
    assert_non_null(blocks_of_chunks[count++] = packed_take(PACKED_BYTES_MAX, 16));
    chunks += usage_taken() != taken;
  }
  packed_purge();
  assert_int_equal(packed_purge(), 0);
  purges = 0;
  packed_give(packed_take(200, 16));
  packed_purge();
  assert_int_equal(purges, 1);
  UNIT_VALID(packed_is_valid());
  while (count > 0)
    packed_give(blocks_of_chunks[--count]);
  assert_int_equal(usage_taken(), 0);
}

static void give(void *block) { packed_give(block); }

UNIT_TEST(misuse_is_noticed) {
  char *first = packed_take(5000, 16), *second = packed_take(5000, 16);
  packed_give(second);
  unit_must_die(give, second, "double free of block ", second, "");
  unit_must_die(give, first + 256, "free of ", first + 256, ", which is not the start of a block");
  packed_give(first);
}

UNIT_MAIN(unit_alone())
