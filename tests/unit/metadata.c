/* Metadata: pieces do not overlap and keep their contents while others are given, trims join and give back what is
 * free, and what is there for good is zero. Control `wide`: a purge that takes a page too many. */
#include "unit.h"

#define PIECES 4000
#define STEPS unit_rounds(60000, 1)
#define STEPS_A_TRIM 6000
#define KIB ((size_t)1024)

TEST_WRAP(bool, os_purge, void *address, size_t size) {
  return __real_os_purge(address, size + (unit_lies("wide") ? os_page_bytes() : 0));
}

/* A piece, all of whose bytes are the mark. */
static void *take(unsigned order, unsigned char mark) {
  void *piece = UNIT_GOT(metadata_take(order));
  return memset(piece, mark, (size_t)1 << order);
}

static struct {
  unsigned char *at;
  unsigned order;
  unsigned char mark;
} pieces[PIECES];

static void fill(unsigned i, uint64_t *seed) {
  unsigned draw = (unsigned)(test_random(seed) % 100);
  pieces[i].order = METADATA_ORDER_MIN + (draw < 90 ? draw % 6 : draw % (METADATA_ORDER_MAX - METADATA_ORDER_MIN + 1));
  pieces[i].mark = (unsigned char)test_random(seed);
  pieces[i].at = take(pieces[i].order, pieces[i].mark);
  assert_int_equal((uintptr_t)pieces[i].at % CACHE_LINE, 0);
}

static void drop(unsigned i) {
  for (size_t b = 0; b < (size_t)1 << pieces[i].order; b++)
    if (pieces[i].at[b] != pieces[i].mark)
      fail_msg("byte %zu of a piece of order %u has changed", b, pieces[i].order);
  metadata_give(pieces[i].at, pieces[i].order);
  pieces[i].at = NULL;
}

UNIT_TEST(pieces_keep_what_is_in_them) {
  uint64_t seed = UNIT_SEED;
  for (unsigned step = 1; step <= STEPS; step++) {
    unsigned i = (unsigned)(test_random(&seed) % PIECES);
    if (pieces[i].at)
      drop(i);
    else
      fill(i, &seed);
    if (step % STEPS_A_TRIM == 0)
      metadata_trim();
    if (step % 1000 == 0) {
      unsigned char *zero = UNIT_GOT(metadata_take_forever(3000));
      for (unsigned b = 0; b < 3000; b++)
        assert_int_equal(zero[b], 0);
      memset(zero, 1, 3000);
    }
  }
  for (unsigned i = 0; i < PIECES; i++)
    if (pieces[i].at)
      drop(i);
}

UNIT_TEST(a_trim_gives_back_what_is_free) {
  static void *many[20000];
  metadata_trim();
  size_t before = metadata_bytes();
  for (unsigned i = 0; i < 20000; i++)
    many[i] = take(10, 1);
  assert_true(metadata_bytes() >= before + 10000 * KIB);
  for (unsigned i = 0; i < 20000; i++)
    metadata_give(many[i], 10);
  assert_true(metadata_free_bytes() >= 20000 * KIB);
  assert_true(metadata_trim() >= 15000 * KIB);
  assert_true(metadata_bytes() <= before + 1024 * KIB);
  assert_true(metadata_free_bytes() <= 64 * KIB); /* of the start area */
}

/* One piece of each chunk is in use: the chunks stay, their pages do not. */
UNIT_TEST(a_trim_reaches_between_pieces) {
  enum { COUNT = 200 };
  static void *many[COUNT], *single[COUNT];
  for (unsigned i = 0; i < COUNT; i++) {
    many[i] = take(METADATA_ORDER_MAX, 1);
    single[i] = take(METADATA_ORDER_MAX - 1, 2); /* of what the other one left in the chunk */
  }
  for (unsigned i = 0; i < COUNT; i++)
    metadata_give(many[i], METADATA_ORDER_MAX);
  assert_true(metadata_trim() >= COUNT * 100 * KIB);
  size_t before = metadata_bytes();
  for (unsigned i = 0; i < COUNT; i++) /* as smaller ones */
    many[i] = take(METADATA_ORDER_MAX - 4, 1);
  assert_int_equal(metadata_bytes(), before);
  for (unsigned i = 0; i < COUNT; i++) {
    assert_int_equal(*(unsigned char *)single[i], 2);
    metadata_give(single[i], METADATA_ORDER_MAX - 1);
    metadata_give(many[i], METADATA_ORDER_MAX - 4);
  }
}

UNIT_MAIN()
