#include "large/large.h"

#include "base/counters.h"
#include "base/observers.h"
#include "base/options.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "large/big_cache.h"
#include "large/guarded.h"
#include "large/range.h"
#include "large/stash.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/huge.h"
#include "pages/page_map.h"

#include <string.h>

/* From this size on, an extent that must move to grow moves to resident memory with room, or becomes a mapping, which
 * grows without copying. */
#define GROWN_BYTES_MIN ((size_t)1 << 20)
#define GROWN_COUNT_MAX 256u /* at most this many, because the kernel limits the number of mappings */
#define PIN_SHARE 16u        /* what a resize leaves of a long range is short below this share */

static struct large *large_record(const void *object) { return map_record(object); }

size_t large_bytes(const void *object) {
  const struct large *range = large_record(object);
  return UNLIKELY(range->guarded) ? range->guarded_size : large_range_bytes(range) - large_offset(range);
}

bool large_is_start(const void *address) { return address == large_object(large_record(address)); }

bool large_is_live(const void *object) { return !load_relaxed(&large_record(object)->ended); }

size_t large_good_size(size_t size) {
  size_t length = large_length(size);
  return large_has_room(length, size) ? length - LARGE_COLOR_ROOM : length;
}

/* Tells whether an object that is resized may be a mapping of this length. */
static bool may_be_mapping(size_t bytes) {
  return bytes >= MAPPING_BYTES_MIN || (bytes >= GROWN_BYTES_MIN && range_mapping_count() < GROWN_COUNT_MAX);
}

/* Returns where an object of this size begins in its range. */
static uint8_t color_for(const struct large *range, size_t size, size_t alignment) {
  bool has_color = range->steady && !range->guarded && large_has_room(large_range_bytes(range), size);
  return has_color ? large_color_of(range->base, alignment) : 0;
}

/* Makes an object of a range, whose bytes count as USAGE_LARGE; NULL if there is none. */
static void *object_begun(struct large *range) {
  if (range == NULL)
    return NULL;
  store_relaxed(&range->ended, false);
  range_entries_set(range, ENTRY_LARGE);
  return large_object(range);
}

/* --- objects --- */

static size_t mapping_alignment(size_t bytes, size_t alignment) {
  return max_size(alignment, bytes >= ROW_BYTES ? ROW_BYTES : UNIT_BYTES);
}

static struct large *mapping_of_site(size_t bytes, uint32_t site, size_t *dirty);

void *large_alloc(size_t size, size_t alignment, uintptr_t site, size_t *dirty) {
  size_t exact = round_up(size, UNIT_BYTES), bytes = large_length(size);
  size_t range_alignment = max_size(alignment, UNIT_BYTES);
  uint32_t hash = site_hash(site);
  size_t steady_bytes = large_length_steady(size, alignment);
  bool steady = site_is_steady(hash, units_class(steady_bytes / UNIT_BYTES));
  bool is_short = usage_is_short(), has_color = steady && LIKELY(!is_short);
  if (UNLIKELY(is_short))
    bytes = exact;
  else if (has_color && !large_may_be_bare(steady_bytes, size))
    bytes = steady_bytes;
  struct large *range =
      UNLIKELY(guarded_is_on) ? range_guarded(size, size, range_alignment) : range_kept(bytes, range_alignment, hash);
  *dirty = range != NULL && range->guarded ? 0 : SIZE_MAX;
  if (range == NULL && bytes < MAPPING_BYTES_MIN && range_alignment <= ROW_BYTES) {
    range = range_from_extents(bytes, has_color ? steady_bytes : bytes, range_alignment, dirty);
    if (UNLIKELY(range == NULL && exact < bytes))
      range = range_from_extents(exact, exact, range_alignment, dirty);
  } else if (range == NULL) { /* also without guards, if there are too many mappings */
    if (range_alignment == UNIT_BYTES && bytes >= MAPPING_BYTES_MIN && LIKELY(!guarded_is_on))
      range = mapping_of_site(bytes, hash, dirty);
    if (range == NULL) {
      range = range_mapped(bytes, mapping_alignment(bytes, range_alignment));
      *dirty = 0;
    }
    if (range)
      range->stays_mapping = true;
  }
  if (range) {
    range->site = hash;
    range->caller = large_is_watched() ? observers.large_taken(hash, site, large_range_bytes(range)) : 0;
    range->steady = steady;
    range->color = color_for(range, size, alignment);
    HAK_PROBE(large_alloc, large_object(range), size, large_range_bytes(range), site);
  }
  return object_begun(range);
}

