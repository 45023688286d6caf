#include "large/big_cache.h"

#include "base/counters.h"
#include "base/list.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "os/lock.h"
#include "os/nodes.h"
#include "pages/extent.h"
#include "pages/page_map.h"

#define FIT_SLACK 8u  /* a range serves requests down to 7/8 of its length */
#define LOOKS_MAX 16u /* ranges of a class tried for a fit */

_Static_assert(sizeof(struct large) <= RECORD_BYTES, "a large range's record fits the leaf");

STACK_OF(class_list, large, class_next, class_previous)
QUEUE_OF(age_list, large, newer, older)

static struct {
  struct lock lock;
  struct large *classes[UNITS_CLASSES]; /* newest first: its pages are most likely in the caches */
  struct age_list ages[KEEP_LISTS];     /* oldest first */
} cache;

#define STEADY_REPEATS 2u

_Atomic uint16_t site_notes[SITE_NOTES];

bool site_is_steady_again(uint32_t site, unsigned class) {
  _Atomic uint16_t *note = &site_notes[site % SITE_NOTES];
  uint16_t last = load_relaxed(note);
  unsigned repeats = last & SITE_REPEATS_MAX;
  if (last >> 8 != class)
    repeats = 0;
  else if (repeats < SITE_REPEATS_MAX)
    repeats++;
  uint16_t next = (uint16_t)(class << 8 | repeats);
  if (next != last) /* a habit is only read: threads share the note */
    store_relaxed(note, next);
  return repeats >= STEADY_REPEATS;
}

static void cached_change(unsigned keep, size_t change) {
  const struct large *oldest = cache.ages[keep].first;
  decay_change(&big_cache_decay, keep, change, oldest ? oldest->freed_ms : 0);
}

void big_cache_put(struct large *range, unsigned keep, uint64_t freed_ms) {
  size_t bytes = large_range_bytes(range);
  HOLD_LOCK(&cache.lock);
  range->class = (uint8_t)units_class(range->units);
  range->keep = (uint8_t)(keep & 7);
  range->freed_ms = freed_ms;
  class_list_push(&cache.classes[range->class], range);
  age_list_insert(&cache.ages[keep], range, cache.ages[keep].last, LOOKS_MAX); /* what was stashed is older */
  cached_change(keep, bytes);
  usage_freed_add(bytes);
  counter_add_locked(cache_puts, 1);
}

static void range_unlink(struct large *range) {
  class_list_remove(&cache.classes[range->class], range);
  age_list_remove(&cache.ages[range->keep], range);
  cached_change(range->keep, -large_range_bytes(range));
}

/* The caller ends the range, and then the move of its bytes, which counted as freed when they came. */
static void range_detach_to_end(struct large *range) {
  size_t bytes = large_range_bytes(range);
  usage_move_begin(bytes);
  atomic_fetch_add_explicit(&usage_at[USAGE_PROMISED], bytes, memory_order_release);
  atomic_fetch_sub_explicit(&usage_at[USAGE_LARGE], bytes, memory_order_release);
  range_unlink(range);
}

static bool range_fits(const struct large *range, size_t bytes, size_t alignment) {
  size_t has = large_range_bytes(range);
  return has >= bytes && has - has / FIT_SLACK <= bytes && ((uintptr_t)range->base & (alignment - 1)) == 0;
}

/* On a machine with several nodes an extent of the thread's node is better than another one, and than a mapping. */
static struct large *find_range(size_t bytes, size_t alignment) {
  unsigned class = units_class(bytes / UNIT_BYTES), node = os_node();
  struct large *found = NULL;
  for (unsigned i = class; i <= class + 1 && i < UNITS_CLASSES; i++) {
    unsigned looks = 0;
    for (struct large *range = cache.classes[i]; range && looks < LOOKS_MAX; range = range->class_next, looks++)
      if (range_fits(range, bytes, alignment)) {
        if (LIKELY(!os_has_nodes()) || (!range->mapping && extent_node_of(range->base) == node))
          return range;
        found = found ? found : range;
      }
  }
  return found;
}

