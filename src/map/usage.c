#include "map/usage.h"

#include "base/options.h"
#include "base/probe.h"
#include "os/cgroup.h"
#include "os/lock.h"
#include "os/os.h"
#include "policy/limit_policy.h"
#include "policy/purge_policy.h"

static struct {
  _Atomic size_t taken, taken_large, taken_peak;
  _Atomic size_t promised; /* by usage_reserve or in transit, and not yet settled */
  /* Of sizes that are SIZE_MAX at first: zero is a valid start. */
  _Atomic size_t limit_complement, high_complement, keep_cap_complement;
  _Atomic bool limit_of_resident;
  _Atomic size_t granted, granted_before; /* in this window and the one before it */
  _Atomic uint64_t granted_since_ms;
  _Atomic bool asked_group; /* the cgroup was read, or need not be */
  _Atomic size_t keep_for_now;
  _Atomic uint64_t purges, purged_bytes, purges_refused;
  struct lock demand_lock; /* only tried: who finds it taken leaves the note to the holder's next */
  struct demand demand, demand_large;
  _Alignas(CACHE_LINE) _Atomic size_t free;
  _Atomic size_t learned;
  _Alignas(CACHE_LINE) _Atomic size_t moves_begun, moves_ended;
} usage;

#define GROUP_BYTES_MIN ((size_t)16 << 20)
#define GRANTED_MS 100u /* from getting memory to touching it: so long, or twice as long */

static struct {
  struct lock lock; /* a leaf; held over reading the group's files; only tried, but for a fork */
  _Atomic bool stale;
  struct os_memory_limits group;
  bool group_read;
} limits;

static size_t read(_Atomic size_t *figure) { return atomic_load_explicit(figure, memory_order_relaxed); }
static void write(_Atomic size_t *figure, size_t value) { atomic_store_explicit(figure, value, memory_order_relaxed); }
static size_t add(_Atomic size_t *figure, size_t bytes) {
  return atomic_fetch_add_explicit(figure, bytes, memory_order_relaxed) + bytes;
}

size_t usage_taken(void) { return read(&usage.taken); }
size_t usage_taken_large(void) { return read(&usage.taken_large); }
size_t usage_taken_peak(void) { return read(&usage.taken_peak); }
size_t usage_free(void) { return read(&usage.free); }
size_t usage_learned(void) { return read(&usage.learned); }
void usage_learned_add(size_t change) { add(&usage.learned, change); }

static size_t keep_bytes(void) { return (size_t)option_value(OPTION_KEEP_MB) << 20; }

void usage_lock_for_fork(void) { lock_take(&limits.lock); }

void usage_unlock_after_fork(bool child) {
  if (child) {
    lock_reset(&limits.lock);
    usage_keep_cap(SIZE_MAX);       /* of a round the child does not finish */
    write(&usage.promised, 0);      /* to threads that the child does not have */
    lock_reset(&usage.demand_lock); /* another thread may have been noting demand: nobody waits for that */
  } else {
    lock_give(&limits.lock);
  }
  if (atomic_load_explicit(&limits.stale, memory_order_seq_cst))
    usage_limits_apply();
}

static void note_demand(void) {
  if (!lock_try(&usage.demand_lock))
    return;
  uint64_t now_ms = os_milliseconds();
  size_t window_ms = max_size((size_t)option_value(OPTION_PURGE_DELAY_MS), 1);
  size_t taken = usage_taken();
  demand_note(&usage.demand, taken, now_ms, window_ms);
  demand_note(&usage.demand_large, read(&usage.taken_large), now_ms, window_ms);
  write(&usage.keep_for_now, purge_keep_for_now(&usage.demand, &usage.demand_large, keep_bytes(), taken));
  lock_give(&usage.demand_lock);
}

void usage_take(enum usage kind, size_t bytes) {
  if (kind == USAGE_LARGE)
    add(&usage.taken_large, bytes);
  size_t now = add(&usage.taken, bytes);
  size_t peak = read(&usage.taken_peak);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&usage.taken_peak, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed))
    ;
  note_demand();
}

void usage_give(enum usage kind, size_t bytes) {
  if (kind == USAGE_LARGE)
    add(&usage.taken_large, -bytes);
  add(&usage.taken, -bytes);
  note_demand();
}

void usage_free_add(size_t bytes) { add(&usage.free, bytes); }
void usage_free_subtract(size_t bytes) { add(&usage.free, -bytes); }
void usage_free_transit(size_t bytes) {
  add(&usage.promised, bytes);
  add(&usage.free, -bytes);
}

/* The orders make one who sees a place changed see the move begun, and one who sees it ended see both places. */
void usage_move_begin(size_t bytes) { atomic_fetch_add_explicit(&usage.moves_begun, bytes, memory_order_acq_rel); }
void usage_move_end(size_t bytes) { atomic_fetch_add_explicit(&usage.moves_ended, bytes, memory_order_acq_rel); }
size_t usage_moves_begun(void) { return atomic_load_explicit(&usage.moves_begun, memory_order_acquire); }
size_t usage_moves_ended(void) { return atomic_load_explicit(&usage.moves_ended, memory_order_acquire); }

size_t usage_limit(void) { return ~read(&usage.limit_complement); }
size_t usage_high(void) { return ~read(&usage.high_complement); }

