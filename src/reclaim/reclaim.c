#include "reclaim/reclaim.h"

#include "base/counters.h"
#include "base/options.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "heap/envelope.h"
#include "heap/pool.h"
#include "heap/slow_path.h"
#include "large/packed.h"
#include "large/range.h"
#include "large/stash.h"
#include "os/filter.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/metadata.h"
#include "pages/superslab.h"
#include "policy/limit_policy.h"
#include "threads/registry.h"

#define FREE_BYTES_MIN ((size_t)1 << 20) /* less free memory is not worth a round */
#define PURGE_MARGIN ((size_t)4 << 20) /* a purge goes this far below its bound, so that the next is not due at once */
#define STEP_BYTES ((size_t)8 << 20)   /* between two checks whether to go on */
#define CALL_BYTES ((size_t)2 << 20)   /* one slow call gives back so much of what is old; 20 us a MiB */
#define LATE_DELAYS 2u                 /* so long slow calls leave old memory to a background thread that is at work */
#define RELEASED_BYTES_MIN ((size_t)32 << 20) /* the shortest range to unmap where address space is not limited */
#define LEARNED_IDLE_MS 10000u                /* an idle program keeps nothing for longer, whatever was learned */
#define TABLES_BYTES_MIN ((size_t)1 << 20)    /* less free metadata stays for the next threads */
#define LOOK_PERIOD_MS 50u                    /* between two checks of the soft target, which walk over the heaps */
#define STASH_LOOK_CALLS SLOW_CALLS_PERIOD    /* slow calls of a heap between two checks whether stashes are due */
#define STASH_STEP_RANGES 64u                 /* that one of them moves */
#define HOLES_LOOK_CALLS 256u                 /* slow calls between two checks whether holes are due */
_Static_assert(HOLES_LOOK_CALLS % SLOW_CALLS_PERIOD == 0, "whole periods");

/* The preset's purge delay is the longest. A 20th of it, or 1 ms for each 2 MiB held, is enough as long as what goes
 * back is little: after so many bytes the full delay holds for a second. So the page faults that a shorter delay causes
 * take a few hundredths of the time if the program wants all of it again, at 1.4 us a page, and less than one in most
 * programs. A delay that is set holds exactly. */
#define SOON_SHARE 20u
#define SOON_MS_MIN ((uint64_t)50)
#define SOON_BYTES_OF_MS ((size_t)2 << 20)
#define SOON_BYTES_A_MS (((size_t)128 << 20) / 1000)

static struct {
  struct lock round;             /* held during a round; only trims wait for it */
  _Atomic uint64_t next_look_ms; /* when slow calls look at the limits and at excess that was learned again */
  _Atomic uint64_t stashes_ms;   /* when the present round of the stashes began */
  _Atomic uint64_t soon_ms;      /* the full delay holds until then */
  _Atomic uint64_t thread_ms;    /* when the background thread began its last round; 0: never */
  size_t uncharged_bytes;        /* given back by slow calls, and not charged yet; the round's lock guards it */
} reclaim;

static uint64_t delay_ms(void) { return (uint64_t)option_value(OPTION_PURGE_DELAY_MS); }

uint64_t reclaim_delay_ms(void) {
  uint64_t full_ms = delay_ms();
  if (option_is_set(OPTION_PURGE_DELAY_MS) || os_milliseconds() < load_relaxed(&reclaim.soon_ms))
    return full_ms;
  return min_size(full_ms, max_size(max_size(full_ms / SOON_SHARE, SOON_MS_MIN), usage_held() / SOON_BYTES_OF_MS));
}

uint64_t reclaim_full_delay_until_ms(void) { return load_relaxed(&reclaim.soon_ms); }

/* Call at the end of a round, which had this delay. What slow calls gave back before, and did not charge, is charged with it. */
static void soon_charge(size_t given_back, uint64_t round_delay_ms) {
  given_back += reclaim.uncharged_bytes;
  reclaim.uncharged_bytes = 0;
  if (given_back > 0 && round_delay_ms < delay_ms())
    store_relaxed(&reclaim.soon_ms, os_milliseconds() + given_back / SOON_BYTES_A_MS);
}

/* --- free ranges --- */

/* Returns the free bytes that the preset decides about. The policy engine decides about the others. */
static size_t free_by_preset(void) { return less(usage_free(), usage_learned()); }

