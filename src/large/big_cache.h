/* big_cache.h: the BigCache: freed ranges of large objects, ready for the next request.
 *
 * It is for call sites that ask for one size class again and again, and for what was long in a stash. A cached range
 * serves only its class; a free extent can be cut and joined, which serves call sites with changing sizes better. The
 * range of a class that was freed last comes first, whichever site freed it. The caller bounds the cache in bytes and
 * in age. The cache takes no memory; a range's record describes it.
 *   B1  a cached range is in the list of its class, and in one of the lists by age
 *   B2  big_cache_decay has the sum of their sizes; usage_free counts the bytes
 * big_cache_is_valid checks both. All functions take the cache's lock.
 */
#pragma once

#include "budget/decay.h"
#include "large/record.h"

/* Returns the hash of a call site, as a range stores it: the upper half of the product depends on all bits of the
 * address (Fibonacci hashing). */
static inline uint32_t site_hash(uintptr_t site) { return (uint32_t)(site * MIX_STEP >> 32); }

/* Notes that a site asks for a class. Returns true if it did so several times in a row. Takes no lock: a lost note
 * costs at most one hit. */
#define SITE_NOTES 1024u /* call sites whose hashes collide share a note */
#define SITE_REPEATS_MAX 0xffu
extern _Atomic uint16_t site_notes[SITE_NOTES]; /* class << 8 | repeats, by site */
bool site_is_steady_again(uint32_t site, unsigned class);
static inline uint16_t site_note_steady(unsigned class) { return (uint16_t)(class << 8 | SITE_REPEATS_MAX); }
static inline bool site_is_steady(uint32_t site, unsigned class) {
  bool is_habit = load_relaxed(&site_notes[site % SITE_NOTES]) == site_note_steady(class);
  return LIKELY(is_habit) || site_is_steady_again(site, class);
}

/* Puts the range of an object that was freed at freed_ms into the cache. keep: the strategy that decides how long it
 * stays (policy/keep_policy.h). */
void big_cache_put(struct large *range, unsigned keep, uint64_t freed_ms);

/* Takes a range of at least `bytes`, at most about an eighth longer, at a multiple of `alignment`, for a new object:
 * its bytes are in USAGE_LARGE. site: only counted. NULL if there is none. */
struct large *big_cache_take(size_t bytes, size_t alignment, uint32_t site);

/* Takes a long mapping of this site, of whatever length, for a new object. Call after big_cache_take found none: the
 * site has another length than it had. NULL if there is none. */
struct large *big_cache_take_mapping(size_t bytes, uint32_t site);

/* The following functions take ranges out to end them. The bytes are in USAGE_PROMISED: the caller must move them on,
 * and call usage_move_end (budget/usage.h). */

/* Takes the oldest range that goes. NULL if all may stay. */
struct large *big_cache_take_oldest(struct purge purge);

/* Takes one of the oldest ranges that is an extent. Those that the preset decides about come first. NULL if there is
 * none. */
struct large *big_cache_take_old(void);

#ifdef HAK_DEBUG
bool big_cache_is_valid(void);
#endif
