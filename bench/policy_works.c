/* The workloads of policy_load. Each has a temper of its own: how long after a free its pages are wanted again. */
#include "policy_works.h"

#include "adapt/policy_arm.h"
#include "bench.h"

#include <math.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static unsigned some(const struct load *load, unsigned count) { return load->is_tiny && count > 2 ? 2 : count; }

/* The same of what is done the more often the longer the run is to be. */
static unsigned lasting(const struct load *load, unsigned count) {
  return load->is_tiny ? some(load, count) : count * load->times;
}

static uint32_t span(const struct load *load, uint32_t ms) { return load->is_tiny ? ms / 50 : ms; }

static double between_0_and_1(uint64_t *random) { return (double)(bench_random(random) >> 11) * 0x1p-53; }

/* Log-uniform: as many in each doubling. */
static double spread(uint64_t *random, double low, double high) {
  return low * pow(high / low, between_0_and_1(random));
}

/* Of a mean, as the times between requests. */
static uint32_t random_ms(uint64_t *random, double mean_ms) {
  return (uint32_t)lround(-mean_ms * log(1 - between_0_and_1(random)));
}

/* `count` blocks are taken, held, given and left alone. */
struct rounds {
  unsigned site, count;
  size_t bytes;
  uint32_t hold_ms, gap_ms;
};

static void one_round(struct load *load, const struct rounds *way) {
  for (unsigned slot = 0; slot < way->count; slot++)
    load->take(load, way->site, slot, way->bytes);
  load->wait(load, way->hold_ms);
  for (unsigned slot = 0; slot < way->count; slot++)
    load->give(load, slot);
  load->wait(load, way->gap_ms);
}

static void rounds(struct load *load, unsigned times, const struct rounds *way) {
  for (unsigned i = 0; i < some(load, times); i++)
    one_round(load, way);
}

static void lasting_rounds(struct load *load, unsigned times, const struct rounds *way) {
  for (unsigned i = 0; i < lasting(load, times); i++)
    one_round(load, way);
}

static void reuse(struct load *load) {
  lasting_rounds(load, 40, &(struct rounds){.site = 1, .count = 24, .bytes = 2 * MIB, .hold_ms = 300, .gap_ms = 200});
}

/* A site comes again after three seconds, and with another size. */
static void one_shot(struct load *load) {
  enum { ONE_SHOT_SITES = 20 };
  uint64_t random = bench_seed(2, 0);
  for (unsigned i = 0; i < lasting(load, 200); i++) {
    size_t bytes = (size_t)spread(&random, 4.0 * MIB, 32.0 * MIB);
    load->take(load, 1 + i % ONE_SHOT_SITES, 0, bytes);
    load->wait(load, 50);
    load->give(load, 0);
    load->wait(load, 100);
  }
}

static void bursts(struct load *load) {
  for (unsigned i = 0; i < lasting(load, 4); i++) {
    rounds(load, 16, &(struct rounds){.site = 1, .count = 8, .bytes = 3 * MIB, .hold_ms = 20, .gap_ms = 4});
    rounds(load, 16, &(struct rounds){.site = 2, .count = 4, .bytes = 700 * KIB, .hold_ms = 5, .gap_ms = 2});
    load->wait(load, span(load, 8000));
  }
}

/* Hot, cold and hot again, all from one site. */
static void turn(struct load *load) {
  const struct rounds hot = {.site = 1, .count = 8, .bytes = 3 * MIB, .hold_ms = 40, .gap_ms = 40};
  const struct rounds cold = {.site = 1, .count = 8, .bytes = 3 * MIB, .hold_ms = 40, .gap_ms = 2500};
  lasting_rounds(load, 50, &hot);
  load->turn(load);
  lasting_rounds(load, 10, &cold);
  load->turn(load);
  lasting_rounds(load, 50, &hot);
}

/* Several that take and give on their own, each with one block. */
struct temper {
  unsigned site;
  size_t bytes;
  uint32_t hold_ms, gap_ms;
  uint32_t next_ms;
  bool is_held;
};

