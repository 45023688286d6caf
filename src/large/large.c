#include "large/large.h"

#include "base/options.h"
#include "map/page_map.h"
#include "map/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"

#define CACHE_ENTRIES 32
#define CACHED_OBJECT_SHARE 2 /* one range may take half of the cache */
#define FIT_SLACK 8           /* a cached range serves requests down to 7/8 of its size */

struct large {
  size_t bytes; /* mapped, a multiple of UNIT_BYTES */
};

struct range {
  char *base; /* NULL: unused */
  size_t bytes;
};

static struct {
  struct lock lock; /* of the cache */
  struct range cache[CACHE_ENTRIES];
  unsigned hand; /* oldest goes first, roughly: entries are replaced in turn */
  size_t cached_bytes;
  _Atomic size_t live_count, live_bytes;
} large;

static struct large *record(const void *object) { return map_record(object); }

size_t large_bytes(const void *object) { return record(object)->bytes; }

static void mark(char *base, size_t bytes, uint32_t first, uint32_t others) {
  map_entries_set(base + UNIT_BYTES, bytes / UNIT_BYTES - 1, others);
  map_entries_set(base, 1, first);
}

static void unmap(struct range range) {
  mark(range.base, range.bytes, ENTRY_NONE, ENTRY_NONE);
  if (!os_unmap(range.base, range.bytes)) /* too many mappings: its pages at least */
    os_purge(range.base, range.bytes);
}

/* The smallest cached range that fits without much waste; the lock is held. */
static char *cache_take(size_t bytes, size_t alignment) {
  struct range *best = NULL;
  for (unsigned i = 0; i < CACHE_ENTRIES; i++) {
    struct range *range = &large.cache[i];
    if (range->base && range->bytes >= bytes && range->bytes - range->bytes / FIT_SLACK <= bytes &&
        ((uintptr_t)range->base & (alignment - 1)) == 0 && (best == NULL || range->bytes < best->bytes))
      best = range;
  }
  if (best == NULL)
    return NULL;
  char *base = best->base;
  large.cached_bytes -= best->bytes;
  best->base = NULL;
  return base;
}

static void count_live(size_t bytes) {
  atomic_fetch_add_explicit(&large.live_count, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&large.live_bytes, bytes, memory_order_relaxed);
  usage_add(bytes);
}

static size_t alignment_of(size_t bytes, size_t alignment) {
  return max_size(alignment, bytes >= SUPERSLAB_BYTES ? SUPERSLAB_BYTES : UNIT_BYTES);
}

static void *object_made(char *base, size_t bytes) {
  count_live(bytes);
  mark(base, bytes, ENTRY_LARGE, ENTRY_LARGE_BODY);
  return base;
}

static void *map_object(size_t bytes, size_t alignment, bool (*cover)(const void *, size_t)) {
  char *base = os_map(bytes, alignment);
  if (base == NULL)
    return NULL;
  if (!cover(base, bytes)) {
    os_unmap(base, bytes);
    return NULL;
  }
  record(base)->bytes = bytes;
  return object_made(base, bytes);
}

void *large_alloc(size_t size, size_t alignment, bool *zeroed) {
  size_t bytes = round_up(size, UNIT_BYTES);
  alignment = alignment_of(bytes, alignment);
  lock_take(&large.lock);
  char *base = cache_take(bytes, alignment);
  lock_give(&large.lock);
  *zeroed = base == NULL;
  return base ? object_made(base, record(base)->bytes) : map_object(bytes, alignment, map_cover);
}

void *large_alloc_interrupting(size_t size, size_t alignment) {
  size_t bytes = round_up(size, UNIT_BYTES);
  return map_object(bytes, alignment_of(bytes, alignment), map_cover_without_waiting);
}

/* Puts a range into the cache. Returns what has to go instead: the range itself, or one that was
 * evicted; base NULL if nothing. */
static struct range cache_put(struct range range) {
  size_t cache_max = (size_t)option_value(OPTION_LARGE_CACHE_MB) << 20;
  struct range evicted = {0};
  if (range.bytes > cache_max / CACHED_OBJECT_SHARE)
    return range;
  lock_take(&large.lock);
  while (large.cached_bytes + range.bytes > cache_max || large.cache[large.hand].base) {
    struct range next = large.cache[large.hand];
    large.cache[large.hand].base = NULL;
    large.hand = (large.hand + 1) % CACHE_ENTRIES;
    if (next.base == NULL)
      continue;
    large.cached_bytes -= next.bytes;
    if (evicted.base) {
      lock_give(&large.lock);
      unmap(evicted);
      lock_take(&large.lock);
    }
    evicted = next;
  }
  large.cache[large.hand] = range;
  large.hand = (large.hand + 1) % CACHE_ENTRIES;
  large.cached_bytes += range.bytes;
  lock_give(&large.lock);
  return evicted;
}

