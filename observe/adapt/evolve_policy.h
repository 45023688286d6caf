/* evolve_policy.h: how long freed ranges are kept resident, learned from what is freed and asked for again.
 * Pure: numbers in, numbers out. Integers only, so the same events give the same ratings, bit for bit.
 *
 * An arm is what is decided about together: a call site and a range of sizes. Every strategy is charged for every
 * event of its arm, in shadow, whichever of them acts: rent for what it would keep, the calls it would make, the
 * faults it would cause. So nothing has to be tried out to be known, and neither has what the best fixed strategy
 * would have cost.
 *
 * Rent is charged when the pages are asked for again, so that an epoch has both sides of what it judges: the rent, and
 * the faults that were saved; what is never asked for pays with each event that frees more.
 *
 * After EVOLVE_EPOCH_EVENTS events the strategies play each other. A match's score is the other's share of both
 * costs; ratings move as those of chess players do (Elo, The Rating of Chessplayers, 1978), by more when more than
 * usual is at stake. The best rated leads, and what is freed is treated as the leader says; another takes its place
 * once it is EVOLVE_MARGIN points ahead. Among equals the one nearest to what is done without learning is the best: it
 * costs least when the program changes its ways.
 *   E1  idle[i].pages > 0 for i < idle_count; older ones come first
 *   E2  ratings lie within EVOLVE_RATING_MAX; while none has reached it, they add up to 0
 *   E3  total[s] is what strategy s alone would have cost since the arm began, up to the last tick
 * Of many idle ones neighbours of about the same age are merged, between two delays: E3 is exact to the nanosecond but
 * for that, and for what acted. evolve_is_valid checks E1's first half and E2's. Whoever holds an arm guards it; times
 * are milliseconds of one clock, which never goes back, and whose 32 bits may wrap: nothing is told apart that is 49
 * days apart.
 */
#ifndef HAK_ADAPT_EVOLVE_POLICY_H
#define HAK_ADAPT_EVOLVE_POLICY_H

#include "policy/keep_policy.h"

#define EVOLVE_EPOCH_EVENTS 4u
#define EVOLVE_POINT 256                       /* ratings are in 256ths of a point */
#define EVOLVE_RATING_MAX (400 * EVOLVE_POINT) /* a longer lead would take too long to lose */
#define EVOLVE_MARGIN (5 * EVOLVE_POINT)
#define EVOLVE_IDLE_MAX 8u

/* What things cost, in nanoseconds. */
struct evolve_costs {
  uint32_t fault_ns;      /* a page touched again, its clearing included */
  uint32_t purge_page_ns; /* a page given back */
  uint32_t purge_call_ns; /* the calls that give back, and make what was given back usable again */
  uint32_t rent_64k;      /* 65536 pages idle for a millisecond */
};

/* Rent by the ski rental's rule: a page that is idle for break_even_ms has cost as much as the fault it saves. */
struct evolve_costs evolve_costs_of(uint32_t fault_ns, uint32_t purge_page_ns, uint32_t purge_call_ns,
                                    uint32_t break_even_ms);

/* Freed and not yet asked for again. */
struct evolve_idle {
  uint32_t freed_ms, charged_ms; /* rent is charged up to the latter */
  uint32_t pages;
  uint16_t calls; /* it takes to give them back */
  uint8_t acted;  /* the strategy that led when it was freed */
};

struct evolve_arm {
  uint64_t total[KEEP_STRATEGIES]; /* nanoseconds */
  uint64_t total_acted;            /* of what the leaders of the time did */
  uint64_t epoch[KEEP_STRATEGIES]; /* of total: this epoch's */
  int32_t rating[KEEP_STRATEGIES];
  uint64_t stake;    /* cost of an epoch and strategy, a moving mean */
  uint32_t epochs;   /* played, those that a file tells of included */
  uint32_t switches; /* of the leader */
  struct evolve_idle idle[EVOLVE_IDLE_MAX];
  uint8_t idle_count;
  uint8_t events; /* of this epoch */
  uint8_t leader;
  uint8_t home; /* what is done before anything is known */
};

/* The strategy that gives back as late as a fixed delay does, or sooner. */
enum keep evolve_like(uint32_t delay_ms);

/* Makes an arm that knows nothing; what another has learned; or, of one that is made already, one with ratings from a
 * file, which it got in so many epochs. */
void evolve_arm_begin(struct evolve_arm *arm, enum keep home);
void evolve_arm_begin_like(struct evolve_arm *arm, const struct evolve_arm *other);
void evolve_arm_begin_rated(struct evolve_arm *arm, const int32_t *ratings, enum keep leader, uint32_t epochs);

/* Who decides for the arm: its leader. prior, if not NULL, is an arm of nobody's own that plays each epoch of all arms;
 * its leader is followed while the arm has played few epochs itself. And if all that was done so far has cost clearly
 * more than what is done without learning would have (by a 32nd of that, and four epochs' stake), that is done:
 * learning can lose no more, whatever the program does. */
enum keep evolve_leader(const struct evolve_arm *arm, const struct evolve_arm *prior);

/* pages were freed, and are to be treated as the result says (is_kept: they can be; else only what is given back at
 * once goes by the leader, all else as without learning); or were asked for: the result says how many of them were not
 * among those that this arm knows to be idle. What the prior learns is part of it. */
enum keep evolve_freed(struct evolve_arm *arm, struct evolve_arm *prior, const struct evolve_costs *costs,
                       uint32_t pages, bool is_kept, uint32_t now_ms);
uint32_t evolve_taken(struct evolve_arm *arm, struct evolve_arm *prior, const struct evolve_costs *costs,
                      uint32_t pages, uint32_t now_ms);

/* The same where another arm has asked: its idle pages are used again all the same, but the event is not this arm's. */
uint32_t evolve_lend(struct evolve_arm *arm, const struct evolve_costs *costs, uint32_t pages, uint32_t now_ms);

/* The idle pages of an arm that ends go to another one. */
void evolve_inherit(struct evolve_arm *arm, struct evolve_arm *ending, const struct evolve_costs *costs,
                    uint32_t now_ms);

/* Charges rent up to now. Changes no total in the end, but what an epoch is charged: for figures, tick a copy. */
void evolve_tick(struct evolve_arm *arm, const struct evolve_costs *costs, uint32_t now_ms);

/* Nothing more will come. An arm that has played few epochs plays the one that is open, whatever happened in it so far:
 * programs that run for a second learn from each other so. */
void evolve_conclude(struct evolve_arm *arm, struct evolve_arm *prior, const struct evolve_costs *costs,
                     uint32_t now_ms);

/* The strategy that would have cost least if it alone had acted; costs: of each, as an arm's total. What acted has
 * cost, less its, is the regret. */
enum keep evolve_best_fixed(const uint64_t costs[KEEP_STRATEGIES]);

#ifdef HAK_DEBUG
bool evolve_is_valid(const struct evolve_arm *arm);
#endif

#endif
