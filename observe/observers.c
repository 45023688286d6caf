/* The table through which the core calls the observers of this folder. */
#include "base/observers.h"

#include "adapt/policy_engine.h"
#include "adapt/policy_store.h"
#include "count/tally.h"
#include "guard/guard.h"
#include "live/large_sites.h"
#include "live/live.h"
#include "os/filter.h"
#include "profile/profile.h"
#include "profile/unwind.h"
#include "stats/stats.h"
#include "stats/summary.h"

/* Most programs ask for nothing. Then neither start nor end touches the observers' pages. */
static bool is_any_wanted(void) {
  static const unsigned char options[] = {OPTIONS_OF_OBSERVERS};
  bool is_any = false;
  for (size_t i = 0; i < sizeof options; i++)
    is_any |= option_value((enum option)options[i]) != 0;
  return is_any;
}

static void observers_start(void) {
  if (!is_any_wanted())
    return;
  tally_apply();
  policy_store_read();
  heap_profile_begin();
  guard_begin();
  live_begin();
  summary_begin();
}

/* The summary comes first, because writing the policy file concludes epochs and merges what other processes learned. */
static void observers_end(void) {
  if (!is_any_wanted() || !os_may_read_files()) /* a filter that the program installed may forbid writing */
    return;
  summary_write();
  heap_profile_end();
  policy_store_write();
}

static void options_changed(void) {
  summary_open();
  tally_apply();
}

static void observers_tick(void) {
  if (UNLIKELY(load_relaxed(&tally_broadcast_pending)))
    tally_broadcast();
  guard_tick();
  live_tick();
}

COLD static void in_child(void) {
  policy_store_in_child();
  guard_in_child();
  live_in_child();
}

static void libraries_changed(void) {
  policy_forget_callers();
  unwind_forget();
}

static bool policy_is_on(void) { return option_value(OPTION_POLICY) != POLICY_OFF; }
static bool live_is_on(void) { return option_value(OPTION_LIVE) == SWITCH_ON; }

static uint64_t large_taken(uint32_t hash, uintptr_t caller, size_t bytes) {
  if (live_is_on())
    large_site_changed(hash, caller, 1, 0, bytes);
  return policy_is_on() && caller != 0 ? policy_large_taken(caller, bytes) : 0;
}

static void large_changed(uint32_t hash, uint64_t site, size_t bytes, size_t wanted) {
  if (policy_is_on())
    policy_large_resized(site, bytes, wanted);
  if (live_is_on())
    large_site_changed(hash, 0, bytes == 0, bytes, wanted);
}

static unsigned large_ended(uint32_t hash, uint64_t site, size_t bytes, bool is_kept) {
  if (live_is_on())
    large_site_changed(hash, 0, -1, bytes, 0);
  return policy_is_on() ? policy_large_freed(site, bytes, is_kept) : KEEP_BY_PRESET;
}

const struct observers observers = {
    .start = observers_start,
    .end = observers_end,
    .options_changed = options_changed,
    .tick = observers_tick,
    .in_child = in_child,
    .libraries_changed = libraries_changed,
#ifdef HAK_DEBUG
    .parts_hold = stats_parts_hold,
#endif
    .heap_follow = tally_follow,
    .small_sample = guard_small_sample,
    .shared_give = profile_shared_give,
    .checked_sample = guard_checked_sample,
    .guarded_free = guard_free,
    .guarded_size = guard_size,
    .clock_ms = guard_clock_ms,
    .clock = guard_clock,
    .large_made = profile_large_made,
    .large_freed = profile_forget,
    .large_resizing = profile_large_resizing,
    .large_resized = profile_large_resized,
    .large_taken = large_taken,
    .large_changed = large_changed,
    .large_ended = large_ended,
    .slab_opened = policy_small_taken,
    .slab_closed = policy_small_freed,
};