/* Returns when the first of the others is to go back; 0: there is none. */
uint64_t reclaim_due_ms(void) {
  uint64_t due_ms = keep_earlier_ms(decay_due_ms(&big_cache_decay), decay_due_ms(&units_decay));
  return UNLIKELY(due_ms != 0) && option_value(OPTION_PURGE) == PURGE_OFF ? 0 : due_ms;
}

static bool learned_is_too_much(void) { return usage_learned() > 0 && usage_free() > usage_keep_learned(); }

/* A time that includes everything that is free now. Memory that is freed during the round is left for the next one, so
 * the round ends. */
static uint64_t any_time(void) { return os_milliseconds() + 1; }

/* The owners of free resident memory, in the order in which they are purged: cached ranges become free extents. */
static const struct owner {
  const struct decay *decay;
  size_t (*purge)(struct purge purge);
} owners[] = {{&big_cache_decay, range_evict}, {&extents_decay, extents_purge}, {&units_decay, units_purge}};

/* Purges free memory, oldest first. Here keep_bytes is compared with the free bytes of all owners: those that the
 * preset decides about; for the policy engine, those of both. */
COLD static size_t purge_free(struct purge purge) {
  size_t keep_bytes = purge.keep_bytes, given_back = 0;
  size_t (*free_now)(void) = purge.decider == BY_PRESET ? free_by_preset : usage_free;
  if (option_value(OPTION_PURGE) == PURGE_OFF || free_now() <= keep_bytes ||
      (purge.decider == BY_ENGINE && LIKELY(usage_learned() == 0)))
    return 0;
  size_t most_bytes = purge.most_bytes;
  for (const struct owner *owner = owners; owner < owners + sizeof owners / sizeof *owners; owner++) {
    purge.most_bytes = less(most_bytes, given_back);
    purge.keep_bytes = less(keep_bytes, less(free_now(), decay_bytes(owner->decay, purge.decider)));
    if (decay_bytes(owner->decay, purge.decider) > purge.keep_bytes)
      given_back += owner->purge(purge);
  }
  return given_back;
}

/* As purge_free, in steps; may_go_on NULL: in one step of at most most_bytes. */
static size_t purge_free_while(bool (*may_go_on)(void), size_t most_bytes, size_t keep_bytes, uint64_t before_ms) {
  if (may_go_on == NULL)
    return purge_free(purge_at_most(most_bytes, purge_by_preset(keep_bytes, before_ms)));
  size_t given_back = 0, step;
  do {
    step = purge_free(purge_by_preset(max_size(keep_bytes, less(free_by_preset(), STEP_BYTES)), before_ms));
    given_back += step;
  } while (step > 0 && may_go_on());
  return given_back;
}

static bool learned_is_due(void) {
  uint64_t due_ms = reclaim_due_ms();
  return due_ms != 0 && os_milliseconds() >= due_ms;
}

static bool thread_did_round(uint64_t within_ms) {
  return os_milliseconds() - load_relaxed(&reclaim.thread_ms) < within_ms;
}

/* Where the background thread did a round not long ago, the next one does what is old, unless it comes late. */
static bool is_old(uint64_t age_ms) {
  uint64_t delay_now_ms = reclaim_delay_ms(), late_ms = delay_now_ms * LATE_DELAYS;
  return UNLIKELY(age_ms >= delay_now_ms) && (age_ms >= late_ms || !thread_did_round(late_ms));
}

/* Reads without locks. An error of one range does not matter. */
static bool free_is_due(void) {
  if (UNLIKELY(usage_learned() > 0) && learned_is_due())
    return true;
  size_t free_bytes = free_by_preset();
  if (LIKELY(free_bytes < FREE_BYTES_MIN))
    return false;
  size_t keep_bytes = usage_keep();
  if (free_bytes <= keep_bytes)
    return false;
  uint64_t oldest_ms =
      keep_earlier_ms(decay_oldest_ms(&extents_decay),
                      keep_earlier_ms(decay_oldest_ms(&units_decay), decay_oldest_ms(&big_cache_decay)));
  return free_bytes > usage_keep_max() || (oldest_ms != 0 && is_old(os_milliseconds() - oldest_ms));
}

/* Returns the exclusive upper bound of times that are at least ago_ms in the past. */
static uint64_t time_before(uint64_t ago_ms) {
  uint64_t now_ms = os_milliseconds();
  return now_ms - (ago_ms < now_ms ? ago_ms : now_ms) + 1;
}