static struct large *range_hit(struct large *range, size_t bytes, uint32_t site) {
  bool of_site = range->site == site;
  range_unlink(range);
  usage_note_peak();
  counter_add_locked(cache_hits, 1);
  counter_add_locked(cache_hits_of_site, of_site);
  HAK_PROBE(cache_hit, range->base, bytes, of_site);
  return range;
}

static struct large *take_fit(size_t bytes, size_t alignment, uint32_t site) {
  HOLD_LOCK(&cache.lock);
  struct large *range = find_range(bytes, alignment);
  return range != NULL ? range_hit(range, bytes, site) : NULL;
}

/* Takes no lock where nothing is cached. A range that is put at this moment is missed. */
struct large *big_cache_take(size_t bytes, size_t alignment, uint32_t site) {
  struct large *range = decay_total(&big_cache_decay) > 0 ? take_fit(bytes, alignment, site) : NULL;
  if (range == NULL) {
    counter_note(cache_misses);
    HAK_PROBE(cache_miss, bytes, decay_total(&big_cache_decay));
  }
  return range;
}

COLD struct large *big_cache_take_mapping(size_t bytes, uint32_t site) {
  if (decay_total(&big_cache_decay) < MAPPING_BYTES_MIN)
    return NULL;
  HOLD_LOCK(&cache.lock);
  for (unsigned i = UNITS_CLASSES; i-- > units_class(MAPPING_BYTES_MIN / UNIT_BYTES);) {
    unsigned looks = 0;
    for (struct large *range = cache.classes[i]; range && looks < LOOKS_MAX; range = range->class_next, looks++)
      if (range->site == site)
        return range_hit(range, bytes, site);
  }
  return NULL;
}

struct large *big_cache_take_oldest(struct purge purge) {
  HOLD_LOCK(&cache.lock);
  unsigned keep = decay_next(&big_cache_decay, purge);
  struct large *range = keep < KEEP_LISTS ? cache.ages[keep].first : NULL;
  if (range)
    range_detach_to_end(range);
  return range;
}

struct large *big_cache_take_old(void) {
  if (decay_total(&big_cache_decay) == 0)
    return NULL;
  HOLD_LOCK(&cache.lock);
  struct large *range = NULL;
  for (unsigned i = 0; range == NULL && i < KEEP_LISTS; i++) {
    range = cache.ages[(KEEP_BY_PRESET + i) % KEEP_LISTS].first; /* the preset's first, KEEP_WARM last */
    for (unsigned looks = 0; range && range->mapping; looks++)
      range = looks < LOOKS_MAX ? range->newer : NULL;
  }
  if (range)
    range_detach_to_end(range);
  return range;
}

#ifdef HAK_DEBUG
bool big_cache_is_valid(void) {
  bool valid = true;
  size_t bytes = 0, listed_bytes = 0, learned_bytes = 0;
  HOLD_LOCK(&cache.lock);
  for (unsigned keep = 0; keep < KEEP_LISTS; keep++)
    for (struct large *range = cache.ages[keep].first; range; range = range->newer) {
      valid &= map_record(range->base) == range && range->class == units_class(range->units) &&
               map_entry(range->base) == ENTRY_LARGE_FREE && range->keep == keep;
      bytes += large_range_bytes(range);
      learned_bytes += keep == KEEP_BY_PRESET ? 0 : large_range_bytes(range);
    }
  valid &= learned_bytes == decay_bytes(&big_cache_decay, BY_ENGINE);
  for (unsigned class = 0; class < UNITS_CLASSES; class++)
    for (struct large *range = cache.classes[class]; range; range = range->class_next)
      listed_bytes += large_range_bytes(range);
  valid &= bytes == decay_total(&big_cache_decay) && listed_bytes == bytes;
  return valid;
}
#endif
