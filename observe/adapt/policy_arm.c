#include "adapt/policy_arm.h"

#include <string.h>

#define STAKE_SHARE 8u  /* an epoch is an eighth of the moving mean */
#define STAKE_CAP 4u    /* a cost counts up to the larger of two bounds: this multiple of the least one */
#define STAKE_FLOOR 16u /* and this fraction of the largest one */
#define WEIGHT_ONE 256u /* the weight of a match with the usual stake */
#define WEIGHT_MAX ((uint64_t)8 * WEIGHT_ONE)
#define GAIN 72                      /* points for a match won against an equal, shared by all matches of an epoch */
#define EPOCHS_OWN 4u                /* an arm with fewer epochs follows the prior */
#define HOME_STEP (2 * POLICY_POINT) /* a strategy's handicap for each step from home */
#define LOSS_SHARE 32u               /* a strategy may lose against home this fraction of home's cost */
#define LOSS_EPOCHS 4u               /* and in addition the stake of this many epochs */
#define SCORE_ONE 65536u
#define EPOCH_MAX ((uint64_t)1 << 46) /* nanoseconds; SCORE_ONE times as much fits 64 bits */

/* Returns how many strategies have a delay of at most so much. */
static unsigned delays_within(uint32_t ms) {
  unsigned within = 0;
  while (within < KEEP_STRATEGIES && keep_delay_ms((enum keep)within) <= ms)
    within++;
  return within;
}

enum keep policy_strategy_like(uint32_t delay_ms) {
  return (enum keep)(min_size(delays_within(delay_ms), KEEP_WARM) - 1);
}

struct policy_costs policy_costs_of(uint32_t fault_ns, uint32_t purge_page_ns, uint32_t purge_call_ns,
                                    uint32_t break_even_ms) {
  uint64_t rent = ((uint64_t)fault_ns << 16) / (break_even_ms ? break_even_ms : 1);
  return (struct policy_costs){
      .fault_ns = fault_ns,
      .purge_page_ns = purge_page_ns,
      .purge_call_ns = purge_call_ns,
      .rent_64k = rent > UINT32_MAX ? UINT32_MAX : (uint32_t)rent,
  };
}

static int32_t clamp_rating(int32_t rating) {
  if (rating > POLICY_RATING_MAX)
    return POLICY_RATING_MAX;
  return rating < -POLICY_RATING_MAX ? -POLICY_RATING_MAX : rating;
}

void policy_arm_begin(struct policy_arm *arm, enum keep home) {
  memset(arm, 0, sizeof *arm);
  arm->leader = arm->home = (uint8_t)home;
}

void policy_arm_begin_like(struct policy_arm *arm, const struct policy_arm *other) {
  policy_arm_begin(arm, (enum keep)other->home);
  arm->leader = other->leader;
  memcpy(arm->rating, other->rating, sizeof arm->rating);
}

void policy_arm_begin_rated(struct policy_arm *arm, const int32_t *ratings, enum keep leader, uint32_t epochs) {
  policy_arm_begin(arm, (enum keep)arm->home);
  arm->leader = (uint8_t)leader;
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    arm->rating[strategy] = clamp_rating(ratings[strategy]);
  arm->epochs = epochs;
}

/* --- costs --- */

/* acted: the strategy that was followed, so what it costs is the arm's own cost too. */
static void charge_strategy(struct policy_arm *arm, unsigned strategy, unsigned acted, uint64_t ns) {
  arm->total[strategy] += ns;
  arm->epoch[strategy] = min_size(arm->epoch[strategy] + ns, EPOCH_MAX);
  arm->total_acted += strategy == acted ? ns : 0;
}

/* Returns the rent of the first idle_ms. It is computed from the start, so the difference of two such sums does not
 * depend on how time is divided. */
static uint64_t rent_until(const struct policy_costs *costs, uint32_t pages, uint32_t idle_ms) {
  unsigned __int128 rent = (unsigned __int128)pages * idle_ms * costs->rent_64k;
  return (uint64_t)(rent >> 16);
}

static uint64_t purge_ns(const struct policy_costs *costs, uint32_t pages, uint32_t calls) {
  return (uint64_t)costs->purge_call_ns * calls + (uint64_t)costs->purge_page_ns * pages;
}

