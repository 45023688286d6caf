#include "reclaim/reclaim.h"

#include "base/counters.h"
#include "base/options.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "heap/envelope.h"
#include "heap/pool.h"
#include "heap/slow_path.h"
#include "large/guarded.h"
#include "large/packed.h"
#include "large/range.h"
#include "large/stash.h"
#include "os/filter.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/collapse.h"
#include "pages/extent.h"
#include "pages/metadata.h"
#include "policy/limit_policy.h"
#include "reclaim/delay.h"
#include "reclaim/hole_walk.h"
#include "threads/registry.h"

#include <limits.h>

/* Free ranges are cached large ranges and free extents. The preset decides about most of them, the policy
 * engine about the learned ones. They go back to the system by four rules, oldest first.
 *   R1  A learned range goes when its own time is over.
 *   R2  Beyond the cap (usage_keep_max) what the preset decides about goes, however young.
 *   R3  While more is free than usage_keep_learned, learned ranges go that were unused for the full delay; beyond the
 *       cap, however young.
 *   R4  Beyond usage_keep what the preset decides about goes if it was unused for the delay in force.
 * free_is_due asks for them, purge_due does them. Holes go if their slab was left alone for the delay in force. Stashed
 * ranges go to the BigCache if they were not used for a whole round of the stashes. Slow calls do this in parts, the
 * background thread in whole rounds. Pressure, an idle program, trims and requests without memory take more: their
 * entries at the end say what.
 */
#define FREE_BYTES_MIN ((size_t)1 << 20) /* less free memory is not worth a round */
#define PURGE_MARGIN ((size_t)4 << 20) /* a purge goes this far below its bound, so that the next is not due at once */
#define STEP_BYTES ((size_t)8 << 20)   /* between two checks whether to go on */
#define CALL_BYTES ((size_t)2 << 20)   /* one slow call gives back so much by R1 and R4; 20 us a MiB */
#define CALL_RANGES 32u                /* and tries so many refused ranges again */
#define LATE_DELAYS 2u                 /* so long slow calls leave R4 to a background thread that is at work */
#define RELEASED_BYTES_MIN ((size_t)32 << 20) /* the shortest range to unmap where address space is not limited */
#define LEARNED_IDLE_MS 10000u                /* an idle program keeps nothing for longer, whatever was learned */
#define TABLES_BYTES_MIN ((size_t)1 << 20)    /* less free metadata stays for the next threads */
#define LOOK_PERIOD_MS 50u                    /* between two looks at bounds; they walk over the pools */
#define STASH_STEP_RANGES 64u                 /* one slow call moves so many out of the stashes */
#define HOLES_LOOK_CALLS 256u                 /* slow calls of a heap between two checks whether holes are due */
_Static_assert(HOLES_LOOK_CALLS % SLOW_CALLS_PERIOD == 0, "whole periods");

/* The clock of all rules. One thread at a time does a round: it holds `round`. Only trims, and requests without memory,
 * wait for it. The holder writes the times; all threads read them without the lock.
 *   C1  A round works with one delay, the one in force at its begin.
 *   C2  A round that gave memory back with a shorter delay than the full one is charged for it (reclaim/delay.h). Slow
 *       calls that share a round's work are charged together, when no more is due.
 *   C3  While thread_ms is recent the background thread is at work, and slow calls leave old memory to it.
 */
static struct {
  struct lock round;
  _Atomic uint64_t thread_ms;    /* when the background thread began its last round; 0: never */
  _Atomic uint64_t next_look_ms; /* when slow calls look at bounds again (look_is_due) */
  _Atomic uint64_t stashes_ms;   /* when the present round of the stashes began */
} reclaim;

static bool round_begin(void) {
  if (!lock_try(&reclaim.round))
    return false;
  counter_note(reclaim_rounds);
  return true;
}
/* ranges: so many that the system refused to unmap are tried again. */
static void round_end(unsigned ranges) {
  ranges_unmap_again(ranges);
  lock_give(&reclaim.round);
}

static bool thread_did_round(uint64_t within_ms) {
  return os_milliseconds() - load_relaxed(&reclaim.thread_ms) < within_ms;
}

