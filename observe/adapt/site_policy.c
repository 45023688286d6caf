#include "adapt/site_policy.h"

#include <string.h>

#define WARMTH_FIRST 4u

size_t site_table_bytes(uint32_t arm_count) { return arm_count * sizeof(struct site_arm); }

void site_table_begin(struct site_table *table, void *places, uint32_t arm_count, enum keep leader) {
  memset(table, 0, sizeof *table);
  table->places = places;
  table->set_count = arm_count / SITE_WAYS;
  for (unsigned range = 0; range < SITE_RANGES; range++) {
    evolve_arm_begin(&table->priors[range], leader);
    evolve_arm_begin(&table->rests[range], leader);
  }
}

unsigned site_range(size_t bytes) {
  unsigned octave = bytes >> SITE_RANGE_FIRST ? 63u - (unsigned)__builtin_clzl(bytes) - SITE_RANGE_FIRST : 0;
  return octave < SITE_RANGES ? octave : SITE_RANGES - 1;
}

struct site_costs site_costs_of(uint32_t fault_ns, uint32_t purge_page_ns, uint32_t purge_call_ns, uint32_t map_ns,
                                uint32_t break_even_ms) {
  return (struct site_costs){
      .part = evolve_costs_of(fault_ns, purge_page_ns, purge_call_ns, break_even_ms),
      .mapping = evolve_costs_of(fault_ns, purge_page_ns, purge_call_ns + map_ns, break_even_ms),
      .mapping_range = site_range(MAPPING_BYTES_MIN),
  };
}

static const struct evolve_costs *costs_of(const struct site_costs *costs, unsigned range) {
  return range < costs->mapping_range ? &costs->part : &costs->mapping;
}

static uint32_t place_count(const struct site_table *table) { return table->set_count * SITE_WAYS; }

/* SplitMix64's finalizer (Steele, Lea and Flood): neighbouring sites and ranges spread over all sets. */
static struct site_arm *set_of(const struct site_table *table, uint64_t site, unsigned range) {
  uint64_t x = site ^ range * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return &table->places[(size_t)(x & (table->set_count - 1)) * SITE_WAYS];
}

static void forget_arm(struct site_table *table, struct site_arm *place, const struct site_costs *costs,
                       uint32_t now_ms) {
  evolve_inherit(&table->rests[place->range], &place->arm, costs_of(costs, place->range), now_ms);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    table->gone[strategy] += place->arm.total[strategy];
  table->gone_acted += place->arm.total_acted;
  table->displaced++;
}

static struct site_arm *settle_arm(struct site_table *table, struct site_arm *place, uint64_t site, unsigned range) {
  table->taken_count += !place->taken;
  *place = (struct site_arm){.site = site, .range = (uint8_t)range, .warmth = WARMTH_FIRST, .taken = true};
  evolve_arm_begin_like(&place->arm, &table->priors[range]);
  return place;
}

static struct evolve_arm *arm_of(struct site_table *table, const struct site_costs *costs, uint64_t site,
                                 unsigned range, uint32_t now_ms) {
  struct site_arm *set = set_of(table, site, range), *coldest = set;
  for (struct site_arm *place = set; place < set + SITE_WAYS; place++) {
    if (!place->taken)
      return &settle_arm(table, place, site, range)->arm;
    if (place->site == site && place->range == range) {
      place->warmth += place->warmth < SITE_WARMTH_MAX;
      return &place->arm;
    }
    if (place->warmth < coldest->warmth)
      coldest = place;
  }
  if (coldest->warmth > 0) {
    coldest->warmth--;
    return &table->rests[range];
  }
  forget_arm(table, coldest, costs, now_ms);
  return &settle_arm(table, coldest, site, range)->arm;
}

/* --- lending --- */

static struct site_lenders *lenders_of(struct site_table *table, const struct site_costs *costs, unsigned range) {
  return &table->lenders[range >= costs->mapping_range];
}

/* The arm is one of the table's places or rests, for this range. */
static void note_lender(struct site_table *table, struct site_lenders *lenders, const struct evolve_arm *arm,
                        unsigned range) {
  uint32_t number = place_count(table) + range + 1;
  if (arm != &table->rests[range])
    number =
        (uint32_t)((const struct site_arm *)((const char *)arm - offsetof(struct site_arm, arm)) - table->places) + 1;
  unsigned at = 0;
  while (at < SITE_LENDERS - 1 && lenders->arms[at] != number)
    at++;
  memmove(&lenders->arms[1], &lenders->arms[0], at * sizeof lenders->arms[0]);
  lenders->arms[0] = number;
}

static void borrow_pages(struct site_table *table, struct site_lenders *lenders, const struct site_costs *costs,
                         uint32_t pages, uint32_t now_ms) {
  for (uint32_t i = 0; pages > 0 && i < SITE_LENDERS; i++) {
    uint32_t number = lenders->arms[i];
    if (number == 0)
      return;
    bool is_rest = number > place_count(table);
    unsigned range = is_rest ? number - place_count(table) - 1 : table->places[number - 1].range;
    struct evolve_arm *arm = is_rest ? &table->rests[range] : &table->places[number - 1].arm;
    if (lenders_of(table, costs, range) == lenders) /* another site may have taken the place */
      pages = evolve_lend(arm, costs_of(costs, range), pages, now_ms);
  }
}

