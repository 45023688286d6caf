#include "large/large.h"

#include "base/counters.h"
#include "base/observers.h"
#include "base/options.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "large/big_cache.h"
#include "large/guarded.h"
#include "large/range.h"
#include "os/fault.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/huge.h"
#include "pages/page_map.h"

#include <string.h>

/* From this size on, an extent that must move to grow becomes a mapping, which grows without copying. */
#define GROWN_BYTES_MIN ((size_t)1 << 20)
#define GROWN_COUNT_MAX 256u                  /* at most this many, because the kernel limits the number of mappings */
#define PURGE_TO_CLEAR_MIN ((size_t)32 << 20) /* above, zeroed pages on demand beat clearing */

static struct large *large_record(const void *object) { return map_record(object); }

size_t large_bytes(const void *object) {
  const struct large *range = large_record(object);
  return UNLIKELY(range->guarded) ? range->guarded_size : large_range_bytes(range);
}

/* 32 lengths a doubling: an object that grows has some room, and little is lost. */
size_t large_good_size(size_t size) {
  size_t units = (size + UNIT_BYTES - 1) / UNIT_BYTES;
  if (units <= 32 || size >= MAPPING_BYTES_MIN)
    return units * UNIT_BYTES;
  size_t step = (size_t)1 << (63 - __builtin_clzl(units - 1) - 5);
  return round_up(units, step) * UNIT_BYTES;
}

/* The bytes of the range count as USAGE_LARGE. */
static void *object_begun(struct large *range) {
  size_t bytes = large_range_bytes(range);
  range->owner = 0;
  counter_note(large_allocations);
  usage_move_end(bytes);
  range_entries_set(range->base, bytes, ENTRY_LARGE, ENTRY_LARGE_BODY);
  return range->base;
}

static void *object_made(struct large *range, size_t promised) {
  if (range == NULL) {
    usage_move(USAGE_PROMISED, USAGE_NOWHERE, promised);
    return NULL;
  }
  size_t bytes = large_range_bytes(range);
  usage_move(promised > 0 ? USAGE_PROMISED : USAGE_NOWHERE, USAGE_LARGE, bytes);
  if (promised > bytes)
    usage_move(USAGE_PROMISED, USAGE_NOWHERE, promised - bytes);
  return object_begun(range);
}

/* --- objects --- */

static size_t mapping_alignment(size_t bytes, size_t alignment) {
  return max_size(alignment, bytes >= SUPERSLAB_BYTES ? SUPERSLAB_BYTES : UNIT_BYTES);
}

void *large_alloc(size_t size, size_t alignment, uintptr_t site, bool *zeroed) {
  size_t exact = round_up(size, UNIT_BYTES);
  size_t bytes = UNLIKELY(usage_is_short()) ? exact : large_good_size(size);
  alignment = max_size(alignment, UNIT_BYTES);
  uint32_t hash = site_hash(site);
  bool steady = site_is_steady(hash, large_class_of(bytes / UNIT_BYTES));
  *zeroed = false;
  size_t promised = 0;
  struct large *range =
      UNLIKELY(guarded_is_on) ? range_guarded(size, alignment, &promised) : big_cache_take(bytes, alignment, hash);
  bool is_cached = range != NULL && LIKELY(!guarded_is_on);
  if (UNLIKELY(guarded_is_on && range == NULL)) { /* too many mappings: an object without guards */
    usage_move(USAGE_PROMISED, USAGE_NOWHERE, promised);
    promised = 0;
  }
  if (UNLIKELY(range != NULL && range->guarded)) {
    *zeroed = true;
  } else if (range == NULL && bytes < MAPPING_BYTES_MIN && alignment <= SUPERSLAB_BYTES) {
    range = range_from_extents(bytes, alignment, zeroed, &promised);
    if (UNLIKELY(range == NULL && exact < bytes)) {
      usage_move(USAGE_PROMISED, USAGE_NOWHERE, promised);
      promised = 0;
      range = range_from_extents(exact, alignment, zeroed, &promised);
    }
  } else if (range == NULL) {
    range = range_mapped(bytes, mapping_alignment(bytes, alignment), &promised);
    *zeroed = true;
  }
  if (range) {
    range->site = hash;
    range->caller = advice_is_wanted() ? observers.advice_large_taken(site, large_range_bytes(range)) : 0;
    range->steady = steady;
    HAK_PROBE(large_alloc, range->base, size, large_range_bytes(range), site);
    if (sites_are_counted())
      observers.site_taken(hash, site, large_range_bytes(range));
  }
  return is_cached ? object_begun(range) : object_made(range, promised);
}

