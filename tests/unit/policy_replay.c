/* policy_replay: what the engine of a running program is told, told again to a fresh table, gives the same ratings and
 * sums, bit for bit; and one event that is missing, or a millisecond later, does not. Time is made by the test. */
#include "unit.h"

#include "adapt/policy_engine.h"

#define EVENTS_MAX 65536u
#define DELAY_LEADER KEEP_1S /* of the default delay */

static uint64_t now_ms = UINT32_MAX - 20000; /* 32 bits wrap on the way */

TEST_WRAP(uint64_t, os_milliseconds, void) { return now_ms; }

/* --- the recorder --- */

static struct event {
  uint64_t site;
  size_t size, bytes; /* size: of the object, or of a slab's blocks */
  uint32_t ms;
  bool is_taken, is_kept;
} events[EVENTS_MAX];
static unsigned event_count;

static void note(bool is_taken, uint64_t site, size_t size, size_t bytes, bool is_kept) {
  assert_true(event_count < EVENTS_MAX);
  events[event_count++] = (struct event){
      .site = site, .size = size, .bytes = bytes, .ms = (uint32_t)now_ms, .is_taken = is_taken, .is_kept = is_kept};
}

TEST_WRAP(uint64_t, policy_large_taken, uintptr_t caller, size_t bytes) {
  uint64_t site = __real_policy_large_taken(caller, bytes);
  note(true, site, bytes, bytes, true);
  return site;
}
TEST_WRAP(unsigned, policy_large_freed, uint64_t site, size_t bytes, bool is_kept) {
  note(false, site, bytes, bytes, is_kept);
  return __real_policy_large_freed(site, bytes, is_kept);
}
TEST_WRAP(void, policy_small_taken, size_t block_bytes, size_t slab_bytes) {
  note(true, POLICY_SITE_SMALL, block_bytes, slab_bytes, true);
  __real_policy_small_taken(block_bytes, slab_bytes);
}
TEST_WRAP(unsigned, policy_small_freed, size_t block_bytes, size_t slab_bytes) {
  note(false, POLICY_SITE_SMALL, block_bytes, slab_bytes, true);
  return __real_policy_small_freed(block_bytes, slab_bytes);
}

/* --- the program --- */

static void large_objects(uint64_t *random) {
  enum { SITES = 3000, LIVE = 48 }; /* more than the table has room for */
  void *live[LIVE] = {0};
  for (unsigned i = 0; i < 12000; i++) {
    void **object = &live[test_random(random) % LIVE];
    if (*object) {
      large_free(*object);
      *object = NULL;
    } else {
      size_t bytes = i % 100 == 0 ? (size_t)40 << 20 : (test_random(random) % 24 + 5) * 65536;
      bool is_common = test_random(random) % 4 == 0;
      size_t dirty;
      *object = large_alloc(bytes, UNIT_BYTES, test_random(random) % (is_common ? 20 : SITES) * 64 + 64, &dirty);
      assert_non_null(*object);
    }
    now_ms += test_random(random) % 300 >> test_random(random) % 9;
  }
  for (unsigned i = 0; i < LIVE; i++)
    if (live[i])
      large_free(live[i]);
}

static void small_blocks(uint64_t *random) {
  enum { BLOCKS = 4000 };
  static void *blocks[BLOCKS];
  for (unsigned turn = 0; turn < 6; turn++) {
    for (unsigned i = 0; i < BLOCKS; i++)
      blocks[i] = hak_malloc((size_t)1 << (4 + test_random(random) % 9));
    now_ms += 20;
    unit_free(blocks, BLOCKS);
    hak_trim(0); /* bins and empty slabs go */
    now_ms += 700;
  }
}

/* --- the replay --- */

enum change { AS_IT_WAS, ONE_MISSING, ONE_LATER };