/* Returns a bound for struct purge: what was used before it was unused for so long; 0: what is free now. What is freed
 * during a round is left for the next one, so the round ends. */
static uint64_t unused_for(uint64_t ms) { return sub_sat(os_milliseconds(), ms) + 1; }

/* --- free ranges --- */

static size_t free_by_preset(void) { return sub_sat(usage_free(), usage_learned()); }

/* The owners of free resident memory, in the order in which they are purged: cached ranges become free extents. */
static const struct owner {
  const struct decay *decay;
  size_t (*purge)(struct purge purge);
} owners[] = {{&big_cache_decay, range_evict}, {&extents_decay, extents_purge}};

/* Purges free memory, oldest first. Here keep_bytes is compared with the free bytes of all owners: those that the
 * preset decides about; for the policy engine, those of both. */
COLD static size_t purge_free(struct purge purge) {
  size_t keep_bytes = purge.keep_bytes, given_back = 0;
  size_t (*free_now)(void) = purge.decider == BY_PRESET ? free_by_preset : usage_free;
  if (!reclaim_is_on() || free_now() <= keep_bytes || (purge.decider == BY_ENGINE && LIKELY(usage_learned() == 0)))
    return 0;
  size_t most_bytes = purge.most_bytes;
  for (const struct owner *owner = owners; owner < owners + sizeof owners / sizeof *owners; owner++) {
    purge.most_bytes = sub_sat(most_bytes, given_back);
    purge.keep_bytes = sub_sat(keep_bytes, sub_sat(free_now(), decay_bytes(owner->decay, purge.decider)));
    if (decay_bytes(owner->decay, purge.decider) > purge.keep_bytes)
      given_back += owner->purge(purge);
  }
  return given_back;
}

/* As purge_free, in steps. */
static size_t purge_in_steps(bool (*may_go_on)(void), struct purge purge) {
  size_t given_back = 0, step;
  do {
    step = purge_free(purge_at_most(min_size(purge.most_bytes - given_back, STEP_BYTES), purge));
    given_back += step;
  } while (step > 0 && given_back < purge.most_bytes && reclaim_goes_on(may_go_on));
  return given_back;
}

/* Returns when R1 takes the first learned range; 0: there is none. */
uint64_t reclaim_due_ms(void) {
  uint64_t due_ms = keep_earlier_ms(decay_due_ms(&big_cache_decay), decay_due_ms(&extents_decay));
  return UNLIKELY(due_ms != 0) && !reclaim_is_on() ? 0 : due_ms;
}

/* R3. What exceeds the bound may be too young to go. So slow calls ask for it by look_is_due. */
static bool learned_is_too_much(void) { return usage_learned() > 0 && usage_free() > usage_keep_learned(); }

/* R4, for slow calls: the background thread does it, unless it comes late. */
static bool is_old(uint64_t age_ms) {
  uint64_t delay_ms = delay_in_force_ms(), late_ms = delay_ms * LATE_DELAYS;
  return UNLIKELY(age_ms >= delay_ms) && (age_ms >= late_ms || !thread_did_round(late_ms));
}

/* Tells whether R1, R2 or R4 takes something. Reads without locks. An error of one range does not matter. */
static bool free_is_due(void) {
  uint64_t learned_ms = UNLIKELY(usage_learned() > 0) ? reclaim_due_ms() : 0;
  if (UNLIKELY(learned_ms != 0) && os_milliseconds() >= learned_ms)
    return true;
  size_t free_bytes = free_by_preset();
  if (LIKELY(free_bytes < FREE_BYTES_MIN) || free_bytes <= usage_keep())
    return false;
  uint64_t oldest_ms = keep_earlier_ms(decay_oldest_ms(&extents_decay), decay_oldest_ms(&big_cache_decay));
  return free_bytes > usage_keep_max() || (oldest_ms != 0 && is_old(os_milliseconds() - oldest_ms));
}

