#include "budget/decay.h"

#include "budget/usage.h"
#include "os/os.h"

void decay_learned(struct decay *decay, size_t change) {
  usage_learned_add(change);
  uint64_t due_ms = 0;
  for (unsigned i = 0; i < KEEP_BY_PRESET; i++) {
    uint64_t list_ms = load_relaxed(&decay->oldest_ms[i]);
    due_ms = keep_earlier_ms(due_ms, list_ms != 0 ? keep_due_ms(i, list_ms) : 0);
  }
  store_relaxed(&decay->due_ms, due_ms);
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