static void replay(struct policy_table *table, const struct policy_state *live, enum change change) {
  void *places = UNIT_GOT(calloc(1, policy_table_bytes(POLICY_ARMS)));
  policy_table_begin(table, places, POLICY_ARMS, &live->table.costs, DELAY_LEADER);
  size_t page_bytes = min_size(os_page_bytes(), UNIT_BYTES);
  for (unsigned i = 0; i < event_count; i++) {
    const struct event *event = &events[i];
    bool is_changed = i == event_count / 2;
    if (is_changed && change == ONE_MISSING)
      continue;
    uint32_t pages = (uint32_t)(event->bytes / page_bytes), ms = event->ms + (is_changed && change == ONE_LATER);
    if (event->is_taken)
      policy_table_taken(table, event->site, policy_range(event->size), pages, ms);
    else
      policy_table_freed(table, event->site, policy_range(event->size), pages, event->is_kept, ms);
  }
}

static bool is_same_arm(const struct policy_arm *a, const struct policy_arm *b) {
  bool same = a->total_acted == b->total_acted && a->stake == b->stake && a->epochs == b->epochs &&
              a->switches == b->switches && a->idle_count == b->idle_count && a->events == b->events &&
              a->leader == b->leader && memcmp(a->total, b->total, sizeof a->total) == 0 &&
              memcmp(a->epoch, b->epoch, sizeof a->epoch) == 0 && memcmp(a->rating, b->rating, sizeof a->rating) == 0;
  for (unsigned i = 0; same && i < a->idle_count; i++)
    same = a->idle[i].freed_ms == b->idle[i].freed_ms && a->idle[i].charged_ms == b->idle[i].charged_ms &&
           a->idle[i].pages == b->idle[i].pages && a->idle[i].calls == b->idle[i].calls &&
           a->idle[i].acted == b->idle[i].acted;
  return same;
}

static bool is_same(const struct policy_table *a, const struct policy_table *b, uint32_t arm_count) {
  bool same = a->taken_count == b->taken_count && a->displaced == b->displaced && a->gone_acted == b->gone_acted &&
              memcmp(a->gone, b->gone, sizeof a->gone) == 0;
  for (unsigned range = 0; same && range < POLICY_RANGES; range++)
    same = is_same_arm(&a->priors[range], &b->priors[range]) && is_same_arm(&a->rests[range], &b->rests[range]);
  for (uint32_t i = 0; same && i < arm_count; i++) {
    const struct policy_place *left = &a->places[i], *right = &b->places[i];
    same = left->taken == right->taken && left->site == right->site && left->range == right->range &&
           left->warmth == right->warmth && is_same_arm(&left->arm, &right->arm);
  }
  return same;
}

UNIT_TEST(replays_to_the_same) {
  static const bool is_same_wanted[] = {[AS_IT_WAS] = true, [ONE_MISSING] = false, [ONE_LATER] = false};
  struct policy_table *table = UNIT_GOT(malloc(sizeof *table));
  for (enum change change = AS_IT_WAS; change <= ONE_LATER; change++) {
    struct policy_state *live = UNIT_GOT(policy_open());
    replay(table, live, change);
    bool same = is_same(table, &live->table, POLICY_ARMS);
    struct policy_totals mine = policy_totals(table, (uint32_t)now_ms);
    struct policy_totals theirs = policy_totals(&live->table, (uint32_t)now_ms);
    policy_close();
    assert_int_equal(same, is_same_wanted[change]);
    assert_int_equal(memcmp(&mine, &theirs, sizeof mine) == 0, is_same_wanted[change]);
    free(table->places);
  }
  free(table);
}

static int begin(void **unused) {
  unit_alone();
  assert_int_equal(option_set(OPTION_POLICY, "evolving"), OPTION_OK);
  uint64_t random = UNIT_SEED;
  large_objects(&random);
  small_blocks(&random);
  large_objects(&random);
  unsigned small = 0, matches = 0, switches = 0;
  for (unsigned i = 0; i < event_count; i++)
    small += events[i].site == POLICY_SITE_SMALL;
  struct policy_state *live = UNIT_GOT(policy_open());
  for (uint32_t i = 0; i < POLICY_ARMS; i++) {
    matches += live->table.places[i].arm.epochs;
    switches += live->table.places[i].arm.switches;
  }
  assert_true(live->table.displaced > 0 && small > 0 && matches > 0 && switches > 0);
  policy_close();
  return 0;
}

int main(void) { return unit_run(begin, NULL); }