void *large_alloc_extent(size_t bytes, bool *zeroed) {
  size_t promised = 0;
  struct large *range = range_from_extents(bytes, UNIT_BYTES, zeroed, &promised);
  if (range && sites_are_counted())
    observers.site_taken(range->site, 0, bytes);
  return object_made(range, promised);
}

void *large_alloc_unlocked(size_t size, size_t alignment) {
  size_t bytes = round_up(size, UNIT_BYTES);
  char *base = os_map(bytes, mapping_alignment(bytes, alignment));
  if (base == NULL)
    return NULL;
  if (!map_cover_object(base, bytes)) {
    os_unmap(base, bytes);
    return NULL;
  }
  struct large *range = range_made(base, bytes, true, false);
  range->spare = true;
  return object_made(range, 0);
}

void large_link_set(void *object, void *link) { large_record(object)->class_previous = link; }
void *large_link(const void *object) { return large_record(object)->class_previous; }

static uint32_t unit_number(const void *object) { return (uint32_t)((uintptr_t)object >> HAK_UNIT_SHIFT); }
static void *object_at(uint32_t unit) { return (void *)((uintptr_t)unit << HAK_UNIT_SHIFT); }
_Static_assert(HAK_ADDRESS_BITS - HAK_UNIT_SHIFT <= 32, "a unit's number fits the record");

void large_list_add(void **first, void *object, uint32_t owner) {
  struct large *range = large_record(object);
  range->owner = owner;
  range->key_previous = 0;
  range->key_next = unit_number(*first);
  if (*first != NULL)
    large_record(*first)->key_previous = unit_number(object);
  *first = object;
}

void large_list_remove(void **first, void *object) {
  struct large *range = large_record(object);
  if (range->key_previous != 0)
    large_record(object_at(range->key_previous))->key_next = range->key_next;
  else
    *first = object_at(range->key_next);
  if (range->key_next != 0)
    large_record(object_at(range->key_next))->key_previous = range->key_previous;
  range->owner = 0;
}

void *large_list_next(const void *object) { return object_at(large_record(object)->key_next); }
uint32_t large_owner(const void *object) { return large_record(object)->owner; }

/* Ends an object and gives its range, which counts as USAGE_LARGE still, to the caller. */
static struct large *object_ended(void *object) {
  if (UNLIKELY(large_record(object)->guarded) && map_entry(object) == ENTRY_LARGE)
    guarded_check(large_record(object));
  /* Only one thread can change the first entry. For any other this is a double free. */
  if (!map_entry_change(object, ENTRY_LARGE, ENTRY_LARGE_FREE))
    fault_double_free(object);
  struct large *range = large_record(object);
  size_t bytes = large_range_bytes(range);
  HAK_PROBE(large_free, object, bytes);
  usage_move_begin(bytes);
  counter_note(large_frees);
  range_entries_set(object, bytes, ENTRY_LARGE_FREE, ENTRY_LARGE_FREE);
  return range;
}

void large_free(void *object) {
  struct large *range = object_ended(object);
  size_t bytes = large_range_bytes(range);
  if (sites_are_counted())
    observers.site_freed(range->site, bytes);
  if (range->mapping && !range->huge && !range->noted && bytes >= MAPPING_BYTES_MIN &&
      option_value(OPTION_HUGE) != HUGE_OFF) {
    range->noted = true;
    huge_note_mapping(object, bytes);
  }
  range_cache_or_end(range);
}

