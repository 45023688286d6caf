#include "adapt/policy_table.h"

#include <string.h>

#define WARMTH_FIRST 4u

size_t policy_table_bytes(uint32_t arm_count) { return arm_count * sizeof(struct policy_place); }

void policy_table_begin(struct policy_table *table, void *places, uint32_t arm_count,
                        const struct policy_table_costs *costs, enum keep leader) {
  memset(table, 0, sizeof *table);
  table->costs = *costs;
  table->places = places;
  table->set_count = arm_count / POLICY_WAYS;
  for (unsigned range = 0; range < POLICY_RANGES; range++) {
    policy_arm_begin(&table->priors[range], leader);
    policy_arm_begin(&table->rests[range], leader);
  }
}

unsigned policy_range(size_t bytes) {
  unsigned octave = bytes >> POLICY_RANGE_FIRST ? 63u - (unsigned)__builtin_clzl(bytes) - POLICY_RANGE_FIRST : 0;
  return octave < POLICY_RANGES ? octave : POLICY_RANGES - 1;
}

struct policy_table_costs policy_table_costs_of(uint32_t fault_ns, uint32_t purge_page_ns, uint32_t purge_call_ns,
                                                uint32_t map_ns, uint32_t break_even_ms) {
  return (struct policy_table_costs){
      .part = policy_costs_of(fault_ns, purge_page_ns, purge_call_ns, break_even_ms),
      .mapping = policy_costs_of(fault_ns, purge_page_ns, purge_call_ns + map_ns, break_even_ms),
      .mapping_range = policy_range(MAPPING_BYTES_MIN),
  };
}

static const struct policy_costs *costs_of(const struct policy_table *table, unsigned range) {
  return range < table->costs.mapping_range ? &table->costs.part : &table->costs.mapping;
}

static uint32_t place_count(const struct policy_table *table) { return table->set_count * POLICY_WAYS; }
static uint32_t arm_count(const struct policy_table *table) { return place_count(table) + POLICY_RANGES; }

/* The arms of the places, then the rests. NULL: nobody has taken the place. */
static struct policy_arm *arm_at(struct policy_table *table, uint32_t number, unsigned *range) {
  bool is_rest = number >= place_count(table);
  *range = is_rest ? number - place_count(table) : table->places[number].range;
  return is_rest ? &table->rests[*range] : table->places[number].taken ? &table->places[number].arm : NULL;
}

/* Neighbouring sites and ranges spread over all sets. */
static struct policy_place *set_of(const struct policy_table *table, uint64_t site, unsigned range) {
  return &table->places[(size_t)(mix_bits(site ^ range * MIX_STEP) & (table->set_count - 1)) * POLICY_WAYS];
}

static void forget_arm(struct policy_table *table, struct policy_place *place, uint32_t now_ms) {
  policy_arm_inherit(&table->rests[place->range], &place->arm, costs_of(table, place->range), now_ms);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    table->gone[strategy] += place->arm.total[strategy];
  table->gone_acted += place->arm.total_acted;
  table->displaced++;
}

static struct policy_arm *settle_arm(struct policy_table *table, struct policy_place *place, uint64_t site,
                                     unsigned range) {
  table->taken_count += !place->taken;
  *place = (struct policy_place){.site = site, .range = (uint8_t)range, .warmth = WARMTH_FIRST, .taken = true};
  policy_arm_begin_like(&place->arm, &table->priors[range]);
  return &place->arm;
}

/* Returns the place of this site and range, or a free one; NULL: others have all places of the set, which are taken in
 * order. */
static struct policy_place *place_of(const struct policy_table *table, uint64_t site, unsigned range) {
  struct policy_place *set = set_of(table, site, range);
  for (struct policy_place *place = set; place < set + POLICY_WAYS; place++)
    if (!place->taken || (place->site == site && place->range == range))
      return place;
  return NULL;
}

static struct policy_arm *arm_of(struct policy_table *table, uint64_t site, unsigned range, uint32_t now_ms) {
  struct policy_place *place = place_of(table, site, range), *set = set_of(table, site, range), *coldest = set;
  if (place && !place->taken)
    return settle_arm(table, place, site, range);
  if (place) {
    place->warmth += place->warmth < POLICY_WARMTH_MAX;
    return &place->arm;
  }
  for (place = set; place < set + POLICY_WAYS; place++)
    if (place->warmth < coldest->warmth)
      coldest = place;
  if (coldest->warmth > 0) {
    coldest->warmth--;
    return &table->rests[range];
  }
  forget_arm(table, coldest, now_ms);
  return settle_arm(table, coldest, site, range);
}

/* --- lending --- */

static struct policy_lenders *lenders_of(struct policy_table *table, unsigned range) {
  return &table->lenders[range >= table->costs.mapping_range];
}

