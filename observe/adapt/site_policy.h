/* site_policy.h: the table of arms, one for each call site and range of sizes (evolve_policy.h). Pure: the table lies
 * in the caller's memory.
 *
 * The table is bounded. A new site whose set is full cools the coldest arm of the set, and takes its place once it is
 * cold. Until then the *rest* decides for it, an arm that all such sites of a range share. So frequent sites keep their
 * arms, however many others appear.
 *
 * Memory that one site freed may serve another. So pages that a site asks for beyond its own idle ones are charged as
 * reused to the sites that freed last. This counts in favour of keeping their memory.
 *     P1  a key has at most one arm
 *   P2  total and total_acted of all arms and rests plus gone are the sum of all charges so far
 * site_table_is_valid checks P1. The caller's lock guards a table.
 */
#ifndef HAK_ADAPT_SITE_POLICY_H
#define HAK_ADAPT_SITE_POLICY_H

#include "adapt/evolve_policy.h"

#define SITE_WAYS 8u
/* Each range is a doubling of the size. The first includes all smaller sizes, the last all larger ones. */
#define SITE_RANGES 32u
#define SITE_RANGE_FIRST 4u /* log2 of the bytes */
#define SITE_WARMTH_MAX 64u
#define SITE_LENDERS 16u

struct site_arm {
  uint64_t site;
  uint8_t range;
  uint8_t warmth; /* 0: the place is free or may be taken */
  bool taken;
  struct evolve_arm arm;
};

struct site_table {
  struct site_arm *places;               /* set_count * SITE_WAYS */
  uint32_t set_count;                    /* a power of two */
  uint32_t taken_count, displaced;       /* places taken; arms that lost their place */
  struct evolve_arm priors[SITE_RANGES]; /* what all sites of a range have learned */
  struct evolve_arm rests[SITE_RANGES];  /* sites without a place */
  uint64_t gone[KEEP_STRATEGIES];        /* totals of displaced arms */
  uint64_t gone_acted;
  struct site_lenders {
    uint32_t arms[SITE_LENDERS]; /* that freed last, newest first: number of a place + 1, or above those of a rest */
  } lenders[2];                  /* of arena ranges and of mappings: neither can serve the other */
};

/* From mapping_range on objects are mappings, which cost more to end and to make again. */
struct site_costs {
  struct evolve_costs part, mapping;
  unsigned mapping_range;
};

/* Unit costs as for evolve_costs_of. map_ns: the cost to make and end a mapping. */
struct site_costs site_costs_of(uint32_t fault_ns, uint32_t purge_page_ns, uint32_t purge_call_ns, uint32_t map_ns,
                                uint32_t break_even_ms);

/* Returns the bytes of the places for arm_count arms, a power of two, at least SITE_WAYS. */
size_t site_table_bytes(uint32_t arm_count);

/* places: site_table_bytes(arm_count) zero bytes. leader: the home of all arms. */
void site_table_begin(struct site_table *table, void *places, uint32_t arm_count, enum keep leader);

unsigned site_range(size_t bytes);

/* As evolve_freed and evolve_taken, for the arm of this site and range. A site is any number. */
enum keep site_freed(struct site_table *table, const struct site_costs *costs, uint64_t site, unsigned range,
                     uint32_t pages, bool is_kept, uint32_t now_ms);
void site_taken(struct site_table *table, const struct site_costs *costs, uint64_t site, unsigned range, uint32_t pages,
                uint32_t now_ms);

/* Returns the strategy that would decide for this site, without an event. */
enum keep site_leader(const struct site_table *table, uint64_t site, unsigned range);

/* Returns the arm of this site and range; NULL if it has none of its own. */
const struct evolve_arm *site_arm_of(const struct site_table *table, uint64_t site, unsigned range);

/* Makes an arm with ratings from a file; false if the set is full. */
bool site_learned(struct site_table *table, uint64_t site, unsigned range, const int32_t *ratings, enum keep leader,
                  uint32_t epochs);

/* Charges all arms for their idle memory up to now, as the next event would. */
void site_tick(struct site_table *table, const struct site_costs *costs, uint32_t now_ms);
/* Call at the end: concludes the open epochs of all arms. */
void site_conclude(struct site_table *table, const struct site_costs *costs, uint32_t now_ms);

/* Sums over all arms, up to now_ms. */
struct site_totals {
  uint64_t fixed[KEEP_STRATEGIES]; /* cost if one strategy had acted everywhere */
  uint64_t best_of_arm;            /* cost if the best fixed strategy of each arm had acted there */
  uint64_t acted;
  uint64_t epochs, switches;
};
struct site_totals site_totals(const struct site_table *table, const struct site_costs *costs, uint32_t now_ms);

#ifdef HAK_DEBUG
bool site_table_is_valid(const struct site_table *table);
#endif

#endif