bool large_free_unlocked(void *object) {
  if (!large_record(object)->spare)
    return false;
  range_end(object_ended(object), 0, USAGE_LARGE);
  return true;
}

void large_clear(void *object, size_t size) {
  if (size >= PURGE_TO_CLEAR_MIN && os_purge(object, large_bytes(object)))
    large_record(object)->noted = false;
  else
    memset(object, 0, size);
}

/* --- resizing --- */

/* Call when an object, and its mapping if it has one, became longer or shorter. Of a mapping, call usage_move_end for
 * the difference when it is counted. */
static void length_changed(struct large *range, size_t bytes, size_t wanted) {
  if (advice_is_wanted())
    observers.advice_large_resized(range->caller, bytes, wanted);
  if (sites_are_counted())
    observers.site_resized(range->site, bytes, wanted);
  range->units = (uint32_t)(wanted / UNIT_BYTES);
  if (range->mapping) {
    usage_move_begin(max_size(wanted, bytes) - min_size(wanted, bytes));
    range_length_changed(wanted - bytes);
  }
}

static bool extent_resize(struct large *range, size_t bytes, size_t wanted) {
  char *end = range->base + bytes;
  if (wanted < bytes) {
    map_entries_set(range->base + wanted, (bytes - wanted) / UNIT_BYTES, ENTRY_LARGE_FREE);
    usage_move_begin(bytes - wanted);
    extent_give((struct extent){.base = range->base + wanted, .bytes = bytes - wanted, .resident = true},
                os_milliseconds(), USAGE_LARGE);
    length_changed(range, bytes, wanted);
    return true;
  }
  if (!usage_reserve(wanted - bytes))
    return false;
  struct extent more = extent_take_behind(end, wanted - bytes);
  if (more.base) {
    map_entries_set(end, (wanted - bytes) / UNIT_BYTES, ENTRY_LARGE_BODY);
    length_changed(range, bytes, wanted);
  }
  usage_move(USAGE_PROMISED, more.base ? USAGE_LARGE : USAGE_NOWHERE, wanted - bytes);
  if (more.base)
    usage_move_end(wanted - bytes);
  if (more.resident) /* was held before: it needed no promise */
    usage_move(USAGE_PROMISED, USAGE_NOWHERE, wanted - bytes);
  return more.base != NULL;
}

/* Cuts a mapping. If the rest is short enough for an extent, it is better copied there, because mappings are scarce. */
static bool mapping_cut(struct large *range, size_t bytes, size_t wanted) {
  char *base = range->base;
  if (wanted < GROWN_BYTES_MIN || (wanted < MAPPING_BYTES_MIN && range_mapping_count() >= GROWN_COUNT_MAX))
    return false;
  map_entries_set(base + wanted, (bytes - wanted) / UNIT_BYTES, ENTRY_NONE);
  if (!pages_unmap(base + wanted, bytes - wanted)) {
    map_entries_set(base + wanted, (bytes - wanted) / UNIT_BYTES, ENTRY_LARGE_BODY);
    return false;
  }
  length_changed(range, bytes, wanted);
  usage_move(USAGE_LARGE, USAGE_NOWHERE, bytes - wanted);
  usage_move_end(bytes - wanted);
  return true;
}

/* Lengthens a mapping where it lies. */
static bool mapping_extend(struct large *range, size_t bytes, size_t wanted) {
  char *base = range->base;
  if (!os_resize(base, bytes, wanted))
    return false;
  if (!map_cover_object(base, wanted)) {
    os_unmap(base + bytes, wanted - bytes);
    return false;
  }
  map_entries_set(base + bytes, (wanted - bytes) / UNIT_BYTES, ENTRY_LARGE_BODY);
  length_changed(range, bytes, wanted);
  return true;
}

/* Tells whether the system can give this much more. Call before tables are made for it. */
static bool growth_is_plausible(size_t bytes) {
  void *probe = os_map(bytes, os_page_bytes());
  if (probe == NULL)
    return false;
  os_unmap(probe, bytes);
  return true;
}

