/* decay.h: the free resident bytes of one owner (cached large ranges, or extents), by what decides how long they
 * stay: the preset or the policy engine. Both are purged by one rule.
 *
 * An owner has a list by age for each strategy (policy/keep_policy.h). It calls decay_change, under its lock, after
 * each change of a list. The readers take no lock.
 */
#pragma once

#include "budget/usage.h"
#include "policy/keep_policy.h"

enum decider { BY_PRESET, BY_ENGINE };

struct decay {
  _Alignas(CACHE_LINE) _Atomic size_t bytes, learned; /* all; of these, what the engine decides about */
  _Atomic uint64_t oldest_ms[KEEP_LISTS];             /* when the oldest range of the list was freed, 0: it is empty */
};

/* What the BigCache holds (large/big_cache.h), and resident free extents (pages/extent.h); usage.c reads both. */
extern struct decay big_cache_decay, extents_decay;

static inline size_t decay_total(const struct decay *decay) { return load_relaxed(&decay->bytes); }
static inline size_t decay_bytes(const struct decay *decay, enum decider decider) {
  size_t learned = load_relaxed(&decay->learned);
  return decider == BY_ENGINE ? learned : sub_sat(decay_total(decay), learned);
}
/* Returns when the oldest range that the preset decides about was freed; 0: there is none. */
static inline uint64_t decay_oldest_ms(const struct decay *decay) {
  return load_relaxed(&decay->oldest_ms[KEEP_BY_PRESET]);
}
/* Returns when the first range that the engine decides about is to go; 0: never. */
uint64_t decay_due_ms(const struct decay *decay);

/* change: of the bytes in the list; oldest_ms: of the list as it is now. Under the owner's lock: plain stores are
 * enough. */
static inline void decay_change(struct decay *decay, unsigned keep, size_t change, uint64_t oldest_ms) {
  atomic_store_explicit(&decay->bytes, decay_total(decay) + change, memory_order_release);
  store_relaxed(&decay->oldest_ms[keep], oldest_ms);
  if (UNLIKELY(keep != KEEP_BY_PRESET))
    add_as_owner(&decay->learned, change);
}

/* What goes back to the system: ranges that the decider decides about, until at most keep_bytes of them are left or the
 * rest was in use at or after before_ms. only_due: of the engine's, only those whose time is over. An owner stops when
 * it has given back most_bytes, up to 2 MiB more, or a long cached range more. */
struct purge {
  enum decider decider;
  bool only_due;
  size_t keep_bytes;
  uint64_t before_ms;
  size_t most_bytes;
};
static inline struct purge purge_by_preset(size_t keep_bytes, uint64_t before_ms) {
  return (struct purge){.decider = BY_PRESET, .keep_bytes = keep_bytes, .before_ms = before_ms, .most_bytes = SIZE_MAX};
}
static inline struct purge purge_by_engine(bool only_due, size_t keep_bytes, uint64_t before_ms) {
  struct purge purge = purge_by_preset(keep_bytes, before_ms);
  purge.decider = BY_ENGINE;
  purge.only_due = only_due;
  return purge;
}
static inline struct purge purge_at_most(size_t most_bytes, struct purge purge) {
  purge.most_bytes = most_bytes;
  return purge;
}

/* Returns the list whose oldest range goes next; KEEP_LISTS: none goes. The owner's lock is held. */
unsigned decay_next(const struct decay *decay, struct purge purge);