/* Returns what a strategy pays for idle pages, or a part of them, from the last charge until now. */
static uint64_t idle_ns(const struct policy_costs *costs, const struct policy_idle *idle, unsigned strategy,
                        uint32_t now_ms) {
  uint32_t delay_ms = keep_delay_ms(strategy);
  uint32_t from_ms = idle->charged_ms - idle->freed_ms, until_ms = now_ms - idle->freed_ms;
  if (from_ms >= delay_ms)
    return 0;
  bool is_purged = until_ms >= delay_ms;
  uint64_t ns =
      rent_until(costs, idle->pages, is_purged ? delay_ms : until_ms) - rent_until(costs, idle->pages, from_ms);
  return is_purged ? ns + purge_ns(costs, idle->pages, idle->calls) : ns;
}

static void charge_idle(struct policy_arm *arm, const struct policy_costs *costs, const struct policy_idle *idle,
                        uint32_t now_ms) {
  if (idle->charged_ms == now_ms)
    return;
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    charge_strategy(arm, strategy, idle->acted, idle_ns(costs, idle, strategy, now_ms));
}

void policy_arm_tick(struct policy_arm *arm, const struct policy_costs *costs, uint32_t now_ms) {
  for (unsigned i = 0; i < arm->idle_count; i++) {
    charge_idle(arm, costs, &arm->idle[i], now_ms);
    arm->idle[i].charged_ms = now_ms;
  }
}

/* --- matches --- */

/* 65536 / (1 + 10^(-points / 400)) for 0, 25, ... 800 points. */
#define EXPECTED_STEP (25 * POLICY_POINT)
static const uint32_t expected_at[] = {
    32768, 35122, 37451, 39732, 41943, 44065, 46083, 47985, 49762, 51409, 52924,
    54309, 55567, 56703, 57724, 58637, 59452, 60176, 60817, 61384, 61884, 62324,
    62710, 63049, 63345, 63604, 63830, 64027, 64199, 64348, 64478, 64591, 64689,
};
#define EXPECTED_LAST (sizeof expected_at / sizeof *expected_at - 1)
_Static_assert(EXPECTED_LAST *EXPECTED_STEP == 2 * POLICY_RATING_MAX, "the table reaches as far as ratings differ");

/* Returns the score that a strategy with this rating lead should reach. Interpolates linearly between table values. */
static uint32_t expected_score(int32_t lead) {
  uint32_t distance = (uint32_t)(lead < 0 ? -lead : lead);
  uint32_t at = distance / EXPECTED_STEP, rest = distance % EXPECTED_STEP;
  uint32_t score = at >= EXPECTED_LAST
                       ? expected_at[EXPECTED_LAST]
                       : expected_at[at] + (expected_at[at + 1] - expected_at[at]) * rest / EXPECTED_STEP;
  return lead < 0 ? SCORE_ONE - score : score;
}

/* Returns the rating points that the first strategy wins from the second. */
static int32_t match_gain(const struct policy_arm *arm, unsigned first, unsigned second) {
  uint64_t both = arm->epoch[first] + arm->epoch[second];
  if (both == 0)
    return 0;
  int64_t score = (int64_t)(arm->epoch[second] * SCORE_ONE / both);
  uint64_t weight = min_size(both * (WEIGHT_ONE / 2) / arm->stake, WEIGHT_MAX);
  int64_t won = (score - (int64_t)expected_score(arm->rating[first] - arm->rating[second])) * (int64_t)weight;
  return (int32_t)(won * GAIN * POLICY_POINT / ((int64_t)SCORE_ONE * WEIGHT_ONE * (KEEP_STRATEGIES - 1)));
}

/* Returns the rating less the handicap, which decides the leader. */
static int32_t strategy_standing(const struct policy_arm *arm, unsigned strategy) {
  int32_t steps = (int32_t)strategy - arm->home;
  return arm->rating[strategy] - HOME_STEP * (steps < 0 ? -steps : steps);
}

static void choose_leader(struct policy_arm *arm) {
  unsigned best = 0;
  for (unsigned strategy = 1; strategy < KEEP_STRATEGIES; strategy++)
    if (strategy_standing(arm, strategy) > strategy_standing(arm, best))
      best = strategy;
  if (strategy_standing(arm, best) - strategy_standing(arm, arm->leader) > POLICY_MARGIN) {
    arm->leader = (uint8_t)best;
    arm->switches++;
  }
}

/* Returns the stake of an epoch: the mean of the strategies' capped costs. The cap keeps one hopeless strategy from
 * making all other matches look small. Its floor keeps a strategy that pays nothing from making the stake zero. */
static uint64_t epoch_stake(const struct policy_arm *arm) {
  uint64_t least = arm->epoch[0], most = arm->epoch[0], sum = 0;
  for (unsigned strategy = 1; strategy < KEEP_STRATEGIES; strategy++) {
    least = min_size(least, arm->epoch[strategy]);
    most = max_size(most, arm->epoch[strategy]);
  }
  uint64_t cap = max_size(STAKE_CAP * least, most / STAKE_FLOOR);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    sum += min_size(arm->epoch[strategy], cap);
  return sum / KEEP_STRATEGIES;
}

