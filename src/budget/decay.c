#include "budget/decay.h"

#include "os/os.h"

struct decay big_cache_decay, extents_decay;

uint64_t decay_due_ms(const struct decay *decay) {
  uint64_t due_ms = 0;
  for (unsigned keep = 0; keep < KEEP_BY_PRESET; keep++) {
    uint64_t oldest_ms = load_relaxed(&decay->oldest_ms[keep]);
    if (oldest_ms != 0)
      due_ms = keep_earlier_ms(due_ms, keep_due_ms(keep, oldest_ms));
  }
  return due_ms;
}

unsigned decay_next(const struct decay *decay, struct purge purge) {
  if (decay_bytes(decay, purge.decider) <= purge.keep_bytes)
    return KEEP_LISTS;
  uint64_t now_ms = os_milliseconds();
  bool by_preset = purge.decider == BY_PRESET;
  for (unsigned keep = by_preset ? KEEP_BY_PRESET : 0, end = by_preset ? KEEP_LISTS : KEEP_BY_PRESET; keep < end;
       keep++) {
    uint64_t oldest_ms = load_relaxed(&decay->oldest_ms[keep]), due_ms = keep_due_ms(keep, oldest_ms);
    bool goes = !purge.only_due || (due_ms != 0 && due_ms <= now_ms);
    if (oldest_ms != 0 && oldest_ms < purge.before_ms && goes)
      return keep;
  }
  return KEEP_LISTS;
}