/* limits.lock is held. */
static void apply(void) {
  size_t option_bytes = (size_t)option_value(OPTION_LIMIT_MB) << 20;
  size_t own = limit_hard(option_bytes, SIZE_MAX, 0);
  size_t hard = limits.group_read ? limit_hard(option_bytes, limits.group.max_bytes, limits.group.swap_bytes) : own;
  size_t high = limits.group_read ? limits.group.high_bytes : SIZE_MAX;
  atomic_store_explicit(&usage.limit_of_resident, hard < own, memory_order_relaxed);
  usage_keep_cap(SIZE_MAX); /* the next look at the limits lowers it again */
  write(&usage.limit_complement, ~hard);
  write(&usage.high_complement, ~min_size(hard, high));
}

/* Nobody waits for the lock: signal handlers and fork's handlers come here. Who finds it taken leaves the
 * work to the holder. */
void usage_limits_apply(void) {
  atomic_store_explicit(&limits.stale, true, memory_order_seq_cst);
  while (atomic_load_explicit(&limits.stale, memory_order_seq_cst) && lock_try(&limits.lock)) {
    atomic_store_explicit(&limits.stale, false, memory_order_seq_cst);
    apply();
    lock_give(&limits.lock);
  }
}

COLD static void read_group(void) {
  if (!lock_try(&limits.lock))
    return; /* somebody reads it, or a fork holds it: the next request asks again */
  if (!limits.group_read && option_value(OPTION_CGROUP) == CGROUP_ON) {
    os_memory_limits_read(&limits.group);
    limits.group_read = true;
  }
  atomic_store_explicit(&usage.asked_group, true, memory_order_relaxed);
  lock_give(&limits.lock);
  usage_limits_apply();
}

/* What was given out of late may not be touched yet: it counts beside what is resident. */
static size_t granted_of_late(size_t bytes) {
  uint64_t now_ms = os_milliseconds();
  uint64_t since_ms = atomic_load_explicit(&usage.granted_since_ms, memory_order_relaxed);
  if (now_ms - since_ms > GRANTED_MS &&
      atomic_compare_exchange_strong_explicit(&usage.granted_since_ms, &since_ms, now_ms, memory_order_relaxed,
                                              memory_order_relaxed)) {
    write(&usage.granted_before, read(&usage.granted));
    write(&usage.granted, 0);
  }
  return add(&usage.granted, bytes) + read(&usage.granted_before);
}

COLD static bool fits_resident(size_t limit, size_t bytes) {
  size_t granted = granted_of_late(bytes);
  if (granted >= bytes && limit_admits(limit, os_resident_of_process(), granted))
    return true;
  add(&usage.granted, -bytes);
  return false;
}

/* Promises count from the moment they are made, so that of several threads that ask no two get the same. */
static bool promise(size_t limit, size_t bytes) {
  size_t promised = add(&usage.promised, bytes);
  if (promised >= bytes && limit_admits(limit, usage_held(), promised))
    return true;
  add(&usage.promised, -bytes);
  return false;
}

void usage_settle(size_t bytes) { add(&usage.promised, -bytes); }

bool usage_reserve(size_t bytes) {
  if (UNLIKELY(!atomic_load_explicit(&usage.asked_group, memory_order_relaxed)) &&
      !limit_admits(GROUP_BYTES_MIN, usage_held(), bytes))
    read_group();
  size_t limit = usage_limit();
  bool of_resident = atomic_load_explicit(&usage.limit_of_resident, memory_order_relaxed);
  if (LIKELY(promise(limit, bytes))) {
    if (UNLIKELY(of_resident))
      granted_of_late(bytes);
    return true;
  }
  if (!of_resident || !fits_resident(limit, bytes)) {
    HAK_PROBE(limit_reached, bytes, usage_held(), limit);
    return false;
  }
  add(&usage.promised, bytes);
  return true;
}

void usage_keep_cap(size_t bytes) { write(&usage.keep_cap_complement, ~bytes); }
static size_t cap(void) { return ~read(&usage.keep_cap_complement); }
size_t usage_keep(void) { return min_size(cap(), purge_keep(keep_bytes(), usage_taken())); }
size_t usage_keep_for_now(void) { return min_size(cap(), read(&usage.keep_for_now)); }
size_t usage_keep_learned(void) {
  return min_size(cap(), max_size(read(&usage.keep_for_now), less(usage_taken_peak(), usage_taken())));
}

static enum purge_result purge(void *address, size_t size, long mode) {
  if (mode == PURGE_OFF)
    return PURGE_REFUSED;
  if (mode == PURGE_FREE && os_purge_lazily(address, size))
    return PURGE_GONE_LAZILY;
  return os_purge(address, size) ? PURGE_GONE : PURGE_REFUSED;
}

enum purge_result pages_purge(void *address, size_t size) {
  enum purge_result result = purge(address, size, option_value(OPTION_PURGE));
  if (result == PURGE_REFUSED) {
    atomic_fetch_add_explicit(&usage.purges_refused, 1, memory_order_relaxed);
    return result;
  }
  atomic_fetch_add_explicit(&usage.purges, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&usage.purged_bytes, size, memory_order_relaxed);
  HAK_PROBE(purge, address, size, result == PURGE_GONE_LAZILY);
  return result;
}
uint64_t pages_purges(void) { return atomic_load_explicit(&usage.purges, memory_order_relaxed); }
uint64_t pages_purges_refused(void) { return atomic_load_explicit(&usage.purges_refused, memory_order_relaxed); }
uint64_t pages_purged_bytes(void) { return atomic_load_explicit(&usage.purged_bytes, memory_order_relaxed); }
