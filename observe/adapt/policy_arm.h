/* policy_arm.h: learns how long freed ranges stay resident (their decay time), from what is freed and asked for
 * again. Pure: numbers in, numbers out. It uses integers only, so the same events give the same ratings, bit for bit.
 * docs/policy.md has an example.
 *
 * An arm is the unit of decision: a call site and a range of sizes. Each strategy is charged for each event of its arm,
 * whichever strategy acts: rent for what it would keep, the calls it would make, the page faults it would cause. So no
 * strategy has to be tried, and the cost of the best fixed strategy is known.
 *
 * Rent is charged when the pages are asked for again. So an epoch contains both the rent and the page faults that it
 * saved. Pages that are never asked for pay rent with each event that frees more.
 *
 * After POLICY_EPOCH_EVENTS events the strategies play each other. The score of a match is the other's share of both
 * costs. Ratings move by the Elo rule (The Rating of Chessplayers, 1978), and by more when the stake is higher than
 * usual. The best rated strategy leads and decides about freed ranges. Another takes the lead once it is POLICY_MARGIN
 * points ahead. Among equals the strategy nearest to home, the preset's own, is the best: it costs least when the
 * program changes its habits.
 *   E1  idle[i].pages > 0 for i < idle_count; older ones come first
 *   E2  ratings lie within POLICY_RATING_MAX; while none has reached it, they add up to 0
 *   E3  total[s] is what strategy s alone would have cost since the arm began, up to the last tick
 * Idle ranges of about the same age may be merged. E3 is exact to the nanosecond except for such merges and for
 * total_acted. policy_arm_is_valid checks the first halves of E1 and E2. The caller's lock guards an arm. Times are
 * milliseconds of one monotonic clock in 32 bits, so times that are 49 days apart cannot be distinguished.
 */
#pragma once

#include "policy/keep_policy.h"

#define POLICY_EPOCH_EVENTS 4u
#define POLICY_POINT 256                       /* ratings are in 256ths of a point */
#define POLICY_RATING_MAX (400 * POLICY_POINT) /* a longer lead would take too long to lose */
#define POLICY_MARGIN (5 * POLICY_POINT)
#define POLICY_IDLE_MAX 8u

/* Unit costs in nanoseconds. */
struct policy_costs {
  uint32_t fault_ns;      /* a page touched again, its clearing included */
  uint32_t purge_page_ns; /* a page given back */
  uint32_t purge_call_ns; /* the system calls to give a range back and to make it usable again */
  uint32_t rent_64k;      /* 65536 pages idle for a millisecond */
};

/* Sets the rent by the ski rental rule: a page that is idle for break_even_ms costs as much as the page fault it
 * saves. */
struct policy_costs policy_costs_of(uint32_t fault_ns, uint32_t purge_page_ns, uint32_t purge_call_ns,
                                    uint32_t break_even_ms);

/* A range that was freed and not yet asked for again. */
struct policy_idle {
  uint32_t freed_ms, charged_ms; /* rent is charged up to the latter */
  uint32_t pages;
  uint16_t calls; /* system calls to give them back */
  uint8_t acted;  /* the strategy that led when it was freed */
};

struct policy_arm {
  uint64_t total[KEEP_STRATEGIES]; /* nanoseconds */
  uint64_t total_acted;            /* the cost of what the leaders did */
  uint64_t epoch[KEEP_STRATEGIES]; /* of total: this epoch's */
  int32_t rating[KEEP_STRATEGIES];
  uint64_t stake;    /* moving mean of an epoch's cost per strategy */
  uint32_t epochs;   /* epochs played, those from a file included */
  uint32_t switches; /* changes of the leader */
  struct policy_idle idle[POLICY_IDLE_MAX];
  uint8_t idle_count;
  uint8_t events; /* of this epoch */
  uint8_t leader;
  uint8_t home; /* the preset's own strategy, which leads at first */
};

/* Returns the strategy with the longest delay that does not exceed delay_ms. */
enum keep policy_strategy_like(uint32_t delay_ms);

/* policy_arm_begin makes an arm that knows nothing, policy_arm_begin_like one that knows what another has learned.
 * policy_arm_begin_rated gives an existing arm ratings from a file and the epochs it took to learn them. */
void policy_arm_begin(struct policy_arm *arm, enum keep home);
void policy_arm_begin_like(struct policy_arm *arm, const struct policy_arm *other);
void policy_arm_begin_rated(struct policy_arm *arm, const int32_t *ratings, enum keep leader, uint32_t epochs);

/* Returns the strategy that decides for the arm: its leader. prior (may be NULL) is an arm that plays the epochs of all
 * arms; an arm that has played few epochs follows the prior's leader. If all decisions so far have cost more than home
 * would have, by a 32nd and four epochs' stake, home decides. So learning can lose no more, whatever the program
 * does. */
enum keep policy_arm_leader(const struct policy_arm *arm, const struct policy_arm *prior);

/* policy_arm_freed: pages were freed; treat them as the result says. is_kept: the caller can keep them. If not, the
 * leader decides only about giving back at once, and home about the rest. policy_arm_taken: pages were asked for;
 * returns how many of them were not among the arm's idle ones. Both update the prior. */
enum keep policy_arm_freed(struct policy_arm *arm, struct policy_arm *prior, const struct policy_costs *costs,
                           uint32_t pages, bool is_kept, uint32_t now_ms);
uint32_t policy_arm_taken(struct policy_arm *arm, struct policy_arm *prior, const struct policy_costs *costs,
                          uint32_t pages, uint32_t now_ms);

/* As policy_arm_taken when another arm asked: this arm's idle pages are used again, but the event counts for the other
 * arm. */
uint32_t policy_arm_lend(struct policy_arm *arm, const struct policy_costs *costs, uint32_t pages, uint32_t now_ms);

/* Moves the idle pages of an ending arm to another one. */
void policy_arm_inherit(struct policy_arm *arm, struct policy_arm *ending, const struct policy_costs *costs,
                        uint32_t now_ms);

/* Charges rent up to now. The final totals do not change, but an epoch's charges do. To read figures, tick a copy. */
void policy_arm_tick(struct policy_arm *arm, const struct policy_costs *costs, uint32_t now_ms);

/* Call at the end. An arm that has played few epochs plays the open one, however short. So programs that run for a
 * second learn from each other. */
void policy_arm_conclude(struct policy_arm *arm, struct policy_arm *prior, const struct policy_costs *costs,
                         uint32_t now_ms);

/* Returns the strategy that would have cost least if it alone had acted. costs: an arm's totals. The regret is
 * total_acted less its cost. */
enum keep policy_best_fixed(const uint64_t costs[KEEP_STRATEGIES]);

#ifdef HAK_DEBUG
bool policy_arm_is_valid(const struct policy_arm *arm);
#endif
