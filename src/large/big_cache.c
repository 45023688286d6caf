#include "large/big_cache.h"

#include "base/counters.h"
#include "base/list.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/metadata.h"
#include "pages/page_map.h"

#define BUCKETS_MIN 256u
#define BUCKETS_MAX 65536u
#define BUCKETS_GROWTH 4u
#define FIT_SLACK 8u  /* a range serves requests down to 7/8 of its length */
#define LOOKS_MAX 16u /* ranges of a class tried for a fit */

_Static_assert(sizeof(struct large) <= RECORD_BYTES, "a large range's record fits the leaf");

STACK_OF(class_list, large, class_next, class_previous)
QUEUE_OF(age_list, large, newer, older)

static struct {
  struct lock lock;
  uint32_t *buckets;     /* unit numbers; NULL until the first range */
  uint32_t bucket_count; /* power of two */
  uint32_t count;
  struct large *classes[LARGE_CLASSES]; /* newest first: its pages are most likely in the caches */
  struct age_list ages[KEEP_LISTS];     /* oldest first */
} cache;

struct decay big_cache_decay;

unsigned large_class_of(size_t units) {
  unsigned class = units_class(units);
  return class < LARGE_CLASSES ? class : LARGE_CLASSES - 1;
}

#define SITE_NOTES 1024u /* call sites whose hashes collide share a note */
#define STEADY_REPEATS 2u

/* class << 8 | repeats, by site */
static _Atomic uint16_t site_notes[SITE_NOTES];

bool site_is_steady(uint32_t site, unsigned class) {
  _Atomic uint16_t *note = &site_notes[site % SITE_NOTES];
  uint16_t last = atomic_load_explicit(note, memory_order_relaxed);
  unsigned repeats = last & 0xff;
  if (last >> 8 != class)
    repeats = 0;
  else if (repeats < 0xff)
    repeats++;
  atomic_store_explicit(note, (uint16_t)(class << 8 | repeats), memory_order_relaxed);
  return repeats >= STEADY_REPEATS;
}

/* FNV-1a (Fowler, Noll, Vo), one byte. */
static uint32_t hash_on(uint32_t hash, unsigned byte) { return (hash ^ byte) * 16777619u; }

uint32_t site_hash(uintptr_t site) {
  uint32_t hash = 2166136261u;
  for (unsigned i = 0; i < sizeof site; i++)
    hash = hash_on(hash, site >> 8 * i & 0xff);
  return hash;
}

static uint32_t *bucket_of(unsigned class, uint32_t site) {
  return &cache.buckets[hash_on(site, class) & (cache.bucket_count - 1)];
}

/* The number of a range's first unit. */
static uint32_t unit_of(const struct large *range) { return (uint32_t)((uintptr_t)range->base >> HAK_UNIT_SHIFT); }
static struct large *range_of(uint32_t unit) {
  return unit ? map_record((void *)((uintptr_t)unit << HAK_UNIT_SHIFT)) : NULL;
}
_Static_assert(HAK_ADDRESS_BITS - HAK_UNIT_SHIFT <= 32, "a unit number fits a word");

static void chain_add(struct large *range) {
  uint32_t *bucket = bucket_of(range->class, range->site);
  range->key_previous = 0;
  range->key_next = *bucket;
  if (*bucket)
    range_of(*bucket)->key_previous = unit_of(range);
  *bucket = unit_of(range);
}

static void chain_remove(struct large *range) {
  if (range->key_previous)
    range_of(range->key_previous)->key_next = range->key_next;
  else
    *bucket_of(range->class, range->site) = range->key_next;
  if (range->key_next)
    range_of(range->key_next)->key_previous = range->key_previous;
}

/* Makes the first table, or a longer one. If memory is out the chains get longer instead. */
static void table_grow(void) {
  uint32_t count = cache.buckets ? cache.bucket_count * BUCKETS_GROWTH : BUCKETS_MIN;
  uint32_t *buckets = metadata_take_forever(count * sizeof *buckets);
  if (buckets == NULL)
    return;
  cache.buckets = buckets;
  cache.bucket_count = count;
  for (unsigned keep = 0; keep < KEEP_LISTS; keep++)
    for (struct large *range = cache.ages[keep].first; range; range = range->newer)
      chain_add(range);
}

/* Returns the full time at which a range was freed, from its low bits. */
static uint64_t freed_ms(const struct large *range) {
  uint64_t now_ms = os_milliseconds();
  return now_ms - (uint32_t)((uint32_t)now_ms - range->freed_ms);
}

static void note_change(unsigned keep, size_t more) {
  const struct large *oldest = cache.ages[keep].first;
  decay_change(&big_cache_decay, keep, more, oldest ? freed_ms(oldest) : 0);
}

static void range_attach(struct large *range) {
  chain_add(range);
  class_list_push(&cache.classes[range->class], range);
  age_list_insert(&cache.ages[range->keep], range, cache.ages[range->keep].last);
  cache.count++;
  usage_move(USAGE_LARGE, USAGE_FREE, large_range_bytes(range));
  note_change(range->keep, large_range_bytes(range));
  usage_move_end(large_range_bytes(range));
  counter_add_locked(cache_puts, 1);
}