void *large_alloc_extent(size_t bytes, size_t *dirty) {
  struct large *range = range_from_extents(bytes, bytes, UNIT_BYTES, dirty);
  if (range && large_is_watched())
    observers.large_taken(range->site, 0, bytes);
  return object_begun(range);
}

void *large_alloc_unlocked(size_t size, size_t alignment) {
  size_t bytes = round_up(size, UNIT_BYTES);
  char *base = range_map(bytes, mapping_alignment(bytes, alignment));
  if (base == NULL)
    return NULL;
  struct large *range = range_made(base, bytes, true, USAGE_NOWHERE);
  range->spare = true;
  return object_begun(range);
}

COLD void *large_link(void *object) { return &large_record(object)->class_previous; }

/* Ends an object and gives its range, which counts as USAGE_LARGE still, to the caller. */
static struct large *object_ended(void *object) {
  struct large *range = large_record(object);
  if (UNLIKELY(range->guarded) && map_entry(object) == ENTRY_LARGE)
    guarded_check(range);
  large_end_mark(range, object);
  HAK_PROBE(large_free, object, large_range_bytes(range));
  range_entries_set(range, ENTRY_LARGE_FREE);
  return range;
}

void large_free(void *object) {
  struct large *range = object_ended(object);
  size_t bytes = large_range_bytes(range);
  if (range->mapping && !range->huge && !range->noted && bytes >= MAPPING_BYTES_MIN &&
      option_value(OPTION_HUGE) != HUGE_OFF) {
    range->noted = true;
    huge_note_mapping(range->base, bytes);
  }
  range_cache_or_end(range);
}

COLD bool large_free_unlocked(void *object) {
  if (!large_record(object)->spare)
    return false;
  struct large *range = object_ended(object);
  range_leaves(range);
  range_end(range, 0, USAGE_LARGE);
  return true;
}

/* --- resizing --- */

/* Call when an object, and its mapping if it has one, became longer or shorter. Of a mapping, call usage_move_end for
 * the difference when it is counted. */
static void length_changed(struct large *range, size_t bytes, size_t wanted) {
  if (large_is_watched())
    observers.large_changed(range->site, range->caller, bytes, wanted);
  range_units_set(range, wanted);
  if (range->mapping) {
    usage_move_begin(max_size(wanted, bytes) - min_size(wanted, bytes));
    range_length_changed(bytes, wanted);
  }
}

/* Cuts an object that is an extent. */
static void object_cut(struct large *range, size_t bytes, size_t wanted) {
  struct extent rest = {.base = range->base + wanted, .bytes = bytes - wanted, .resident = true};
  map_entries_set(rest.base, rest.bytes / UNIT_BYTES, ENTRY_LARGE_FREE);
  usage_move_begin(rest.bytes);
  extent_give(rest, KEEP_BY_PRESET, os_milliseconds(), USAGE_LARGE);
  length_changed(range, bytes, wanted);
}

/* Lengthens one where it lies. */
static bool object_extend(struct large *range, size_t bytes, size_t wanted, bool *is_dirty) {
  char *end = range->base + bytes;
  struct extent more = extent_take_behind(end, wanted - bytes);
  if (more.base == NULL)
    return false;
  map_entries_set(end, (wanted - bytes) / UNIT_BYTES, ENTRY_LARGE_BODY);
  length_changed(range, bytes, wanted);
  *is_dirty = !more.zero;
  usage_move(more.resident ? USAGE_FREE : USAGE_PROMISED, USAGE_LARGE, wanted - bytes);
  usage_move_end(wanted - bytes);
  return true;
}

/* Cuts a mapping. One that may be an extent becomes one, so that its end stays ready for what grows next. If the rest
 * of another is short, it is better copied, because mappings are scarce. */