static void play_epoch(struct policy_arm *arm) {
  uint64_t mean = epoch_stake(arm);
  arm->stake = max_size(arm->stake == 0 ? mean : (arm->stake * (STAKE_SHARE - 1) + mean) / STAKE_SHARE, 1);
  int32_t won[KEEP_STRATEGIES] = {0};
  for (unsigned first = 0; first < KEEP_STRATEGIES; first++)
    for (unsigned second = first + 1; second < KEEP_STRATEGIES; second++) {
      int32_t points = match_gain(arm, first, second);
      won[first] += points;
      won[second] -= points;
    }
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    arm->rating[strategy] = clamp_rating(arm->rating[strategy] + won[strategy]);
  choose_leader(arm);
  arm->epochs += arm->epochs < UINT32_MAX; /* four days of 50,000 events a second */
}

static bool is_charged(const struct policy_arm *arm) {
  uint64_t charged = 0;
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    charged |= arm->epoch[strategy];
  return charged != 0;
}

static void end_epoch(struct policy_arm *arm, struct policy_arm *prior) {
  arm->events = 0;
  if (!is_charged(arm))
    return; /* no strategy was charged: the epoch says nothing */
  play_epoch(arm);
  if (prior) {
    memcpy(prior->epoch, arm->epoch, sizeof prior->epoch);
    play_epoch(prior);
  }
  memset(arm->epoch, 0, sizeof arm->epoch);
}

static void note_event(struct policy_arm *arm, struct policy_arm *prior) {
  if (++arm->events >= POLICY_EPOCH_EVENTS)
    end_epoch(arm, prior);
}

/* --- events --- */

_Static_assert(POLICY_IDLE_MAX > KEEP_STRATEGIES, "of so many, two neighbours have passed the same delays");

/* Merges both into the second, with their mean age. */
static void merge_idle(const struct policy_idle *first, struct policy_idle *second) {
  uint64_t pages = (uint64_t)first->pages + second->pages;
  uint32_t apart_ms = second->freed_ms - first->freed_ms, calls = (uint32_t)first->calls + second->calls;
  second->freed_ms = first->freed_ms + (uint32_t)((uint64_t)apart_ms * second->pages / pages);
  second->acted = first->pages > second->pages ? first->acted : second->acted;
  second->pages = pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages;
  second->calls = calls > UINT16_MAX ? UINT16_MAX : (uint16_t)calls;
}

/* Makes room for one more by merging the two oldest neighbours that have passed the same delays. So the sums that
 * strategies have paid for them stay right. Neighbours that the same strategy treated are preferred. All must be
 * charged up to now. */
static void make_room(struct policy_arm *arm, uint32_t now_ms) {
  unsigned found = 0;
  for (unsigned i = POLICY_IDLE_MAX - 1; i > 0; i--) {
    const struct policy_idle *first = &arm->idle[i - 1], *second = &arm->idle[i];
    if (delays_within(now_ms - first->freed_ms) != delays_within(now_ms - second->freed_ms))
      continue;
    bool was_alike = found > 0 && arm->idle[found - 1].acted == arm->idle[found].acted;
    if (first->acted == second->acted || !was_alike)
      found = i;
  }
  found = found > 0 ? found : 1; /* times that are 49 days apart may leave no such neighbours */
  merge_idle(&arm->idle[found - 1], &arm->idle[found]);
  memmove(&arm->idle[found - 1], &arm->idle[found], (POLICY_IDLE_MAX - found) * sizeof arm->idle[0]);
  arm->idle_count--;
}

void policy_arm_inherit(struct policy_arm *arm, struct policy_arm *ending, const struct policy_costs *costs,
                        uint32_t now_ms) {
  policy_arm_tick(arm, costs, now_ms);
  policy_arm_tick(ending, costs, now_ms);
  for (unsigned i = 0; i < ending->idle_count; i++) {
    if (arm->idle_count == POLICY_IDLE_MAX)
      make_room(arm, now_ms);
    unsigned at = arm->idle_count++;
    for (; at > 0 && now_ms - arm->idle[at - 1].freed_ms < now_ms - ending->idle[i].freed_ms; at--)
      arm->idle[at] = arm->idle[at - 1];
    arm->idle[at] = ending->idle[i];
  }
  ending->idle_count = 0;
}