/* The arm is one of the table's places or rests, for this range. */
static void note_lender(struct policy_table *table, struct policy_lenders *lenders, const struct policy_arm *arm,
                        unsigned range) {
  size_t offset = (size_t)((const char *)arm - (const char *)table->places);
  uint32_t number =
      1 + (arm == &table->rests[range] ? place_count(table) + range : (uint32_t)(offset / sizeof *table->places));
  unsigned at = 0;
  while (at < POLICY_LENDERS - 1 && lenders->arms[at] != number)
    at++;
  memmove(&lenders->arms[1], &lenders->arms[0], at * sizeof lenders->arms[0]);
  lenders->arms[0] = number;
}

static void borrow_pages(struct policy_table *table, const struct policy_lenders *lenders, uint32_t pages,
                         uint32_t now_ms) {
  for (uint32_t i = 0; pages > 0 && i < POLICY_LENDERS && lenders->arms[i] > 0; i++) {
    unsigned range;
    struct policy_arm *arm = arm_at(table, lenders->arms[i] - 1, &range);
    if (lenders_of(table, range) == lenders) /* another site may have taken the place */
      pages = policy_arm_lend(arm, costs_of(table, range), pages, now_ms);
  }
}

/* --- events --- */

enum keep policy_table_freed(struct policy_table *table, uint64_t site, unsigned range, uint32_t pages, bool is_kept,
                             uint32_t now_ms) {
  struct policy_arm *arm = arm_of(table, site, range, now_ms);
  note_lender(table, lenders_of(table, range), arm, range);
  return policy_arm_freed(arm, &table->priors[range], costs_of(table, range), pages, is_kept, now_ms);
}

void policy_table_taken(struct policy_table *table, uint64_t site, unsigned range, uint32_t pages, uint32_t now_ms) {
  struct policy_arm *arm = arm_of(table, site, range, now_ms);
  uint32_t missing = policy_arm_taken(arm, &table->priors[range], costs_of(table, range), pages, now_ms);
  borrow_pages(table, lenders_of(table, range), missing, now_ms);
}

const struct policy_arm *policy_table_arm_of(const struct policy_table *table, uint64_t site, unsigned range) {
  const struct policy_place *place = place_of(table, site, range);
  return place && place->taken ? &place->arm : NULL;
}

enum keep policy_table_leader(const struct policy_table *table, uint64_t site, unsigned range) {
  const struct policy_place *place = place_of(table, site, range);
  const struct policy_arm *prior = &table->priors[range];
  if (place && !place->taken)
    return (enum keep)prior->leader;
  return policy_arm_leader(place ? &place->arm : &table->rests[range], prior);
}

bool policy_table_learned(struct policy_table *table, uint64_t site, unsigned range, const int32_t *ratings,
                          enum keep leader, uint32_t epochs) {
  struct policy_place *place = place_of(table, site, range);
  if (place && !place->taken)
    settle_arm(table, place, site, range);
  if (place)
    policy_arm_begin_rated(&place->arm, ratings, leader, epochs);
  return place != NULL;
}

#define FOR_EACH_ARM(table)                                                                                            \
  for (uint32_t number = 0, range; number < arm_count(table); number++)                                                \
    for (struct policy_arm *arm = arm_at(table, number, &range); arm; arm = NULL)

void policy_table_tick(struct policy_table *table, uint32_t now_ms) {
  FOR_EACH_ARM(table) policy_arm_tick(arm, costs_of(table, range), now_ms);
}

void policy_table_conclude(struct policy_table *table, uint32_t now_ms) {
  FOR_EACH_ARM(table) policy_arm_conclude(arm, &table->priors[range], costs_of(table, range), now_ms);
}

void policy_totals_add(struct policy_totals *totals, const uint64_t total[KEEP_STRATEGIES], uint64_t acted,
                       uint32_t epochs, uint32_t switches) {
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    totals->fixed[strategy] += total[strategy];
  totals->best_of_arm += total[policy_best_fixed(total)];
  totals->acted += acted;
  totals->epochs += epochs;
  totals->switches += switches;
}

struct policy_totals policy_totals(struct policy_table *table, uint32_t now_ms) {
  struct policy_totals totals = {.arms = table->taken_count};
  policy_totals_add(&totals, table->gone, table->gone_acted, 0, 0);
  FOR_EACH_ARM(table) {
    struct policy_arm until = *arm;
    policy_arm_tick(&until, costs_of(table, range), now_ms);
    policy_totals_add(&totals, until.total, until.total_acted, arm->epochs, arm->switches);
  }
  return totals;
}

#ifdef HAK_DEBUG
bool policy_table_is_valid(const struct policy_table *table) {
  bool valid = true;
  uint32_t taken = 0;
  for (size_t i = 0; i < place_count(table); i++) {
    const struct policy_place *place = &table->places[i];
    if (!place->taken)
      continue;
    taken++;
    valid &= place->range < POLICY_RANGES && policy_arm_is_valid(&place->arm);
    for (const struct policy_place *other = set_of(table, place->site, place->range); other < place; other++)
      valid &= other->site != place->site || other->range != place->range;
  }
  return valid && taken == table->taken_count;
}
#endif