/* R1 to R4, in this order. most_bytes bounds R1 and R4: what exceeds a bound goes at once. The round's lock is held. */
COLD static size_t purge_due(bool (*may_go_on)(void), size_t most_bytes, uint64_t delay_ms) {
  size_t given_back = purge_free(purge_at_most(most_bytes, purge_by_engine(true, 0, unused_for(0))));
  size_t cap_bytes = usage_keep_max();
  if (free_by_preset() > cap_bytes)
    given_back += purge_in_steps(may_go_on, purge_by_preset(sub_sat(cap_bytes, PURGE_MARGIN), unused_for(0)));
  if (learned_is_too_much())
    given_back += purge_free(purge_by_engine(false, sub_sat(usage_keep_learned(), PURGE_MARGIN),
                                             unused_for(usage_free() > cap_bytes ? 0 : delay_full_ms())));
  struct purge aged = purge_by_preset(usage_keep(), unused_for(delay_ms));
  return given_back + purge_in_steps(may_go_on, purge_at_most(sub_sat(most_bytes, given_back), aged));
}

/* --- stashes --- */

/* A round of the stashes lasts about half the purge delay: a little less, so that each round of the background thread
 * ends one. */
static bool stashes_are_due(void) {
  return UNLIKELY(stashes_are(STASHES_LIVE)) &&
         os_milliseconds() - load_relaxed(&reclaim.stashes_ms) >= delay_full_ms() * 3 / 8;
}

/* Moves at most so many ranges that were put before the present round of the stashes to the BigCache: they were free
 * since its begin at the latest. When none is left, the next round begins. The lock is held. */
COLD static void age_stashes(size_t most) {
  if (range_evict_stashed(stash_present_round(), 1, load_relaxed(&reclaim.stashes_ms), most) == most)
    return;
  stash_next_round();
  store_relaxed(&reclaim.stashes_ms, os_milliseconds());
}

static void empty_stashes(void) {
  if (UNLIKELY(stashes_are(STASHES_LIVE)))
    range_evict_stashed(STASH_ANY_ROUND, 1, os_milliseconds(), SIZE_MAX);
}

/* --- holes in slabs --- */

static size_t purge_holes(enum hole_search search, uint64_t delay_ms, bool (*may_go_on)(void)) {
  size_t given_back = 0;
  hole_walk_begin(search, delay_ms);
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    given_back += hole_walk_pool(pool, may_go_on);
  return reclaim_is_on() && reclaim_goes_on(may_go_on) ? given_back + packed_purge() : given_back;
}

/* The background thread walks over all holes every half delay. Where it does not, a pool's threads walk over its holes
 * as often, if more is free in its slabs than may stay however old. Returns true if a walk begins. */
static bool holes_begin_if_due(struct pool *pool) {
  if (!reclaim_is_on() || !lock_try(&pool->lock))
    return false;
  size_t free_bytes = sub_sat(pool->slabs.slab_bytes, slab_set_taken_bytes(&pool->slabs));
  uint64_t now_ms = os_milliseconds(), delay_ms = delay_in_force_ms();
  bool is_due = free_bytes >= FREE_BYTES_MIN && free_bytes > usage_keep() && now_ms - pool->holes_ms >= delay_ms / 2 &&
                !thread_did_round(delay_ms);
  if (is_due) {
    pool->holes_ms = now_ms;
    slab_set_holes_begin(&pool->slabs);
    store_relaxed(&pool->holes_are_due, true);
  }
  lock_give(&pool->lock);
  return is_due;
}

/* --- other stations --- */

COLD static void close_empty_slabs(void) {
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool)) {
    if (!lock_try(&pool->lock))
      continue;
    inbox_drain_to_slabs(pool);
    slab_set_close_empty(&pool->slabs);
    inbox_unlock(pool);
  }
}

/* Gives back free metadata: envelopes, and arrays of bins; and what counts with it. */
COLD static size_t trim_tables(size_t free_bytes_min) {
  size_t given_back = heaps_rest() + guarded_trim();
  envelopes_trim();
  return metadata_free_bytes() < free_bytes_min ? given_back : given_back + metadata_trim();
}

/* --- limits --- */

/* Near a limit, lowers what the purge policy may keep until the next check. Gives back now what exceeds the soft
 * target. Between two checks the program may exceed it, because otherwise each object that moves would fault its pages
 * in again. Returns true if the target is exceeded. The round's lock is held. */