/* --- events --- */

enum keep site_freed(struct site_table *table, const struct site_costs *costs, uint64_t site, unsigned range,
                     uint32_t pages, bool is_kept, uint32_t now_ms) {
  struct evolve_arm *arm = arm_of(table, costs, site, range, now_ms);
  note_lender(table, lenders_of(table, costs, range), arm, range);
  return evolve_freed(arm, &table->priors[range], costs_of(costs, range), pages, is_kept, now_ms);
}

void site_taken(struct site_table *table, const struct site_costs *costs, uint64_t site, unsigned range, uint32_t pages,
                uint32_t now_ms) {
  struct evolve_arm *arm = arm_of(table, costs, site, range, now_ms);
  uint32_t missing = evolve_taken(arm, &table->priors[range], costs_of(costs, range), pages, now_ms);
  borrow_pages(table, lenders_of(table, costs, range), costs, missing, now_ms);
}

const struct evolve_arm *site_arm_of(const struct site_table *table, uint64_t site, unsigned range) {
  const struct site_arm *set = set_of(table, site, range);
  for (const struct site_arm *place = set; place < set + SITE_WAYS; place++)
    if (place->taken && place->site == site && place->range == range)
      return &place->arm;
  return NULL;
}

enum keep site_leader(const struct site_table *table, uint64_t site, unsigned range) {
  const struct evolve_arm *arm = site_arm_of(table, site, range), *prior = &table->priors[range];
  if (arm)
    return evolve_leader(arm, prior);
  bool has_room = !set_of(table, site, range)[SITE_WAYS - 1].taken; /* places are taken in order */
  return has_room ? (enum keep)prior->leader : evolve_leader(&table->rests[range], prior);
}

bool site_learned(struct site_table *table, uint64_t site, unsigned range, const int32_t *ratings, enum keep leader,
                  uint32_t epochs) {
  struct site_arm *set = set_of(table, site, range);
  for (struct site_arm *place = set; place < set + SITE_WAYS; place++) {
    if (place->taken && (place->site != site || place->range != range))
      continue;
    if (!place->taken)
      settle_arm(table, place, site, range);
    evolve_arm_begin_rated(&place->arm, ratings, leader, epochs);
    return true;
  }
  return false;
}

void site_tick(struct site_table *table, const struct site_costs *costs, uint32_t now_ms) {
  for (struct site_arm *place = table->places; place < table->places + place_count(table); place++)
    if (place->taken)
      evolve_tick(&place->arm, costs_of(costs, place->range), now_ms);
  for (unsigned range = 0; range < SITE_RANGES; range++)
    evolve_tick(&table->rests[range], costs_of(costs, range), now_ms);
}

void site_conclude(struct site_table *table, const struct site_costs *costs, uint32_t now_ms) {
  for (struct site_arm *place = table->places; place < table->places + place_count(table); place++)
    if (place->taken)
      evolve_conclude(&place->arm, &table->priors[place->range], costs_of(costs, place->range), now_ms);
  for (unsigned range = 0; range < SITE_RANGES; range++)
    evolve_conclude(&table->rests[range], &table->priors[range], costs_of(costs, range), now_ms);
}

static void add_up(struct site_totals *totals, const struct evolve_arm *arm, const struct evolve_costs *costs,
                   uint32_t now_ms) {
  struct evolve_arm until = *arm;
  evolve_tick(&until, costs, now_ms);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    totals->fixed[strategy] += until.total[strategy];
  totals->best_of_arm += until.total[evolve_best_fixed(until.total)];
  totals->acted += until.total_acted;
  totals->epochs += arm->epochs;
  totals->switches += arm->switches;
}

struct site_totals site_totals(const struct site_table *table, const struct site_costs *costs, uint32_t now_ms) {
  struct site_totals totals = {.acted = table->gone_acted, .best_of_arm = table->gone[evolve_best_fixed(table->gone)]};
  memcpy(totals.fixed, table->gone, sizeof totals.fixed);
  for (size_t i = 0; i < place_count(table); i++)
    if (table->places[i].taken)
      add_up(&totals, &table->places[i].arm, costs_of(costs, table->places[i].range), now_ms);
  for (unsigned range = 0; range < SITE_RANGES; range++)
    add_up(&totals, &table->rests[range], costs_of(costs, range), now_ms);
  return totals;
}

#ifdef HAK_DEBUG
bool site_table_is_valid(const struct site_table *table) {
  bool valid = true;
  uint32_t taken = 0;
  for (size_t i = 0; i < place_count(table); i++) {
    const struct site_arm *place = &table->places[i];
    if (!place->taken)
      continue;
    taken++;
    valid &= place->range < SITE_RANGES && evolve_is_valid(&place->arm);
    for (const struct site_arm *other = set_of(table, place->site, place->range); other < place; other++)
      valid &= other->site != place->site || other->range != place->range;
  }
  return valid && taken == table->taken_count;
}
#endif