/* What exceeds a bound, a limit's or that of what was learned, goes at once; of the rest at most most_bytes. */
COLD static size_t purge_due(bool (*may_go_on)(void), size_t most_bytes, uint64_t round_delay_ms) {
  size_t given_back = purge_free(purge_at_most(most_bytes, purge_by_engine(true, 0, any_time())));
  size_t bound = usage_keep_max();
  if (free_by_preset() > bound)
    given_back += purge_free_while(may_go_on, SIZE_MAX, less(bound, PURGE_MARGIN), any_time());
  if (learned_is_too_much())
    given_back += purge_free(purge_by_engine(false, less(usage_keep_learned(), PURGE_MARGIN),
                                             usage_free() > bound ? any_time() : time_before(delay_ms())));
  return given_back +
         purge_free_while(may_go_on, less(most_bytes, given_back), usage_keep(), time_before(round_delay_ms));
}

/* A slow call does some of what is due, and the next ones the rest. The charge is for all of it: before its end the
 * short delay stays in force, unless another round ends first. The round's lock is held. */
COLD static void purge_some_of_due(uint64_t round_delay_ms) {
  reclaim.uncharged_bytes += purge_due(NULL, CALL_BYTES, round_delay_ms);
  if (!free_is_due())
    soon_charge(0, round_delay_ms);
}

/* --- stashes --- */

/* A round of the stashes lasts about half the purge delay: a little less, so that each round of the background thread
 * ends one. */
static bool stashes_are_due(void) {
  return UNLIKELY(stashes_are_live()) && os_milliseconds() - load_relaxed(&reclaim.stashes_ms) >= delay_ms() * 3 / 8;
}

/* Moves at most so many ranges that were put before the present round of the stashes to the BigCache: they were free
 * since its begin at the latest. When none is left, the next round begins. The lock is held. */
COLD static void age_stashes(size_t most) {
  if (range_evict_stashed(stash_present_round(), load_relaxed(&reclaim.stashes_ms), most) == most)
    return;
  stash_next_round();
  store_relaxed(&reclaim.stashes_ms, os_milliseconds());
}

/* Moves all of it. */
static void empty_stashes(void) {
  if (UNLIKELY(stashes_are_live()))
    range_evict_stashed(STASH_ANY_ROUND, os_milliseconds(), SIZE_MAX);
}

/* --- holes in slabs --- */

static SPARSE struct hole_batch batch; /* too long for a small stack; the round's lock guards it */

/* Purges one batch of a pool's holes. False if there is nothing left, or if the pool's lock is taken. */
COLD static bool purge_hole_batch(struct pool *pool, size_t *given_back) {
  if (!lock_try(&pool->lock))
    return false;
  inbox_drain_to_slabs(pool);
  bool more = slab_set_holes_take(&pool->slabs, &batch);
  pool->is_purging = batch.slab_count > 0; /* until they are in their lists again, no thread may end the pool */
  lock_give(&pool->lock);
  for (unsigned i = 0; i < batch.hole_count; i++) {
    if (pages_purge(batch.holes[i].start, batch.holes[i].bytes) != PURGE_REFUSED)
      *given_back += batch.holes[i].bytes;
  }
  if (batch.slab_count > 0) {
    counter_note(hole_batches);
    lock_take(&pool->lock);
    slab_set_holes_give(&pool->slabs, &batch);
    pool->is_purging = false;
    lock_give(&pool->lock);
  }
  return more;
}

static void hole_search_begin(enum hole_search search, uint64_t round_delay_ms) {
  batch.search = search;
  batch.now_ms = (uint32_t)os_milliseconds();
  batch.delay_ms = (uint32_t)round_delay_ms;
}

static size_t purge_holes(enum hole_search search, uint64_t round_delay_ms, bool (*may_go_on)(void)) {
  size_t given_back = 0;
  if (option_value(OPTION_PURGE) == PURGE_OFF)
    return 0;
  hole_search_begin(search, round_delay_ms);
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool)) {
    batch.class = 1;
    while ((may_go_on == NULL || may_go_on()) && purge_hole_batch(pool, &given_back))
      ;
  }
  return may_go_on == NULL || may_go_on() ? given_back + packed_purge() : given_back;
}

COLD static void close_empty_slabs(void) {
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool)) {
    if (!lock_try(&pool->lock))
      continue;
    inbox_drain_to_slabs(pool);
    slab_set_close_empty(&pool->slabs);
    lock_give(&pool->lock);
  }
}

