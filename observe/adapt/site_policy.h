/* site_policy.h: which arm decides for a call site and a range of sizes (evolve_policy.h). Pure: the table lies in
 * memory of the caller's.
 *
 * The table is bounded. A site that comes when its set is full cools the coldest arm of the set, and takes its place
 * once that has cooled down; until then it is decided about together with all other such sites, by the rest. Sites
 * that are asked for often keep their arms so, however many others pass by.
 * Memory that one site freed serves the next, whoever that is: what a site asks for beyond its own idle pages is taken
 * from the sites that freed last, and speaks for keeping theirs.
 *   P1  of one key there is one arm at most
 *   P2  total and total_acted of all arms, rests and gone, added up, are what every event so far was charged
 * site_table_is_valid checks P1. The caller's lock guards a table.
 */
#ifndef HAK_ADAPT_SITE_POLICY_H
#define HAK_ADAPT_SITE_POLICY_H

#include "adapt/evolve_policy.h"

#define SITE_WAYS 8u
/* A doubling of the size each; the first has all that are smaller, the last all that are larger. */
#define SITE_RANGES 32u
#define SITE_RANGE_FIRST 4u /* log2 of the bytes */
#define SITE_WARMTH_MAX 64u
#define SITE_LENDERS 16u

struct site_arm {
  uint64_t site;
  uint8_t range;
  uint8_t warmth; /* 0: the place is free, or can be taken */
  bool taken;
  struct evolve_arm arm;
};

struct site_table {
  struct site_arm *places;               /* set_count * SITE_WAYS */
  uint32_t set_count;                    /* a power of two */
  uint32_t taken_count, displaced;       /* places taken; arms that lost theirs */
  struct evolve_arm priors[SITE_RANGES]; /* what all sites of a range have learned */
  struct evolve_arm rests[SITE_RANGES];  /* sites without a place */
  uint64_t gone[KEEP_STRATEGIES];        /* totals of displaced arms */
  uint64_t gone_acted;
  struct site_lenders {
    uint32_t arms[SITE_LENDERS]; /* that freed last, the last first: a place's number + 1, or behind those a rest's */
  } lenders[2];                  /* of parts, of mappings: one cannot become the other */
};

/* Giving back costs more where a mapping ends, and a new one is made: from this range on. */
struct site_costs {
  struct evolve_costs part, mapping;
  unsigned mapping_range;
};

/* Unit costs as those of evolve_costs_of; map_ns: a mapping, made and unmade. */
struct site_costs site_costs_of(uint32_t fault_ns, uint32_t purge_page_ns, uint32_t purge_call_ns, uint32_t map_ns,
                                uint32_t break_even_ms);

/* Bytes of places for at most so many arms, a power of two, SITE_WAYS at least. */
size_t site_table_bytes(uint32_t arm_count);

/* places: site_table_bytes(arm_count) zero bytes. leader: what is done before anything is known. */
void site_table_begin(struct site_table *table, void *places, uint32_t arm_count, enum keep leader);

unsigned site_range(size_t bytes);

/* As evolve_freed and evolve_taken, of the arm of this site and range. A site is any number that stands for it. */
enum keep site_freed(struct site_table *table, const struct site_costs *costs, uint64_t site, unsigned range,
                     uint32_t pages, bool is_kept, uint32_t now_ms);
void site_taken(struct site_table *table, const struct site_costs *costs, uint64_t site, unsigned range, uint32_t pages,
                uint32_t now_ms);

/* What would be done with what this site frees, without an event. */
enum keep site_leader(const struct site_table *table, uint64_t site, unsigned range);

/* The arm of this site and range; NULL if it has none of its own. */
const struct evolve_arm *site_arm_of(const struct site_table *table, uint64_t site, unsigned range);

/* Gives an arm with ratings from elsewhere its place; false if the set is full. */
bool site_learned(struct site_table *table, uint64_t site, unsigned range, const int32_t *ratings, enum keep leader,
                  uint32_t epochs);

/* The end: what is open is concluded in all arms. */
void site_conclude(struct site_table *table, const struct site_costs *costs, uint32_t now_ms);

/* Sums over everything, up to now_ms. */
struct site_totals {
  uint64_t fixed[KEEP_STRATEGIES]; /* had one strategy acted everywhere */
  uint64_t best_of_arm;            /* had the best fixed one of each arm acted there */
  uint64_t acted;
  uint64_t epochs, switches;
};
struct site_totals site_totals(const struct site_table *table, const struct site_costs *costs, uint32_t now_ms);

#ifdef HAK_DEBUG
bool site_table_is_valid(const struct site_table *table);
#endif

#endif