/* Moves the pages of a mapping to a longer range. NULL: unchanged. */
static void *mapping_move(struct large *range, size_t bytes, size_t wanted) {
  char *base = range->base;
  struct map_reserve reserve;
  if ((wanted >= LEAF_BYTES && !growth_is_plausible(wanted - bytes)) || !map_reserve(&reserve, wanted))
    return NULL;
  struct large moved = *range;
  range_entries_set(base, bytes, ENTRY_NONE, ENTRY_NONE); /* the system may map another range there at once */
  char *target = os_move(base, bytes, wanted, UNIT_BYTES);
  if (target != NULL) {
    if (target != base)
      range_unmapped_note(base);
    map_cover_reserved(target, wanted, &reserve);
    *large_record(target) = moved;
    large_record(target)->base = target;
    length_changed(large_record(target), bytes, wanted);
  }
  map_reserve_end(&reserve);
  if (target != NULL)
    range_entries_set(target, wanted, ENTRY_LARGE, ENTRY_LARGE_BODY);
  else
    range_entries_set(base, bytes, ENTRY_LARGE, ENTRY_LARGE_BODY);
  return target;
}

static void *mapping_resize(struct large *range, size_t bytes, size_t wanted) {
  if (wanted < bytes)
    return mapping_cut(range, bytes, wanted) ? range->base : NULL;
  if (!usage_reserve(wanted - bytes))
    return NULL;
  void *resized = mapping_extend(range, bytes, wanted) ? range->base : mapping_move(range, bytes, wanted);
  usage_move(USAGE_PROMISED, resized ? USAGE_LARGE : USAGE_NOWHERE, wanted - bytes);
  if (resized)
    usage_move_end(wanted - bytes);
  return resized;
}

/* An extent that cannot grow where it lies becomes a mapping, once. NULL: unchanged. */
static void *extent_to_mapping(struct large *range, size_t bytes, size_t wanted) {
  if (wanted < GROWN_BYTES_MIN || (wanted < MAPPING_BYTES_MIN && range_mapping_count() >= GROWN_COUNT_MAX))
    return NULL;
  size_t promised = 0;
  struct large *grown = big_cache_take(wanted, UNIT_BYTES, range->site); /* the range of an earlier growth may fit */
  if (grown) {
    object_begun(grown);
  } else {
    grown = range_mapped(wanted, mapping_alignment(wanted, UNIT_BYTES), &promised);
    if (object_made(grown, promised) == NULL)
      return NULL;
  }
  grown->site = range->site;
  grown->caller = range->caller;
  if (advice_is_wanted())
    observers.advice_large_resized(grown->caller, 0, large_range_bytes(grown));
  if (sites_are_counted())
    observers.site_taken(grown->site, 0, large_range_bytes(grown));
  memcpy(grown->base, range->base, bytes);
  large_free(range->base);
  return grown->base;
}

void *large_resize(void *object, size_t size) {
  struct large *range = large_record(object);
  size_t bytes = large_range_bytes(range);
  if (UNLIKELY(range->guarded)) {
    guarded_check(range);
    if (size > guarded_room(range) || size < guarded_room(range) / 2)
      return NULL;
    guarded_set_size(range, size);
    return object;
  }
  size_t wanted = range->mapping ? round_up(size, UNIT_BYTES) : large_good_size(size);
  if (wanted == bytes)
    return object;
  range->spare = false; /* its caller may sample it */
  if (wanted > bytes)
    range->noted = false;
  if (range->mapping)
    return mapping_resize(range, bytes, wanted);
  return extent_resize(range, bytes, wanted) ? object : extent_to_mapping(range, bytes, wanted);
}

void large_stats(struct large_stats *out) {
  *out = (struct large_stats){
      .live_count = less(counter_read(large_allocations), counter_read(large_frees)),
      .live_bytes = usage_taken_large(),
      .cached_bytes = decay_total(&big_cache_decay),
      .mapping_count = range_mapping_count(),
      .mapping_bytes = range_mapping_bytes(),
  };
}