static void live_on(struct load *load, struct temper *tempers, unsigned count, uint32_t until_ms, uint64_t *random) {
  uint32_t now_ms = 0;
  while (true) {
    unsigned first = 0;
    for (unsigned i = 1; i < count; i++)
      if (tempers[i].next_ms < tempers[first].next_ms)
        first = i;
    struct temper *temper = &tempers[first];
    if (temper->next_ms > until_ms)
      break;
    if (temper->next_ms > now_ms)
      load->wait(load, temper->next_ms - now_ms);
    now_ms = temper->next_ms;
    if (temper->is_held)
      load->give(load, first);
    else
      load->take(load, temper->site, first, temper->bytes);
    /* A tenth more or less, but a block that is given does not come back within the same millisecond. */
    double usual_ms = temper->is_held ? temper->gap_ms : temper->hold_ms;
    double ms = usual_ms * (0.9 + 0.2 * between_0_and_1(random));
    temper->next_ms = now_ms + (uint32_t)fmax(1, round(ms));
    temper->is_held = !temper->is_held;
  }
  for (unsigned i = 0; i < count; i++)
    if (tempers[i].is_held)
      load->give(load, i);
}

/* Gaps from a millisecond to a minute. A site with a short one holds its block for the rest of four seconds, so all are
 * asked equally often, and the whole takes little more than the longest gap. */
static void hundred_tempers(struct load *load, bool is_wrapped) {
  enum { COUNT = 100, PERIOD_MS = 4000, ALL_MS = 64000 };
  struct temper tempers[COUNT];
  uint64_t random = bench_seed(5, 0);
  for (unsigned i = 0; i < COUNT; i++) {
    uint32_t gap_ms = (uint32_t)lround(spread(&random, 1, 60000));
    uint32_t hold_ms = gap_ms + 200 < PERIOD_MS ? PERIOD_MS - gap_ms : 200;
    tempers[i] = (struct temper){
        .site = is_wrapped ? 1 : 1 + i,
        .bytes = (size_t)spread(&random, 300.0 * KIB, 4.0 * MIB),
        .hold_ms = hold_ms,
        .gap_ms = gap_ms,
        .next_ms = (uint32_t)(between_0_and_1(&random) * span(load, 2000)),
    };
  }
  live_on(load, tempers, COUNT, load->times * span(load, ALL_MS), &random);
}

static void hundred(struct load *load) { hundred_tempers(load, false); }
static void wrapper(struct load *load) { hundred_tempers(load, true); }

/* One buffer moves to ever larger blocks, then to ever smaller ones. */
static void growing(struct load *load) {
  enum { STEPS = 40 };
  const double low = 300.0 * KIB, high = 31.0 * MIB;
  for (unsigned sweep = 0; sweep < lasting(load, 8); sweep++)
    for (unsigned i = 0; i < some(load, STEPS); i++) {
      unsigned step = sweep % 2 ? STEPS - i : i;
      load->take(load, 1, i % 2, (size_t)(low * pow(high / low, step / (double)STEPS)));
      if (i > 0)
        load->give(load, 1 - i % 2);
      load->wait(load, 90);
      if (i + 1 == some(load, STEPS))
        load->give(load, i % 2);
    }
}

/* Requests in flight; a lull after every hundred. */
static void server(struct load *load) {
  enum { REQUESTS = 450, IN_FLIGHT = 24, BLOCKS = 3 };
  static const struct {
    unsigned site, sites;
    double low, high, share;
  } kinds[BLOCKS] = {
      {1, 1, 4.0 * KIB, 200.0 * KIB, 1},
      {2, 4, 300.0 * KIB, 1.0 * MIB, 0.9},
      {6, 2, 2.0 * MIB, 10.0 * MIB, 0.3},
  };
  uint32_t due_ms[IN_FLIGHT] = {0}, now_ms = 0, arrival_ms = 0;
  bool is_busy[IN_FLIGHT] = {false}, is_taken[IN_FLIGHT][BLOCKS];
  uint64_t random = bench_seed(8, 0);
  for (unsigned request = 0, busy = 0; request < lasting(load, REQUESTS) || busy > 0;) {
    unsigned earliest = IN_FLIGHT, idle = IN_FLIGHT;
    for (unsigned i = 0; i < IN_FLIGHT; i++) {
      if (!is_busy[i])
        idle = i;
      else if (earliest == IN_FLIGHT || due_ms[i] < due_ms[earliest])
        earliest = i;
    }
    bool is_arrival = request < lasting(load, REQUESTS) && idle < IN_FLIGHT &&
                      (earliest == IN_FLIGHT || arrival_ms < due_ms[earliest]);
    uint32_t next_ms = is_arrival ? arrival_ms : due_ms[earliest];
    if (next_ms > now_ms)
      load->wait(load, next_ms - now_ms);
    now_ms = next_ms > now_ms ? next_ms : now_ms;
    unsigned at = is_arrival ? idle : earliest;
    for (unsigned i = 0; i < BLOCKS; i++) {
      if (!is_arrival && is_taken[at][i])
        load->give(load, at * BLOCKS + i);
      else if (is_arrival && (is_taken[at][i] = between_0_and_1(&random) < kinds[i].share))
        load->take(load, kinds[i].site + (unsigned)bench_pick(bench_random(&random), kinds[i].sites), at * BLOCKS + i,
                   (size_t)spread(&random, kinds[i].low, kinds[i].high));
    }
    is_busy[at] = is_arrival;
    busy = is_arrival ? busy + 1 : busy - 1;
    if (is_arrival) {
      due_ms[at] = now_ms + random_ms(&random, 60);
      arrival_ms = now_ms + (++request % 100 ? random_ms(&random, 50) : span(load, 2500));
    }
  }
}

