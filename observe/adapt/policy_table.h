/* policy_table.h: the table of arms, one for each call site and range of sizes (policy_arm.h). Pure: the table lies
 * in the caller's memory.
 *
 * The table is bounded. A new site whose set is full cools the coldest arm of the set, and takes its place once it is
 * cold. Until then the *rest* decides for it, an arm that all such sites of a range share. So frequent sites keep their
 * arms, however many others appear.
 *
 * Memory that one site freed may serve another. So pages that a site asks for beyond its own idle ones are charged as
 * reused to the sites that freed last. This counts in favour of keeping their memory.
 *   P1  a key has at most one arm
 *   P2  total and total_acted of all arms and rests plus gone are the sum of all charges so far
 * policy_table_is_valid checks P1. The caller's lock guards a table.
 */
#pragma once

#include "adapt/policy_arm.h"

#define POLICY_WAYS 8u
/* Each range is a doubling of the size. The first includes all smaller sizes, the last all larger ones. */
#define POLICY_RANGES 32u
#define POLICY_RANGE_FIRST 4u /* log2 of the bytes */
#define POLICY_WARMTH_MAX 64u
#define POLICY_LENDERS 16u

struct policy_place {
  uint64_t site;
  uint8_t range;
  uint8_t warmth; /* 0: the place is free or may be taken */
  bool taken;
  struct policy_arm arm;
};

/* From mapping_range on objects are mappings, which cost more to end and to make again. */
struct policy_table_costs {
  uint32_t mapping_range;
  struct policy_costs part, mapping;
};

struct policy_table {
  struct policy_table_costs costs;
  struct policy_place *places;             /* set_count * POLICY_WAYS */
  uint32_t set_count;                      /* a power of two */
  uint32_t taken_count, displaced;         /* places taken; arms that lost their place */
  struct policy_arm priors[POLICY_RANGES]; /* what all sites of a range have learned */
  struct policy_arm rests[POLICY_RANGES];  /* sites without a place */
  uint64_t gone[KEEP_STRATEGIES];          /* totals of displaced arms */
  uint64_t gone_acted;
  struct policy_lenders {
    uint32_t arms[POLICY_LENDERS]; /* that freed last, newest first: number of a place + 1, or above those of a rest */
  } lenders[2];                    /* of arena ranges and of mappings: neither can serve the other */
};

/* Unit costs as for policy_costs_of. map_ns: the cost to make and end a mapping. */
struct policy_table_costs policy_table_costs_of(uint32_t fault_ns, uint32_t purge_page_ns, uint32_t purge_call_ns,
                                                uint32_t map_ns, uint32_t break_even_ms);

/* Returns the bytes of the places for arm_count arms, a power of two, at least POLICY_WAYS. */
size_t policy_table_bytes(uint32_t arm_count);

/* places: policy_table_bytes(arm_count) zero bytes. leader: the home of all arms. */
void policy_table_begin(struct policy_table *table, void *places, uint32_t arm_count,
                        const struct policy_table_costs *costs, enum keep leader);

unsigned policy_range(size_t bytes);

/* As policy_arm_freed and policy_arm_taken, for the arm of this site and range. A site is any number. */
enum keep policy_table_freed(struct policy_table *table, uint64_t site, unsigned range, uint32_t pages, bool is_kept,
                             uint32_t now_ms);
void policy_table_taken(struct policy_table *table, uint64_t site, unsigned range, uint32_t pages, uint32_t now_ms);

/* Returns the strategy that would decide for this site, without an event. */
enum keep policy_table_leader(const struct policy_table *table, uint64_t site, unsigned range);

/* Returns the arm of this site and range; NULL if it has none of its own. */
const struct policy_arm *policy_table_arm_of(const struct policy_table *table, uint64_t site, unsigned range);

/* Makes an arm with ratings from a file; false if the set is full. */
bool policy_table_learned(struct policy_table *table, uint64_t site, unsigned range, const int32_t *ratings,
                          enum keep leader, uint32_t epochs);

/* Charges all arms for their idle memory up to now, as the next event would. */
void policy_table_tick(struct policy_table *table, uint32_t now_ms);
/* Call at the end: concludes the open epochs of all arms. */
void policy_table_conclude(struct policy_table *table, uint32_t now_ms);

/* Sums over all arms, up to now_ms. */
struct policy_totals {
  uint64_t fixed[KEEP_STRATEGIES]; /* cost if one strategy had acted everywhere */
  uint64_t best_of_arm;            /* cost if the best fixed strategy of each arm had acted there */
  uint64_t acted;
  uint64_t epochs, switches;
  size_t arms; /* that have a place */
};
struct policy_totals policy_totals(struct policy_table *table, uint32_t now_ms);
/* Adds one arm's figures. */
void policy_totals_add(struct policy_totals *totals, const uint64_t total[KEEP_STRATEGIES], uint64_t acted,
                       uint32_t epochs, uint32_t switches);

#ifdef HAK_DEBUG
bool policy_table_is_valid(const struct policy_table *table);
#endif