static bool arm_loses(const struct policy_arm *arm) {
  uint64_t home_ns = arm->total[arm->home];
  return arm->total_acted > home_ns + home_ns / LOSS_SHARE + LOSS_EPOCHS * arm->stake;
}

enum keep policy_arm_leader(const struct policy_arm *arm, const struct policy_arm *prior) {
  if (arm_loses(arm))
    return (enum keep)arm->home;
  bool follows = prior && arm->epochs < EPOCHS_OWN && prior->epochs > 0;
  return (enum keep)(follows ? prior->leader : arm->leader);
}

enum keep policy_arm_freed(struct policy_arm *arm, struct policy_arm *prior, const struct policy_costs *costs,
                           uint32_t pages, bool is_kept, uint32_t now_ms) {
  enum keep acted = policy_arm_leader(arm, prior);
  if (!is_kept && acted != KEEP_AT_ONCE)
    acted = (enum keep)arm->home;
  if (pages == 0)
    return acted;
  policy_arm_tick(arm, costs, now_ms);
  charge_strategy(arm, KEEP_AT_ONCE, acted, purge_ns(costs, pages, 1));
  struct policy_idle *newest = arm->idle_count > 0 ? &arm->idle[arm->idle_count - 1] : NULL;
  if (newest && newest->freed_ms == now_ms && newest->acted == acted && newest->pages <= UINT32_MAX - pages &&
      newest->calls < UINT16_MAX) {
    newest->pages += pages;
    newest->calls++;
  } else {
    if (arm->idle_count == POLICY_IDLE_MAX)
      make_room(arm, now_ms);
    arm->idle[arm->idle_count++] = (struct policy_idle){
        .freed_ms = now_ms, .charged_ms = now_ms, .pages = pages, .calls = 1, .acted = (uint8_t)acted};
  }
  note_event(arm, prior);
  return acted;
}

/* Cuts up to this many pages from the newest idle range. */
static struct policy_idle cut_newest(struct policy_arm *arm, uint32_t pages) {
  struct policy_idle *newest = &arm->idle[arm->idle_count - 1], cut = *newest;
  if (pages >= newest->pages) {
    arm->idle_count--;
    return cut;
  }
  cut.pages = pages;
  cut.calls = (uint16_t)((uint64_t)newest->calls * pages / newest->pages);
  newest->pages -= cut.pages;
  newest->calls -= cut.calls;
  return cut;
}

uint32_t policy_arm_lend(struct policy_arm *arm, const struct policy_costs *costs, uint32_t pages, uint32_t now_ms) {
  while (pages > 0 && arm->idle_count > 0) {
    struct policy_idle reused = cut_newest(arm, pages);
    uint64_t fault_ns = (uint64_t)reused.pages * costs->fault_ns;
    charge_idle(arm, costs, &reused, now_ms);
    for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
      if (now_ms - reused.freed_ms >= keep_delay_ms(strategy))
        charge_strategy(arm, strategy, reused.acted, fault_ns);
    pages -= reused.pages;
  }
  return pages;
}

uint32_t policy_arm_taken(struct policy_arm *arm, struct policy_arm *prior, const struct policy_costs *costs,
                          uint32_t pages, uint32_t now_ms) {
  uint32_t missing = policy_arm_lend(arm, costs, pages, now_ms);
  note_event(arm, prior);
  return missing;
}

void policy_arm_conclude(struct policy_arm *arm, struct policy_arm *prior, const struct policy_costs *costs,
                         uint32_t now_ms) {
  if (arm->epochs >= EPOCHS_OWN)
    return;
  policy_arm_tick(arm, costs, now_ms);
  end_epoch(arm, prior);
}

enum keep policy_best_fixed(const uint64_t costs[KEEP_STRATEGIES]) {
  unsigned best = 0;
  for (unsigned strategy = 1; strategy < KEEP_STRATEGIES; strategy++)
    if (costs[strategy] < costs[best])
      best = strategy;
  return (enum keep)best;
}

#ifdef HAK_DEBUG
bool policy_arm_is_valid(const struct policy_arm *arm) {
  bool valid = arm->idle_count <= POLICY_IDLE_MAX && arm->leader < KEEP_STRATEGIES && arm->home < KEEP_STRATEGIES &&
               arm->events < POLICY_EPOCH_EVENTS;
  for (unsigned i = 0; i < arm->idle_count; i++)
    valid &= arm->idle[i].pages > 0 && arm->idle[i].acted < KEEP_STRATEGIES;
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    valid &= arm->rating[strategy] <= POLICY_RATING_MAX && arm->rating[strategy] >= -POLICY_RATING_MAX;
  return valid;
}
#endif