/* Gives back free metadata: envelopes, and arrays of bins and outboxes. */
COLD static size_t trim_tables(size_t free_bytes_min) {
  size_t given_back = heaps_rest();
  envelopes_trim();
  return metadata_free_bytes() < free_bytes_min ? given_back : given_back + metadata_trim();
}

/* --- limits --- */

/* Near a limit or under pressure, lowers what the purge policy may keep until the next check. Gives back now what
 * exceeds the soft target. Between two checks the program may exceed it, because otherwise each object that moves would
 * fault its pages in again. Returns true if the target is exceeded. The round's lock is held. */
COLD static bool look_at_limits(bool under_pressure) {
  struct limit_view view = {
      .held_bytes = usage_held(),
      .live_bytes = pools_live_bytes() + usage_taken_large(),
      .free_bytes = usage_free(),
      .high_bytes = usage_high(),
      .under_pressure = under_pressure,
  };
  usage_keep_cap(limit_keep(&view));
  if (usage_keep_max() != SIZE_MAX) {
    stash_close();
    empty_stashes();
  }
  view.target_bytes = (size_t)option_value(OPTION_TARGET_MB) << 20;
  if (view.target_bytes == 0 || less(view.held_bytes, view.live_bytes) <= view.target_bytes)
    return false;
  purge_free(purge_by_engine(false, 0, any_time()));
  purge_free(purge_by_preset(limit_keep(&view), any_time()));
  return true;
}

static bool limits_matter(void) { return option_value(OPTION_TARGET_MB) != 0 || usage_high() != SIZE_MAX; }

/* Both may exceed a bound for a while: limits between two looks, and what was learned while it is too young to go. */
static bool look_is_due(void) {
  return (UNLIKELY(limits_matter()) || UNLIKELY(learned_is_too_much())) &&
         os_milliseconds() >= load_relaxed(&reclaim.next_look_ms);
}

/* --- entries --- */

static bool round_begin(void) {
  if (!lock_try(&reclaim.round))
    return false;
  counter_note(reclaim_rounds);
  return true;
}
static void round_end(void) { lock_give(&reclaim.round); }

void reclaim_tick(void) {
  bool looks = look_is_due();
  if ((LIKELY(!looks) && LIKELY(!free_is_due())) || !round_begin())
    return;
  uint64_t round_delay_ms = reclaim_delay_ms();
  if (looks) {
    store_relaxed(&reclaim.next_look_ms, os_milliseconds() + LOOK_PERIOD_MS);
    if (limits_matter() && look_at_limits(false))
      purge_holes(HOLES_SETTLED, round_delay_ms, NULL);
  }
  if (free_is_due() || (looks && learned_is_too_much()))
    purge_some_of_due(round_delay_ms);
  round_end();
}

/* Tells whether a thread begins a walk over the holes of its pool. The background thread walks over holes every half
 * purge delay. Without that thread the pool's threads do it as often, unless less is free than may stay however
 * old. */
static bool holes_are_due(struct pool *pool) {
  if (option_value(OPTION_PURGE) == PURGE_OFF || !lock_try(&pool->lock))
    return false;
  size_t free_bytes = less(pool->slabs.slab_bytes, slab_set_taken_bytes(&pool->slabs));
  uint64_t now_ms = os_milliseconds(), due_ms = reclaim_delay_ms();
  bool is_due = free_bytes >= FREE_BYTES_MIN && free_bytes > usage_keep() && now_ms - pool->holes_ms >= due_ms / 2 &&
                !thread_did_round(due_ms);
  if (is_due) {
    pool->holes_ms = now_ms;
    store_relaxed(&pool->holes_class, 1);
  }
  lock_give(&pool->lock);
  return is_due;
}

void reclaim_tick_of_heap(const struct heap *heap) {
  struct pool *pool = heap_pool(heap);
  if (UNLIKELY(stashes_are_live()) && heap->slow_calls % STASH_LOOK_CALLS == 0 && stashes_are_due() && round_begin()) {
    age_stashes(STASH_STEP_RANGES);
    round_end();
  }
  if (LIKELY(load_relaxed(&pool->holes_class) == 0) &&
      (LIKELY(heap->slow_calls % HOLES_LOOK_CALLS != 0) || !holes_are_due(pool)))
    return;
  if (UNLIKELY(option_value(OPTION_PURGE) == PURGE_OFF)) { /* it changed during a walk */
    store_relaxed(&pool->holes_class, 0);
    return;
  }
  if (!round_begin())
    return;
  uint64_t round_delay_ms = reclaim_delay_ms();
  size_t given_back = 0;
  hole_search_begin(HOLES_SETTLED, round_delay_ms);
  batch.class = load_relaxed(&pool->holes_class);
  if (batch.class != 0) /* else another thread has come to the end */
    store_relaxed(&pool->holes_class,
                  purge_hole_batch(pool, &given_back) && batch.class < HAK_CLASS_COUNT ? batch.class : 0);
  soon_charge(given_back, round_delay_ms);
  round_end();
}