/* How long to leave blocks alone, knowing how long they will be kept. */
typedef uint32_t malice(uint32_t kept_ms, uint32_t delay_ms);

/* Runs an arm of the engine's own beside. */
static void against_leader(struct load *load, malice *gap_of) {
  enum { ROUNDS = 160, COUNT = 4, ALL_MS = 40000, DELAY_MS = 1000, FAULT_NS = 500 };
  const size_t bytes = 4 * MIB;
  const uint32_t pages = (uint32_t)(bytes / 4096);
  const uint32_t delay_ms = DELAY_MS > load->speed ? DELAY_MS / load->speed : 1;
  const struct policy_costs costs = {
      .fault_ns = FAULT_NS, .purge_page_ns = 60, .purge_call_ns = 800, .rent_64k = (FAULT_NS << 16) / delay_ms};
  struct policy_arm arm, prior;
  policy_arm_begin(&prior, policy_strategy_like(delay_ms));
  policy_arm_begin_like(&arm, &prior);
  uint32_t now_ms = 0; /* of the real clock */
  for (unsigned i = 0; i < lasting(load, ROUNDS) && now_ms * load->speed < ALL_MS * load->times; i++) {
    for (unsigned slot = 0; slot < COUNT; slot++)
      policy_arm_taken(&arm, &prior, &costs, pages, now_ms);
    now_ms += 2;
    uint32_t kept_ms = keep_delay_ms(policy_arm_leader(&arm, &prior));
    uint32_t gap_ms = gap_of(kept_ms, delay_ms);
    for (unsigned slot = 0; slot < COUNT; slot++)
      policy_arm_freed(&arm, &prior, &costs, pages, true, now_ms);
    now_ms += gap_ms;
    one_round(load, &(struct rounds){.site = 1,
                                     .count = COUNT,
                                     .bytes = bytes,
                                     .hold_ms = 2 * load->speed,
                                     .gap_ms = load->is_tiny ? 1 : gap_ms * load->speed});
  }
}

/* Two tempers; it changes from one to the other whenever the engine has got used to it. */
static uint32_t the_other_temper(uint32_t kept_ms, uint32_t delay_ms) {
  return kept_ms < delay_ms ? delay_ms * 3 / 10 : 5 * delay_ms;
}
static void adversary(struct load *load) { against_leader(load, the_other_temper); }

/* Any gap: always a little longer than the leader would keep them. No deterministic strategy can do better than twice
 * the best in hindsight here. */
static uint32_t just_too_long(uint32_t kept_ms, uint32_t delay_ms) {
  return kept_ms < 4 * delay_ms ? kept_ms + kept_ms / 4 + 2 : 5 * delay_ms;
}
static void pursuer(struct load *load) { against_leader(load, just_too_long); }

const struct policy_work policy_works[] = {
    {"reuse", "the same big blocks from one site, again and again", reuse},
    {"one-shot", "big buffers, each used once", one_shot},
    {"bursts", "short bursts, long idle", bursts},
    {"turn", "a hot site turns cold, then hot again", turn},
    {"hundred", "a hundred sites of mixed temper", hundred},
    {"wrapper", "the same hundred behind one call site", wrapper},
    {"growing", "a buffer that grows, then shrinks", growing},
    {"server", "requests of small, mid and large blocks", server},
    {"adversary", "flips between two tempers whenever the leader changes sides", adversary},
    {"pursuer", "waits just longer than the leading strategy keeps", pursuer},
};
const size_t policy_work_count = sizeof policy_works / sizeof *policy_works;
