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
  struct lock lock;
  struct range cache[CACHE_ENTRIES];
  unsigned hand; /* oldest goes first, roughly: entries are replaced in turn */
  struct large_stats stats;
} large;

static struct large *record(const void *object) { return map_record(object); }

size_t large_bytes(const void *object) { return record(object)->bytes; }

static void mark(char *base, size_t bytes, uint32_t first, uint32_t others) {
  map_entries_set(base + UNIT_BYTES, bytes / UNIT_BYTES - 1, others);
  map_entries_set(base, 1, first);
}

static void unmap(struct range range) {
  mark(range.base, range.bytes, ENTRY_NONE, ENTRY_NONE);
  os_unmap(range.base, range.bytes);
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
  large.stats.cached_bytes -= best->bytes;
  best->base = NULL;
  return base;
}

static void count_live(size_t bytes) {
  large.stats.live_count++;
  large.stats.live_bytes += bytes;
  usage_add(bytes);
}

void *large_alloc(size_t size, size_t alignment, bool *zeroed) {
  size_t bytes = round_up(size, UNIT_BYTES);
  alignment = max_size(alignment, bytes >= SUPERSLAB_BYTES ? SUPERSLAB_BYTES : UNIT_BYTES);
  *zeroed = false;
  lock_take(&large.lock);
  char *base = cache_take(bytes, alignment);
  if (base) {
    bytes = record(base)->bytes;
    count_live(bytes);
  }
  lock_give(&large.lock);
  if (base == NULL) {
    base = os_map(bytes, alignment);
    if (base == NULL)
      return NULL;
    if (!map_cover(base, bytes)) {
      os_unmap(base, bytes);
      return NULL;
    }
    record(base)->bytes = bytes;
    *zeroed = true;
    lock_take(&large.lock);
    count_live(bytes);
    lock_give(&large.lock);
  }
  mark(base, bytes, ENTRY_LARGE, ENTRY_LARGE_BODY);
  return base;
}

void large_free(void *object) {
  struct range range = {.base = object};
  struct range evicted = {0};
  size_t cache_max = (size_t)option_value(OPTION_LARGE_CACHE_MB) << 20;
  lock_take(&large.lock);
  if (map_entry(object) != ENTRY_LARGE)
    fault_double_free(object);
  range.bytes = record(object)->bytes;
  large.stats.live_count--;
  large.stats.live_bytes -= range.bytes;
  usage_subtract(range.bytes);
  /* Under the lock, so that a second free of this object sees it. */
  mark(range.base, range.bytes, ENTRY_LARGE_FREE, ENTRY_LARGE_FREE);
  if (range.bytes <= cache_max / CACHED_OBJECT_SHARE) {
    while (large.stats.cached_bytes + range.bytes > cache_max || large.cache[large.hand].base) {
      struct range *oldest = &large.cache[large.hand];
      large.hand = (large.hand + 1) % CACHE_ENTRIES;
      if (oldest->base == NULL)
        continue;
      struct range next = *oldest;
      oldest->base = NULL;
      large.stats.cached_bytes -= next.bytes;
      if (evicted.base) {
        lock_give(&large.lock);
        unmap(evicted);
        lock_take(&large.lock);
      }
      evicted = next;
    }
    large.cache[large.hand] = range;
    large.hand = (large.hand + 1) % CACHE_ENTRIES;
    large.stats.cached_bytes += range.bytes;
    range.base = NULL;
  }
  lock_give(&large.lock);
  if (evicted.base)
    unmap(evicted);
  if (range.base)
    unmap(range);
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

void *large_resize(void *object, size_t size) {
  char *base = object;
  size_t bytes = record(object)->bytes;
  size_t wanted = round_up(size, UNIT_BYTES);
  if (wanted == bytes)
    return object;
  if (wanted < bytes) {
    map_entries_set(base + wanted, (bytes - wanted) / UNIT_BYTES, ENTRY_NONE);
    os_unmap(base + wanted, bytes - wanted);
  } else if (os_resize(base, bytes, wanted)) {
    if (!map_cover(base, wanted)) {
      os_unmap(base + bytes, wanted - bytes);
      return NULL;
    }
    map_entries_set(base + bytes, (wanted - bytes) / UNIT_BYTES, ENTRY_LARGE_BODY);
  } else {
    size_t alignment = wanted >= SUPERSLAB_BYTES ? SUPERSLAB_BYTES : UNIT_BYTES;
    char *target = growth_is_plausible(wanted - bytes) ? os_reserve(wanted, alignment) : NULL;
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
    base = target;
    record(base)->bytes = wanted;
    mark(base, wanted, ENTRY_LARGE, ENTRY_LARGE_BODY);
  }
  lock_take(&large.lock);
  record(base)->bytes = wanted;
  large.stats.live_bytes += wanted - bytes;
  usage_subtract(bytes);
  usage_add(wanted);
  lock_give(&large.lock);
  return base;
}

size_t large_trim(size_t keep_bytes) {
  size_t given_back = 0;
  for (;;) {
    struct range range = {0};
    lock_take(&large.lock);
    for (unsigned i = 0; i < CACHE_ENTRIES && large.stats.cached_bytes > keep_bytes; i++) {
      struct range *oldest = &large.cache[(large.hand + i) % CACHE_ENTRIES];
      if (oldest->base) {
        range = *oldest;
        oldest->base = NULL;
        large.stats.cached_bytes -= range.bytes;
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
  *out = large.stats;
  lock_give(&large.lock);
}

void large_lock_for_fork(void) { lock_take(&large.lock); }

void large_unlock_after_fork(bool child) {
  if (child)
    lock_reset(&large.lock);
  else
    lock_give(&large.lock);
}