static bool mapping_cut(struct large *range, size_t bytes, size_t wanted) {
  range->stays_mapping |= bytes >= MAPPING_BYTES_MIN;
  if (range_become_extent(range)) {
    object_cut(range, bytes, wanted);
    return true;
  }
  if (!may_be_mapping(wanted))
    return false;
  range_units_set(range, wanted); /* first: the system may map another range there at once */
  if (!pages_unmap(range->base + wanted, bytes - wanted)) {
    range_units_set(range, bytes);
    return false;
  }
  length_changed(range, bytes, wanted);
  usage_move(USAGE_LARGE, USAGE_NOWHERE, bytes - wanted);
  usage_move_end(bytes - wanted);
  return true;
}

/* Moves the pages of a mapping to a longer range. Returns its record, NULL: unchanged. */
static struct large *mapping_move(struct large *range, size_t bytes, size_t wanted) {
  char *base = range->base;
  if (!map_move_begin())
    return NULL;
  struct large moved = *range;
  map_entry_set(base, ENTRY_NONE); /* the system may map another range there at once */
  char *target = os_move(base, bytes, wanted);
  map_move_end(target);
  if (target != NULL) {
    if (target != base)
      range_unmapped_note(large_object(&moved));
    range = large_record(target);
    *range = moved;
    range->base = target;
  }
  range_entries_set(range, ENTRY_LARGE);
  return target != NULL ? range : NULL;
}

static void *mapping_resize(struct large *range, size_t bytes, size_t wanted) {
  if (wanted < bytes)
    return mapping_cut(range, bytes, wanted) ? large_object(range) : NULL;
  if (!usage_reserve(wanted - bytes))
    return NULL;
  struct large *resized = os_resize(range->base, bytes, wanted) ? range : mapping_move(range, bytes, wanted);
  if (resized)
    length_changed(resized, bytes, wanted);
  usage_move(USAGE_PROMISED, resized ? USAGE_LARGE : USAGE_NOWHERE, wanted - bytes);
  if (resized)
    usage_move_end(wanted - bytes);
  return resized ? large_object(resized) : NULL;
}

/* Makes a range of what the site left in the cache, at another length. So a site whose objects become longer leaves no
 * mapping for each length, and touches fewer fresh pages. NULL: there is none. */
static struct large *mapping_of_site(size_t bytes, uint32_t site, size_t *dirty) {
  struct large *range = large_is_watched() ? NULL : big_cache_take_mapping(bytes, site);
  if (range == NULL)
    return NULL;
  size_t has = large_range_bytes(range);
  range->noted &= bytes <= has;
  void *object = mapping_resize(range, has, bytes);
  if (UNLIKELY(object == NULL)) {
    range_leaves(range);
    range_end(range, 0, USAGE_LARGE);
    return NULL;
  }
  *dirty = min_size(has, bytes);
  return large_record(object);
}

static void *object_copied(struct large *grown, struct large *range, size_t bytes) {
  grown->site = range->site;
  grown->caller = range->caller;
  if (large_is_watched())
    observers.large_changed(grown->site, grown->caller, 0, large_range_bytes(grown));
  memcpy(large_object(grown), large_object(range), bytes);
  large_free(large_object(range));
  return large_object(grown);
}

/* An extent that cannot grow where it lies moves to resident memory with room behind it, or becomes a mapping. NULL:
 * unchanged. */
static void *object_move(struct large *range, size_t bytes, size_t wanted, bool *is_dirty) {
  if (!may_be_mapping(wanted))
    return NULL;
  struct large *grown = range_kept(wanted, UNIT_BYTES, range->site); /* the range of an earlier growth may fit */
  if (grown == NULL && wanted < MAPPING_BYTES_MIN)
    grown = range_with_room(wanted);
  *is_dirty = grown != NULL;
  if (grown == NULL)
    grown = range_mapped(wanted, mapping_alignment(wanted, UNIT_BYTES));
  if (object_begun(grown) == NULL)
    return NULL;
  grown->color = range->color;
  return object_copied(grown, range, bytes - large_offset(range));
}

#define GUARDED_AHEAD_SHARE 4u /* a guarded object that moves to grow gets room to grow by this fraction */
#define GUARDED_LIMIT_SHARE 4u /* while at most this part of a limit is held, because the room is held, too */

/* A guarded object that cannot grow where it lies is copied, for its guards cannot be moved with it. With room ahead
 * one that grows in small steps is copied seldom. NULL: unchanged. */