void large_free(void *object) {
  /* One thread gets to change the first entry; to any other this is a double free. */
  if (!map_entry_change(object, ENTRY_LARGE, ENTRY_LARGE_FREE))
    fault_double_free(object);
  struct range range = {.base = object, .bytes = record(object)->bytes};
  atomic_fetch_sub_explicit(&large.live_count, 1, memory_order_relaxed);
  atomic_fetch_sub_explicit(&large.live_bytes, range.bytes, memory_order_relaxed);
  usage_subtract(range.bytes);
  mark(range.base, range.bytes, ENTRY_LARGE_FREE, ENTRY_LARGE_FREE);
  struct range evicted = cache_put(range);
  if (evicted.base)
    unmap(evicted);
}

/* May the system give so much more? Asked before a huge object moves, because the page map's leaves
 * for the new place are never unmapped. */
static bool growth_is_plausible(size_t bytes) {
  if (bytes <= LEAF_BYTES)
    return true;
  void *probe = os_map(bytes, os_page_bytes());
  if (probe == NULL)
    return false;
  os_unmap(probe, bytes);
  return true;
}

/* Cuts or lengthens the mapping where it lies. */
static bool resize_in_place(char *base, size_t bytes, size_t wanted) {
  if (wanted < bytes) {
    map_entries_set(base + wanted, (bytes - wanted) / UNIT_BYTES, ENTRY_NONE);
    if (os_unmap(base + wanted, bytes - wanted))
      return true;
    map_entries_set(base + wanted, (bytes - wanted) / UNIT_BYTES, ENTRY_LARGE_BODY);
    return false;
  }
  if (!os_resize(base, bytes, wanted))
    return false;
  if (!map_cover(base, wanted)) {
    os_unmap(base + bytes, wanted - bytes);
    return false;
  }
  map_entries_set(base + bytes, (wanted - bytes) / UNIT_BYTES, ENTRY_LARGE_BODY);
  return true;
}

/* Moves the pages to a longer range. NULL: unchanged. */
static char *resize_by_move(char *base, size_t bytes, size_t wanted) {
  char *target = growth_is_plausible(wanted - bytes) ? os_reserve(wanted, alignment_of(wanted, UNIT_BYTES)) : NULL;
  if (target == NULL)
    return NULL;
  mark(base, bytes, ENTRY_NONE, ENTRY_NONE); /* another mapping may come to lie there at once */
  bool covered = map_cover(target, wanted);
  if (!covered || !os_move(base, bytes, target, wanted)) {
    mark(base, bytes, ENTRY_LARGE, ENTRY_LARGE_BODY);
    if (!covered) /* a failed move may have unmapped the target: it may be somebody else's by now */
      os_unmap(target, wanted);
    return NULL;
  }
  mark(target, wanted, ENTRY_LARGE, ENTRY_LARGE_BODY);
  return target;
}

void *large_resize(void *object, size_t size) {
  char *base = object;
  size_t bytes = record(object)->bytes;
  size_t wanted = round_up(size, UNIT_BYTES);
  if (wanted == bytes)
    return object;
  if (!resize_in_place(base, bytes, wanted)) {
    base = wanted > bytes ? resize_by_move(base, bytes, wanted) : NULL;
    if (base == NULL)
      return NULL;
  }
  record(base)->bytes = wanted;
  atomic_fetch_add_explicit(&large.live_bytes, wanted - bytes, memory_order_relaxed);
  if (wanted > bytes)
    usage_add(wanted - bytes);
  else
    usage_subtract(bytes - wanted);
  return base;
}

size_t large_trim(size_t keep_bytes) {
  size_t given_back = 0;
  for (;;) {
    struct range range = {0};
    lock_take(&large.lock);
    for (unsigned i = 0; i < CACHE_ENTRIES && large.cached_bytes > keep_bytes; i++) {
      struct range *oldest = &large.cache[(large.hand + i) % CACHE_ENTRIES];
      if (oldest->base) {
        range = *oldest;
        oldest->base = NULL;
        large.cached_bytes -= range.bytes;
        break;
      }
    }
    lock_give(&large.lock);
    if (range.base == NULL)
      return given_back;
    unmap(range);
    given_back += range.bytes;
  }
}

void large_stats(struct large_stats *out) {
  lock_take(&large.lock);
  out->cached_bytes = large.cached_bytes;
  lock_give(&large.lock);
  out->live_count = atomic_load_explicit(&large.live_count, memory_order_relaxed);
  out->live_bytes = atomic_load_explicit(&large.live_bytes, memory_order_relaxed);
}

void large_lock_for_fork(void) { lock_take(&large.lock); }

void large_unlock_after_fork(bool child) {
  if (child)
    lock_reset(&large.lock);
  else
    lock_give(&large.lock);
}