/* The round's lock is held. */
COLD static bool work_round(enum reclaim_depth depth, bool (*may_go_on)(void)) {
  uint64_t round_delay_ms = reclaim_delay_ms();
  store_relaxed(&reclaim.thread_ms, os_milliseconds());
  bool swept = heaps_sweep_all(false); /* if all threads of the program sleep, no other thread sweeps */
  bool over_target = false;
  size_t given_back = 0;
  if (stashes_are_due())
    age_stashes(SIZE_MAX);
  if (limits_matter() || depth == RECLAIM_PRESSED)
    over_target = look_at_limits(depth == RECLAIM_PRESSED);
  else
    usage_keep_cap(SIZE_MAX); /* the pressure is over */
  given_back += purge_holes(depth == RECLAIM_PRESSED || over_target ? HOLES_ALL : HOLES_SETTLED, round_delay_ms,
                            may_go_on);
  if (depth == RECLAIM_AGED) {
    given_back += purge_due(may_go_on, SIZE_MAX, round_delay_ms);
    soon_charge(given_back, round_delay_ms);
  } else {
    bool is_idle = depth == RECLAIM_IDLE;
    close_empty_slabs();
    trim_tables(TABLES_BYTES_MIN);
    given_back += purge_free(purge_by_engine(true, 0, any_time())) +
                  purge_free(purge_by_engine(false, 0, is_idle ? time_before(LEARNED_IDLE_MS) : any_time()));
    given_back += purge_free_while(may_go_on, SIZE_MAX, 0, is_idle ? time_before(delay_ms()) : any_time());
  }
  bool more = option_value(OPTION_PURGE) != PURGE_OFF && (swept || given_back > 0 || stashes_are_live() ||
                                                          usage_free() > (depth == RECLAIM_AGED ? usage_keep() : 0));
  HAK_PROBE(reclaim_round, (unsigned)depth, given_back, usage_free());
  return more;
}

COLD bool reclaim_round(enum reclaim_depth depth, bool (*may_go_on)(void)) {
  if (!slow_path_begin())
    return true;
  bool more = true;
  if (round_begin()) {
    more = work_round(depth, may_go_on);
    round_end();
  }
  slow_path_end();
  return more;
}

COLD size_t reclaim_trim(size_t keep_bytes) {
  counter_note(trims);
  heaps_sweep_all(os_may_call());
  lock_take(&reclaim.round);
  empty_stashes();
  close_empty_slabs();
  size_t given_back = purge_free(purge_by_engine(false, keep_bytes, any_time()));
  given_back += purge_free(purge_by_preset(less(keep_bytes, usage_learned()), any_time()));
  if (keep_bytes == 0)
    given_back += purge_holes(HOLES_ALL, 0, NULL) + trim_tables(0);
  lock_give(&reclaim.round);
  if (keep_bytes == 0 && option_value(OPTION_PURGE) != PURGE_OFF)
    extents_release(os_memory_limit() == SIZE_MAX ? RELEASED_BYTES_MIN : UNIT_BYTES);
  return given_back;
}

COLD size_t reclaim_pool(struct pool *pool) {
  size_t given_back = 0;
  if (option_value(OPTION_PURGE) == PURGE_OFF)
    return 0;
  lock_take(&reclaim.round);
  hole_search_begin(HOLES_ALL, 0);
  batch.class = 1;
  while (purge_hole_batch(pool, &given_back))
    ;
  lock_give(&reclaim.round);
  return given_back;
}

COLD void reclaim_all(void) {
  heaps_sweep_all(os_may_call());
  lock_take(&reclaim.round);
  stash_close();
  empty_stashes();
  close_empty_slabs();
  range_evict(purge_by_engine(false, 0, any_time()));
  units_purge(purge_by_engine(false, 0, any_time()));
  range_evict(
      purge_by_preset(0, any_time())); /* mappings too, even if `purge` is off, because they take address space */
  purge_free(purge_by_preset(0, any_time()));
  lock_give(&reclaim.round);
  extents_release(UNIT_BYTES);
}
