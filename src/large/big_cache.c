#include "large/big_cache.h"

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

static struct {
  struct lock lock;
  uint32_t *buckets;     /* unit numbers; NULL until the first range */
  uint32_t bucket_count; /* power of two */
  uint32_t count;
  struct large *classes[LARGE_CLASSES]; /* newest first: its pages are most likely in the caches */
  struct age_list {
    struct large *oldest, *newest;
  } ages[KEEP_LISTS];
  struct big_cache_counters counters;
  /* Written under the lock, read without: */
  _Atomic size_t bytes, learned_bytes;
  _Atomic uint64_t oldest_ms, due_ms;
} cache;

size_t big_cache_bytes(void) { return atomic_load_explicit(&cache.bytes, memory_order_relaxed); }
size_t big_cache_learned_bytes(void) { return atomic_load_explicit(&cache.learned_bytes, memory_order_relaxed); }
uint64_t big_cache_due_ms(void) { return atomic_load_explicit(&cache.due_ms, memory_order_relaxed); }
uint64_t big_cache_oldest_ms(void) { return atomic_load_explicit(&cache.oldest_ms, memory_order_relaxed); }

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
    for (struct large *range = cache.ages[keep].oldest; range; range = range->newer)
      chain_add(range);
}

/* Returns the full time at which a range was freed, from its low bits. */
static uint64_t freed_ms(const struct large *range, uint64_t now_ms) {
  return now_ms - (uint32_t)((uint32_t)now_ms - range->freed_ms);
}

/* Returns when the oldest range of a list is to go back; 0: never, or there is none. */
static uint64_t list_due_ms(unsigned keep, uint64_t now_ms) {
  const struct large *oldest = cache.ages[keep].oldest;
  return oldest ? keep_due_ms(keep, freed_ms(oldest, now_ms)) : 0;
}

static void note_change(unsigned keep, size_t more) {
  uint64_t now_ms = os_milliseconds(), due_ms = 0;
  atomic_store_explicit(&cache.bytes, big_cache_bytes() + more, memory_order_relaxed);
  if (keep == KEEP_BY_PRESET) {
    const struct large *oldest = cache.ages[keep].oldest;
    atomic_store_explicit(&cache.oldest_ms, oldest ? freed_ms(oldest, now_ms) : 0, memory_order_relaxed);
    return;
  }
  atomic_store_explicit(&cache.learned_bytes, big_cache_learned_bytes() + more, memory_order_relaxed);
  usage_learned_add(more);
  for (unsigned i = 0; i < KEEP_BY_PRESET; i++)
    due_ms = keep_earlier_ms(due_ms, list_due_ms(i, now_ms));
  atomic_store_explicit(&cache.due_ms, due_ms, memory_order_relaxed);
}

static void range_attach(struct large *range) {
  chain_add(range);
  struct large **first = &cache.classes[range->class];
  range->class_previous = NULL;
  range->class_next = *first;
  if (*first)
    (*first)->class_previous = range;
  *first = range;
  struct age_list *ages = &cache.ages[range->keep];
  range->newer = NULL;
  range->older = ages->newest;
  *(ages->newest ? &ages->newest->newer : &ages->oldest) = range;
  ages->newest = range;
  cache.count++;
  usage_free_add(large_range_bytes(range));
  note_change(range->keep, large_range_bytes(range));
  usage_move_end(large_range_bytes(range));
  cache.counters.puts++;
}

static void range_detach(struct large *range) {
  usage_move_begin(large_range_bytes(range));
  chain_remove(range);
  *(range->class_previous ? &range->class_previous->class_next : &cache.classes[range->class]) = range->class_next;
  if (range->class_next)
    range->class_next->class_previous = range->class_previous;
  struct age_list *ages = &cache.ages[range->keep];
  *(range->newer ? &range->newer->older : &ages->newest) = range->older;
  *(range->older ? &range->older->newer : &ages->oldest) = range->newer;
  cache.count--;
  usage_free_transit(large_range_bytes(range));
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
      range_detach(range);
      cache.counters.hits++;
      cache.counters.hits_of_site += of_site;
      HAK_PROBE(cache_hit, range->base, bytes, of_site);
    }
  }
  if (range == NULL) {
    cache.counters.misses++;
    HAK_PROBE(cache_miss, bytes, cache.count);
  }
  lock_give(&cache.lock);
  return range;
}

static size_t profile_bytes(void) { return less(big_cache_bytes(), big_cache_learned_bytes()); }

struct large *big_cache_take_oldest(size_t keep_bytes, uint64_t before_ms) {
  if (profile_bytes() <= keep_bytes || big_cache_oldest_ms() >= before_ms)
    return NULL;
  lock_take(&cache.lock);
  struct large *range = cache.ages[KEEP_BY_PRESET].oldest;
  if (range && (profile_bytes() <= keep_bytes || freed_ms(range, os_milliseconds()) >= before_ms))
    range = NULL;
  if (range)
    range_detach(range);
  lock_give(&cache.lock);
  return range;
}

struct large *big_cache_take_learned(bool only_due, size_t keep_bytes, uint64_t before_ms) {
  if (big_cache_learned_bytes() <= keep_bytes)
    return NULL;
  struct large *range = NULL;
  lock_take(&cache.lock);
  uint64_t now_ms = os_milliseconds();
  for (unsigned keep = 0; range == NULL && keep < KEEP_BY_PRESET; keep++) {
    struct large *oldest = cache.ages[keep].oldest;
    uint64_t due_ms = list_due_ms(keep, now_ms);
    bool goes = !only_due || (due_ms != 0 && due_ms <= now_ms);
    if (oldest && goes && freed_ms(oldest, now_ms) < before_ms)
      range = oldest;
  }
  if (range)
    range_detach(range);
  lock_give(&cache.lock);
  return range;
}

/* A long mapping stays one: only a mapping can take its place. */
static bool serves_as_extent(const struct large *range) {
  return !range->mapping || (!range->huge && large_range_bytes(range) < MAPPING_BYTES_MIN);
}

struct large *big_cache_take_old(void) {
  if (big_cache_bytes() == 0)
    return NULL;
  lock_take(&cache.lock);
  struct large *range = NULL;
  for (unsigned i = 0; range == NULL && i < KEEP_LISTS; i++) {
    range = cache.ages[(KEEP_BY_PRESET + i) % KEEP_LISTS].oldest; /* the preset's first, KEEP_WARM last */
    for (unsigned looks = 0; range && !serves_as_extent(range); looks++)
      range = looks < LOOKS_MAX ? range->newer : NULL;
  }
  if (range)
    range_detach(range);
  lock_give(&cache.lock);
  return range;
}

void big_cache_counters(struct big_cache_counters *out) {
  lock_take(&cache.lock);
  *out = cache.counters;
  lock_give(&cache.lock);
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
    for (struct large *range = cache.ages[keep].oldest; range; range = range->newer) {
      valid &= in_chain(range) && map_record(range->base) == range && range->class == large_class_of(range->units) &&
               map_entry(range->base) == ENTRY_LARGE_FREE && range->keep == keep;
      bytes += large_range_bytes(range);
      learned_bytes += keep == KEEP_BY_PRESET ? 0 : large_range_bytes(range);
      count++;
    }
  valid &= learned_bytes == big_cache_learned_bytes();
  for (unsigned class = 0; class < LARGE_CLASSES; class++)
    for (struct large *range = cache.classes[class]; range; range = range->class_next)
      listed_bytes += large_range_bytes(range);
  valid &= bytes == big_cache_bytes() && listed_bytes == bytes && count == cache.count;
  lock_give(&cache.lock);
  return valid;
}
#endif