COLD static bool look_at_limits(void) {
  struct limit_view view = {
      .held_bytes = usage_held(),
      .live_bytes = pools_live_bytes() + usage_taken_large(),
      .free_bytes = usage_free(),
      .high_bytes = sub_sat(usage_high(), usage_tables()),
  };
  view.charged_bytes = view.held_bytes;
  if (limit_keep(&view) != SIZE_MAX)
    view.charged_bytes = min_size(view.held_bytes, usage_charged());
  usage_keep_cap(limit_keep(&view));
  if (usage_keep_max() != SIZE_MAX) {
    stash_close();
    empty_stashes();
  }
  view.target_bytes = (size_t)option_value(OPTION_TARGET_MB) << 20;
  if (view.target_bytes == 0 || sub_sat(view.held_bytes, view.live_bytes) <= view.target_bytes)
    return false;
  purge_free(purge_by_engine(false, 0, unused_for(0)));
  purge_free(purge_by_preset(limit_keep(&view), unused_for(0)));
  return true;
}

/* --- slow calls --- */

static bool limits_matter(void) { return option_value(OPTION_TARGET_MB) != 0 || usage_high() != SIZE_MAX; }

/* Tells whether it is time to look at bounds that the program may exceed for a while: limits, and R3. */
static bool look_is_due(void) {
  return (UNLIKELY(limits_matter()) || UNLIKELY(learned_is_too_much())) &&
         os_milliseconds() >= load_relaxed(&reclaim.next_look_ms);
}

void reclaim_tick(void) {
  bool looks = look_is_due();
  if ((LIKELY(!looks) && LIKELY(!free_is_due())) || !round_begin())
    return;
  uint64_t delay_ms = delay_in_force_ms();
  size_t given_back = 0;
  if (looks) {
    store_relaxed(&reclaim.next_look_ms, os_milliseconds() + LOOK_PERIOD_MS);
    if (limits_matter() && look_at_limits())
      purge_holes(HOLES_SETTLED, delay_ms, NULL);
  }
  if (free_is_due() || (looks && learned_is_too_much()))
    given_back = purge_due(NULL, CALL_BYTES, delay_ms);
  delay_charge(given_back, delay_ms, !free_is_due());
  round_end(CALL_RANGES);
}

static void tick_holes(struct pool *pool) {
  if (!round_begin())
    return;
  uint64_t delay_ms = delay_in_force_ms();
  size_t given_back = 0;
  hole_walk_begin(HOLES_SETTLED, delay_ms);
  if (load_relaxed(&pool->holes_are_due)) /* else another thread has come to the end */
    store_relaxed(&pool->holes_are_due, hole_walk_step(pool, &given_back));
  delay_charge(given_back, delay_ms, true);
  round_end(CALL_RANGES);
}

void reclaim_tick_of_heap(const struct heap *heap) {
  struct pool *pool = heap_pool(heap);
  if (heap->slow_calls % SLOW_CALLS_PERIOD == 0 && stashes_are_due() && round_begin()) {
    age_stashes(STASH_STEP_RANGES);
    round_end(CALL_RANGES);
  }
  if (UNLIKELY(load_relaxed(&pool->holes_are_due)) ||
      (UNLIKELY(heap->slow_calls % HOLES_LOOK_CALLS == 0) && holes_begin_if_due(pool)))
    tick_holes(pool);
}

/* --- the background thread --- */

/* Aged: R1 to R4. Idle: no range stays that was unused for the full delay, a learned one for LEARNED_IDLE_MS. Pressed:
 * nothing stays, but what is freed afterwards may: the program uses most of it again at once, and a page fault costs
 * the system more than the page is worth (docs/decisions/0077-pressure-is-a-moment.md). The lock is held. */