static void range_detach(struct large *range, enum usage to) {
  usage_move_begin(large_range_bytes(range));
  chain_remove(range);
  class_list_remove(&cache.classes[range->class], range);
  age_list_remove(&cache.ages[range->keep], range);
  cache.count--;
  usage_move(USAGE_FREE, to, large_range_bytes(range));
  note_change(range->keep, -large_range_bytes(range));
}

bool big_cache_put(struct large *range, unsigned keep) {
  lock_take(&cache.lock);
  if (cache.count >= cache.bucket_count && cache.bucket_count < BUCKETS_MAX)
    table_grow();
  bool room = cache.buckets != NULL;
  if (room) {
    range->class = (uint8_t)large_class_of(range->units);
    range->keep = (uint8_t)keep;
    range->freed_ms = (uint32_t)os_milliseconds();
    range_attach(range);
  }
  lock_give(&cache.lock);
  return room;
}

static bool range_fits(const struct large *range, size_t bytes, size_t alignment) {
  size_t has = large_range_bytes(range);
  return has >= bytes && has - has / FIT_SLACK <= bytes && ((uintptr_t)range->base & (alignment - 1)) == 0;
}

static struct large *find_range(size_t bytes, size_t alignment, uint32_t site, bool *of_site) {
  unsigned class = large_class_of(bytes / UNIT_BYTES);
  *of_site = true;
  unsigned looks = 0;
  for (struct large *range = range_of(*bucket_of(class, site)); range && looks < LOOKS_MAX;
       range = range_of(range->key_next), looks++)
    if (range->class == class && range->site == site && range_fits(range, bytes, alignment))
      return range;
  *of_site = false;
  for (unsigned i = class; i <= class + 1 && i < LARGE_CLASSES; i++) {
    looks = 0;
    for (struct large *range = cache.classes[i]; range && looks < LOOKS_MAX; range = range->class_next, looks++)
      if (range_fits(range, bytes, alignment))
        return range;
  }
  return NULL;
}

struct large *big_cache_take(size_t bytes, size_t alignment, uint32_t site) {
  struct large *range = NULL;
  lock_take(&cache.lock);
  if (cache.count > 0) {
    bool of_site;
    range = find_range(bytes, alignment, site, &of_site);
    if (range) {
      range_detach(range, USAGE_LARGE);
      counter_add_locked(cache_hits, 1);
      counter_add_locked(cache_hits_of_site, of_site);
      HAK_PROBE(cache_hit, range->base, bytes, of_site);
    }
  }
  if (range == NULL) {
    counter_add_locked(cache_misses, 1);
    HAK_PROBE(cache_miss, bytes, cache.count);
  }
  lock_give(&cache.lock);
  return range;
}

struct large *big_cache_take_oldest(struct purge purge) {
  lock_take(&cache.lock);
  unsigned keep = decay_next(&big_cache_decay, purge);
  struct large *range = keep < KEEP_LISTS ? cache.ages[keep].first : NULL;
  if (range)
    range_detach(range, USAGE_PROMISED);
  lock_give(&cache.lock);
  return range;
}

/* A long mapping stays one: only a mapping can take its place. */
static bool serves_as_extent(const struct large *range) {
  return !range->mapping || (!range->huge && large_range_bytes(range) < MAPPING_BYTES_MIN);
}

struct large *big_cache_take_old(void) {
  if (decay_total(&big_cache_decay) == 0)
    return NULL;
  lock_take(&cache.lock);
  struct large *range = NULL;
  for (unsigned i = 0; range == NULL && i < KEEP_LISTS; i++) {
    range = cache.ages[(KEEP_BY_PRESET + i) % KEEP_LISTS].first; /* the preset's first, KEEP_WARM last */
    for (unsigned looks = 0; range && !serves_as_extent(range); looks++)
      range = looks < LOOKS_MAX ? range->newer : NULL;
  }
  if (range)
    range_detach(range, USAGE_PROMISED);
  lock_give(&cache.lock);
  return range;
}

#ifdef HAK_DEBUG
static bool in_chain(const struct large *range) {
  const struct large *at = range_of(*bucket_of(range->class, range->site));
  while (at && at != range)
    at = range_of(at->key_next);
  return at != NULL;
}

bool big_cache_is_valid(void) {
  bool valid = true;
  size_t bytes = 0, listed_bytes = 0, learned_bytes = 0;
  uint32_t count = 0;
  lock_take(&cache.lock);
  for (unsigned keep = 0; keep < KEEP_LISTS; keep++)
    for (struct large *range = cache.ages[keep].first; range; range = range->newer) {
      valid &= in_chain(range) && map_record(range->base) == range && range->class == large_class_of(range->units) &&
               map_entry(range->base) == ENTRY_LARGE_FREE && range->keep == keep;
      bytes += large_range_bytes(range);
      learned_bytes += keep == KEEP_BY_PRESET ? 0 : large_range_bytes(range);
      count++;
    }
  valid &= learned_bytes == decay_bytes(&big_cache_decay, BY_ENGINE);
  for (unsigned class = 0; class < LARGE_CLASSES; class++)
    for (struct large *range = cache.classes[class]; range; range = range->class_next)
      listed_bytes += large_range_bytes(range);
  valid &= bytes == decay_total(&big_cache_decay) && listed_bytes == bytes && count == cache.count;
  lock_give(&cache.lock);
  return valid;
}
#endif