static void *guarded_move(struct large *range, size_t size) {
  bool has_room = !usage_is_filling() && usage_held() <= usage_limit() / GUARDED_LIMIT_SHARE;
  struct large *grown = range_guarded(size, has_room ? size + size / GUARDED_AHEAD_SHARE : size, UNIT_BYTES);
  if (object_begun(grown) == NULL)
    return NULL;
  return object_copied(grown, range, range->guarded_size);
}

/* Returns the length that a range without guards has after a resize. A mapping has whole units, an extent an extent's
 * length. Both keep what lies between: fresh extents have whole units as well, and the cut of a mapping that was an
 * extent would make an extent of it, which the next growth would have to copy. */
static size_t length_resized(const struct large *range, size_t size) {
  size_t bytes = large_range_bytes(range), exact = round_up(size, UNIT_BYTES), wanted = large_length(size);
  if (exact <= bytes && bytes <= wanted)
    wanted = bytes;
  else if (range->mapping)
    wanted = exact;
  return wanted + (range->color != 0 && !large_has_room(wanted, size) ? UNIT_BYTES : 0);
}

bool large_keeps_length(const void *object, size_t size) {
  const struct large *range = large_record(object);
  return !range->guarded && length_resized(range, size) == large_range_bytes(range);
}

COLD void *large_resize(void *object, size_t size, bool *is_dirty) {
  struct large *range = large_record(object);
  *is_dirty = false;
  size_t bytes = large_range_bytes(range);
  if (UNLIKELY(range->guarded)) {
    guarded_check(range);
    if (guarded_bytes(size) < bytes / 2)
      return NULL;
    return guarded_resize(range, size) ? object : guarded_move(range, size);
  }
  size_t wanted = length_resized(range, size);
  if (wanted == bytes)
    return object;
  range->spare = false;  /* its caller may sample it */
  range->steady = false; /* the site asks for the first length again, not for this one */
  if (wanted > bytes)
    range->noted = false;
  if (range->mapping)
    return mapping_resize(range, bytes, wanted);
  if (wanted > bytes)
    return object_extend(range, bytes, wanted, is_dirty) ? object : object_move(range, bytes, wanted, is_dirty);
  object_cut(range, bytes, wanted);
  return object;
}

COLD bool large_would_pin(const void *object, size_t size) {
  const struct large *range = large_record(object);
  size_t wanted = large_length(size), bytes = large_range_bytes(range);
  if (wanted > LARGE_SHORT_UNITS * UNIT_BYTES || wanted >= bytes / PIN_SHARE || range->owner != 0 || range->guarded ||
      range->stays_mapping || bytes >= MAPPING_BYTES_MIN || usage_is_short())
    return false;
  return (range->mapping || extent_bank_of(range->base) == EXTENT_ADOPTED) && extent_pieces_are_many();
}

size_t large_stash_units(const void *object, size_t size, size_t alignment) {
  const struct large *range = large_record(object);
  size_t bytes = large_range_bytes(range), longest = large_length_steady(size, alignment);
  bool fits = bytes == longest || (bytes == longest - UNIT_BYTES && large_may_be_bare(longest, size));
  return large_is_stashable(range) && !range->guarded && fits ? range->units : 0;
}

void large_stats(struct large_stats *out) {
  struct stash_stats stashed;
  stash_stats(&stashed);
  uint64_t made = counter_read(large_allocations) + counter_read(cache_hits) + stashed.takes;
  uint64_t freed = counter_read(large_frees) + counter_read(cache_puts) - range_unstashed_count() + stashed.puts;
  /* From one reading of the cached bytes, so that both parts add up while ranges come and go. */
  size_t bytes = atomic_load_explicit(&usage_at[USAGE_LARGE], memory_order_acquire);
  size_t cached_bytes = decay_total(&big_cache_decay) + stashed.bytes;
  *out = (struct large_stats){
      .made_count = made,
      .freed_count = freed,
      .stash_hits = stashed.takes,
      .live_count = sub_sat(made, freed),
      .live_bytes = sub_sat(bytes, cached_bytes),
      .cached_bytes = cached_bytes,
      .mapping_count = range_mapping_count(),
      .mapping_bytes = range_mapping_bytes(),
  };
}