COLD static bool work_round(enum reclaim_depth depth, bool (*may_go_on)(void)) {
  uint64_t delay_ms = delay_in_force_ms();
  store_relaxed(&reclaim.thread_ms, os_milliseconds());
  bool swept = heaps_sweep_all(false); /* if all threads of the program sleep, no other thread sweeps */
  if (stashes_are_due())
    age_stashes(SIZE_MAX);
  bool is_pressed = depth == RECLAIM_PRESSED, is_over_target = look_at_limits();
  size_t given_back = purge_holes(is_pressed || is_over_target ? HOLES_ALL : HOLES_SETTLED, delay_ms, may_go_on);
  if (depth == RECLAIM_AGED) {
    given_back += purge_due(may_go_on, SIZE_MAX, delay_ms);
    delay_charge(given_back, delay_ms, true);
  } else {
    if (is_pressed)
      empty_stashes();
    close_empty_slabs();
    trim_tables(TABLES_BYTES_MIN);
    given_back += purge_free(purge_by_engine(true, 0, unused_for(0)));
    given_back += purge_free(purge_by_engine(false, 0, unused_for(is_pressed ? 0 : LEARNED_IDLE_MS)));
    given_back += purge_in_steps(may_go_on, purge_by_preset(0, unused_for(is_pressed ? 0 : delay_full_ms())));
  }
  bool more = reclaim_is_on() && (swept || given_back > 0 || stashes_are(STASHES_LIVE) ||
                                  usage_free() > (depth == RECLAIM_AGED ? usage_keep() : 0));
  if (!is_pressed)
    more |= collapse_some(may_go_on);
  HAK_PROBE(reclaim_round, (unsigned)depth, given_back, usage_free());
  return more;
}

COLD bool reclaim_round(enum reclaim_depth depth, bool (*may_go_on)(void)) {
  if (!slow_path_begin())
    return true;
  bool more = true;
  if (round_begin()) {
    more = work_round(depth, may_go_on);
    round_end(UINT_MAX);
  }
  slow_path_end();
  return more;
}

/* --- what the program asks for --- */

/* A thread may have ended in a round. One at work is waited for in vain if it takes longer, but it gives back, too. */
#define ROUND_WAIT_MS 10000u

COLD static bool round_wait(void) { return lock_wait(&reclaim.round, os_milliseconds() + ROUND_WAIT_MS); }

/* Waits for the round that is at work, then makes free memory of all that can be reached of what threads keep. False:
 * it waited in vain. */
COLD static bool full_round_begin(void) {
  heaps_sweep_all(os_may_call());
  if (!round_wait())
    return false;
  empty_stashes();
  close_empty_slabs();
  return true;
}

/* Takes learned ranges first, however young all are. */
static size_t purge_all_but(size_t keep_bytes) {
  size_t given_back = purge_free(purge_by_engine(false, keep_bytes, unused_for(0)));
  return given_back + purge_free(purge_by_preset(sub_sat(keep_bytes, usage_learned()), unused_for(0)));
}

/* Returns the length of the shortest range to unmap. Without a limit the mappings may be what is short, and a short gap
 * makes one more. */
COLD static size_t released_bytes_min(void) { return os_memory_limit() == SIZE_MAX ? RELEASED_BYTES_MIN : UNIT_BYTES; }

COLD size_t reclaim_trim(size_t keep_bytes) {
  counter_note(trims);
  if (!full_round_begin())
    return 0;
  size_t given_back = purge_all_but(keep_bytes);
  if (keep_bytes == 0)
    given_back += purge_holes(HOLES_ALL, 0, NULL) + trim_tables(0);
  if (keep_bytes == 0 && reclaim_is_on())
    extents_release(released_bytes_min());
  round_end(UINT_MAX);
  return given_back;
}

COLD size_t reclaim_pool(struct pool *pool) {
  if (!round_wait())
    return 0;
  hole_walk_begin(HOLES_ALL, 0);
  size_t given_back = hole_walk_pool(pool, NULL);
  round_end(UINT_MAX);
  return given_back;
}

COLD void reclaim_all(void) {
  stash_close();
  bool is_held = full_round_begin();
  if (is_held) {
    range_evict(purge_by_engine(false, 0, unused_for(0))); /* mappings take address space, also if `purge` is off */
    range_evict(purge_by_preset(0, unused_for(0)));
    purge_all_but(0);
  }
  /* Under the program's own filter the limit is not known, and a strict kernel counts what is mapped. */
  extents_release(os_filter_is_own() || os_commit_is_strict() ? UNIT_BYTES : released_bytes_min());
  if (is_held)
    round_end(UINT_MAX);
}
