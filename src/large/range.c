#include "large/range.h"

#include "base/counters.h"
#include "base/observers.h"
#include "large/guarded.h"
#include "large/stash.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/huge.h"
#include "pages/page_map.h"

#define CACHED_RANGE_SHARE 2 /* one range may take half of the cache */
#define MAPPING_UNITS_MIN (MAPPING_BYTES_MIN / UNIT_BYTES)

static struct {
  _Atomic size_t mapping_count, mapping_bytes;
  _Atomic size_t longest_bytes; /* no mapping was ever longer */
  _Atomic uint64_t unstashed_count;
} figures;

/* Release and acquire: a reader who sees a sum changed sees the move begun (budget/usage.h). */
static void figure_add(_Atomic size_t *sum, size_t amount) {
  atomic_fetch_add_explicit(sum, amount, memory_order_acq_rel);
}
static size_t figure_read(_Atomic size_t *sum) { return atomic_load_explicit(sum, memory_order_acquire); }

size_t range_mapping_count(void) { return figure_read(&figures.mapping_count); }
size_t range_mapping_bytes(void) { return figure_read(&figures.mapping_bytes); }
uint64_t range_unstashed_count(void) { return load_relaxed(&figures.unstashed_count); }

void range_length_changed(size_t bytes, size_t wanted) {
  figure_add(&figures.mapping_bytes, wanted - bytes);
  for (size_t longest = load_relaxed(&figures.longest_bytes); longest < wanted;)
    if (atomic_compare_exchange_weak(&figures.longest_bytes, &longest, wanted))
      break;
}

void range_entries_set(const struct large *range, uint32_t first) {
  if (!range->mapping)
    map_entries_set(range->base + UNIT_BYTES, range->units - 1, first == ENTRY_LARGE ? ENTRY_LARGE_BODY : first);
  else
    map_start_note(range->base);
  map_entry_set(range->base, first);
}

/* Returns the length in a record that another thread may overwrite, for what follows at the same place. */
static __attribute__((no_sanitize("thread"))) size_t length_read(const struct large *range) {
  return __atomic_load_n(&range->units, __ATOMIC_ACQUIRE) * UNIT_BYTES;
}

/* Returns the entry of a mapping's first unit, and its length; ENTRY_NONE of any other unit. It has a row. What an
 * arena's units hold may be old. A mapping may end or become an arena meanwhile, and its record a slab's. Arenas are
 * marked before their first record is written, and their entries end before the mark goes. So what was read holds if
 * the unit has no mark afterwards, and then still the entry. */
static uint32_t mapping_at(const void *unit, size_t *bytes) {
  uint32_t entry = map_entry_acquire(unit);
  if (entry != ENTRY_LARGE && entry != ENTRY_LARGE_FREE)
    return ENTRY_NONE;
  *bytes = length_read(map_record(unit));
  return !address_in_arena(unit) && map_entry_acquire(unit) == entry ? entry : ENTRY_NONE;
}

/* Searches backwards for the mapping's first unit, without a lock. An address that is not hakmem's while this runs is
 * in no mapping, and a mapping's record is never longer than the mapping (range_units_set). No mapping goes on behind a
 * unit of an arena. */
COLD uint32_t range_entry_inside(const void *address) {
  uintptr_t end = sub_sat((uintptr_t)address, load_relaxed(&figures.longest_bytes));
  uintptr_t unit = round_down((uintptr_t)address, UNIT_BYTES);
  for (; (unit = map_start_before(unit, end)) != 0; unit -= UNIT_BYTES) {
    size_t bytes;
    uint32_t entry = mapping_at((const void *)unit, &bytes);
    if (entry != ENTRY_NONE) {
      bool is_inside = (uintptr_t)address - unit < bytes;
      return !is_inside ? ENTRY_NONE : entry == ENTRY_LARGE ? ENTRY_LARGE_BODY : ENTRY_LARGE_FREE;
    }
    if (address_in_arena((const void *)unit))
      return ENTRY_NONE;
  }
  return ENTRY_NONE;
}

struct large *range_made(char *base, size_t bytes, bool mapping, enum usage from) {
  struct large *range = map_record(base);
  *range = (struct large){.base = base, .units = (uint32_t)(bytes / UNIT_BYTES), .mapping = mapping};
  if (mapping) {
    usage_move_begin(bytes);
    figure_add(&figures.mapping_count, 1);
    range_length_changed(0, bytes);
  }
  usage_move(from, USAGE_LARGE, bytes);
  usage_move_end(bytes);
  counter_note(large_allocations);
  return range;
}

/* The addresses of the objects whose mappings ended last. */
#define ENDED_COUNT 16u
static struct {
  _Atomic(const void *) objects[ENDED_COUNT];
  _Atomic unsigned next;
} ended;

void range_unmapped_note(const void *object) {
  unsigned place = atomic_fetch_add_explicit(&ended.next, 1, memory_order_relaxed) % ENDED_COUNT;
  store_relaxed(&ended.objects[place], object);
}

bool range_was_unmapped(const void *address) {
  for (unsigned i = 0; i < ENDED_COUNT; i++)
    if (address != NULL && load_relaxed(&ended.objects[i]) == address)
      return true;
  return false;
}

/* The kernel joins neighbours to one mapping, and refuses to unmap a part of it when the process has too many mappings.
 * Such a range loses its pages and waits, linked by its record. Threads push one, or take all. Rounds try those that
 * they have taken in turn, and take the others when none is left. So each gets its turn. */
static _Atomic(struct large *) refused_first;

static void refused_push(struct large *range) {
  range->class_next = load_relaxed(&refused_first);
  while (!atomic_compare_exchange_weak(&refused_first, &range->class_next, range))
    ;
}

#define REFUSALS_MAX 32u /* of one round; the next one goes on with those that this one did not try */

COLD void ranges_unmap_again(unsigned most) {
  static struct large *untried; /* the round's lock guards it */
  if (untried == NULL && load_relaxed(&refused_first) != NULL)
    untried = atomic_exchange(&refused_first, NULL);
  for (unsigned tries = 0, refusals = 0; untried != NULL && tries < most && refusals < REFUSALS_MAX; tries++) {
    struct large *range = untried;
    untried = range->class_next; /* first: the record is another thread's once the range is unmapped */
    if (pages_unmap(range->base, large_range_bytes(range)))
      continue;
    refused_push(range);
    refusals++;
  }
}

static void mapping_ended(const struct large *range) {
  figure_add(&figures.mapping_count, (size_t)-1);
  figure_add(&figures.mapping_bytes, -large_range_bytes(range));
  range_unmapped_note(large_object(range));
}

size_t range_end(struct large *range, uint64_t freed_ms, enum usage from) {
  char *base = range->base;
  size_t bytes = large_range_bytes(range);
  if (!range->mapping) {
    extent_give((struct extent){.base = base, .bytes = bytes, .resident = true}, KEEP_BY_PRESET, freed_ms, from);
    return 0;
  }
  mapping_ended(range);
  if (UNLIKELY(range->guarded)) {
    guarded_end(range);
  } else {
    map_entry_set(base, ENTRY_NONE);
    if (!pages_unmap(base, bytes)) {
      os_purge(base, bytes);
      refused_push(range);
    }
  }
  usage_move(from, USAGE_NOWHERE, bytes);
  usage_move_end(bytes);
  return bytes;
}

COLD bool range_become_extent(struct large *range) {
  size_t bytes = large_range_bytes(range);
  if (range->huge || range->spare || range->guarded || range->stays_mapping || bytes >= MAPPING_BYTES_MIN ||
      !map_cover(range->base, bytes))
    return false;
  usage_move_begin(bytes);
  if (extent_adopt(range->base, bytes)) {
    mapping_ended(range);
    range->mapping = false;
    range_entries_set(range, map_entry(range->base));
  }
  usage_move_end(bytes);
  return !range->mapping;
}

/* Gives the pages of a range back at once and ends it. Returns its bytes, 0 if the system refuses. */
static size_t range_end_purged(struct large *range, enum usage from) {
  if (range->mapping)
    return range_end(range, 0, from);
  return extent_give_purged((struct extent){.base = range->base, .bytes = large_range_bytes(range)}, from);
}

/* Ends a range after it was taken out of the cache. */
static size_t release_range(struct large *range, bool is_purged, uint64_t freed_ms) {
  counter_note(cache_evictions);
  return is_purged ? range_end_purged(range, USAGE_PROMISED) : range_end(range, freed_ms, USAGE_PROMISED);
}

/* What the stashes hold takes 0.1 us a stash to add up, and each thread may have one. If there are more than
 * STASHES_FEW, the sum is used for some milliseconds, less what was evicted. */
#define STASHES_FEW 64u /* and for so many more, a millisecond longer */
static struct {
  _Atomic size_t bytes;
  _Atomic uint64_t until_ms;
} stashed;

static size_t stashed_bytes(void) {
  size_t valid_ms = stash_count() / STASHES_FEW;
  if (LIKELY(valid_ms == 0))
    return stash_bytes();
  uint64_t now_ms = os_milliseconds();
  if (now_ms >= load_relaxed(&stashed.until_ms)) {
    store_relaxed(&stashed.bytes, stash_bytes());
    store_relaxed(&stashed.until_ms, now_ms + valid_ms);
  }
  return load_relaxed(&stashed.bytes);
}

/* Takes a range as stash_take_any does. It counts as USAGE_LARGE still, and its bytes begin to move. */
static struct large *take_stashed(uint32_t before_round, size_t units_min, size_t units_max, struct stash **at) {
  struct large *range = stash_take_any(before_round, units_min, units_max, at);
  if (range == NULL)
    return NULL;
  size_t bytes = large_range_bytes(range);
  store_relaxed(&stashed.bytes, sub_sat(load_relaxed(&stashed.bytes), bytes));
  usage_move_begin(bytes);
  range_entries_set(range, ENTRY_LARGE_FREE);
  return range;
}

/* Makes a free extent of one of the oldest cached ranges, or of a stashed one of at least units_min. Returns its bytes,
 * 0: there is none. at: as of stash_take_any. */
static size_t evict_from(size_t units_min, struct stash **at) {
  struct large *cached = big_cache_take_old();
  struct large *range = cached ? cached : take_stashed(STASH_ANY_ROUND, units_min, MAPPING_UNITS_MIN - 1, at);
  if (range == NULL) {
    store_relaxed(&stashed.bytes, 0);
    return 0;
  }
  size_t bytes = large_range_bytes(range);
  if (cached)
    counter_note(cache_evictions);
  range_end(range, os_milliseconds(), cached ? USAGE_PROMISED : USAGE_LARGE);
  return bytes;
}

static size_t kept_bytes(void) {
  return decay_total(&big_cache_decay) + (UNLIKELY(stashes_are(STASHES_LIVE)) ? stashed_bytes() : 0);
}

/* Takes memory that is held and free before new memory, also for slabs: a resident extent. If there is none, it evicts
 * cached and stashed ranges, which join their neighbours. Once it has evicted as much as it needs, it leaves short
 * stashed ranges alone: two lengths that are in use in turn would cut up each other's. EVICTIONS_A_UNIT: more would
 * take longer than the page faults of fresh memory. */
#define EVICTIONS_A_UNIT 8u
static struct extent extent_resident(enum extent_bank bank, size_t bytes, size_t alignment) {
  struct extent extent = extent_take_resident(bank, bytes, alignment);
  if (extent.base != NULL || kept_bytes() < bytes)
    return extent;
  struct stash *at = NULL;
  size_t evicted = 0, more;
  for (size_t left = bytes / UNIT_BYTES * EVICTIONS_A_UNIT; extent.base == NULL && left > 0; left--, evicted += more) {
    more = evict_from(evicted < bytes ? 1 : LARGE_SHORT_UNITS + 1, &at);
    if (more == 0)
      break;
    extent = extent_take_resident(bank, bytes, alignment);
  }
  return extent;
}

/* Between objects of a wide alignment lie gaps, which would be resident on huge pages. */
struct large *range_from_extents(size_t bytes, size_t bytes_fresh, size_t alignment, size_t *dirty) {
  enum extent_bank bank = alignment > UNIT_BYTES ? EXTENT_PLAIN : huge_bank(true);
  struct extent extent = extent_resident(bank, bytes, alignment);
  bool is_earned = extent.base == NULL && bank == EXTENT_HUGE && huge_is_earned(bytes);
  if (extent.base == NULL && !is_earned) /* on huge pages all of a unit more would be resident */
    bytes = bytes_fresh;
  if (extent.base == NULL)
    extent = extent_take(is_earned ? EXTENT_HUGE : EXTENT_PLAIN, bytes, alignment);
  if (extent.base == NULL)
    return NULL;
  if (!extent.resident && extent_bank_of(extent.base) == EXTENT_HUGE)
    huge_probe(extent.base + extent.front, extent.bytes - extent.front);
  else if (!extent.resident)
    huge_watch(extent.base + extent.front, extent.bytes - extent.front);
  *dirty = extent.zero ? extent.front : extent.bytes;
  return range_made(extent.base, extent.bytes, false, extent.resident ? USAGE_FREE : USAGE_PROMISED);
}

struct large *range_with_room(size_t bytes) {
  enum extent_bank bank = huge_bank(true);
  struct extent extent = extent_take_resident(bank, bytes + bytes, UNIT_BYTES), room = extent;
  if (extent.base != NULL) {
    room.base += bytes;
    room.bytes -= bytes;
    extent_give(room, KEEP_BY_PRESET, os_milliseconds(), USAGE_FREE);
  } else {
    extent = extent_resident(bank, bytes, UNIT_BYTES);
  }
  if (extent.base == NULL)
    return NULL;
  return range_made(extent.base, bytes, false, USAGE_FREE);
}

char *range_map(size_t bytes, size_t alignment) {
  char *base = os_map(bytes, alignment);
  if (base == NULL || map_cover(base, UNIT_BYTES))
    return base;
  os_unmap(base, bytes);
  return NULL;
}

/* Makes a range of a mapping whose bytes are promised; NULL of none. */
static struct large *mapping_made(char *base, size_t bytes) {
  if (base != NULL)
    return range_made(base, bytes, true, USAGE_PROMISED);
  usage_move(USAGE_PROMISED, USAGE_NOWHERE, bytes);
  return NULL;
}

struct large *range_mapped(size_t bytes, size_t alignment) {
  struct large *range = usage_reserve(bytes) ? mapping_made(range_map(bytes, alignment), bytes) : NULL;
  if (range != NULL && huge_for_mapping(bytes)) {
    os_huge(range->base, bytes); /* whole: a mapping in two parts could not be moved */
    huge_probe(range->base, bytes);
    range->huge = true;
  }
  return range;
}

#define GUARDED_MAX 8192u /* at most this many, because the kernel limits the number of mappings */

struct large *range_guarded(size_t size, size_t room, size_t alignment) {
  size_t bytes = guarded_bytes(room), front = guarded_front(alignment);
  if (room > PTRDIFF_MAX / 2 || range_mapping_count() >= GUARDED_MAX || !usage_reserve(bytes))
    return NULL;
  struct large *range = mapping_made(guarded_map(size, room, alignment, front), bytes);
  if (range != NULL) {
    range->guarded = true;
    range->guard_order = front != 0 ? (uint8_t)__builtin_ctzl(front) : 0;
    guarded_set_size(range, size);
  }
  return range;
}

size_t range_evict(struct purge purge) {
  size_t given_back = 0, evicted = 0;
  for (struct large *oldest; evicted < purge.most_bytes && (oldest = big_cache_take_oldest(purge)) != NULL;) {
    evicted += large_range_bytes(oldest);
    given_back += release_range(oldest, purge.decider == BY_ENGINE, min_size(purge.before_ms - 1, os_milliseconds()));
  }
  return given_back;
}

/* Evicts while more is cached than the preset allows. Ranges that the preset decides about go first. */
static void cache_shrink(void) {
  size_t cache_max = range_cache_max();
  if (decay_total(&big_cache_decay) <= cache_max)
    return;
  range_evict(purge_by_preset(sub_sat(cache_max, decay_bytes(&big_cache_decay, BY_ENGINE)), UINT64_MAX));
  struct large *range;
  while (decay_total(&big_cache_decay) > cache_max &&
         (range = big_cache_take_oldest(purge_by_engine(false, 0, UINT64_MAX))) != NULL)
    release_range(range, false, os_milliseconds());
}

void range_leaves(const struct large *range) {
  usage_move_begin(large_range_bytes(range));
  counter_note(large_frees);
}

/* A freed range waits for the next request if its site asked for this size several times in a row. So does a mapping of
 * which no extent can be made, unless it is or was longer than extents are: that would only add to the peak. */
void range_cache_or_end(struct large *range) {
  size_t cache_max = range_cache_max(), bytes = large_range_bytes(range);
  bool may_be_kept = !range->guarded && bytes <= cache_max / CACHED_RANGE_SHARE, is_kept = may_be_kept && range->steady;
  unsigned keep = KEEP_BY_PRESET;
  if (large_is_watched())
    keep = observers.large_ended(range->site, range->caller, bytes, is_kept);
  if (UNLIKELY(range->mapping) && keep != KEEP_AT_ONCE && !range_become_extent(range))
    is_kept |= may_be_kept && !range->spare && !range->stays_mapping && bytes < MAPPING_BYTES_MIN;
  if (is_kept && keep != KEEP_AT_ONCE) {
    big_cache_put(range, keep, os_milliseconds());
    cache_shrink();
    range_offer_kept();
    return;
  }
  range_leaves(range);
  if (keep == KEEP_AT_ONCE)
    range_end_purged(range, USAGE_LARGE);
  else
    range_end(range, os_milliseconds(), USAGE_LARGE);
}

void range_offer_kept(void) {
  if (UNLIKELY(load_relaxed(&extent_take_kept) == NULL))
    atomic_store_explicit(&extent_take_kept, extent_resident, memory_order_release);
}

size_t range_evict_stashed(uint32_t before_round, size_t units_min, uint64_t freed_ms, size_t most) {
  size_t moved = 0;
  struct large *range;
  for (struct stash *at = NULL; moved < most && (range = take_stashed(before_round, units_min, SIZE_MAX, &at)) != NULL;
       moved++) {
    size_t bytes = large_range_bytes(range);
    atomic_fetch_add_explicit(&figures.unstashed_count, 1, memory_order_relaxed);
    big_cache_put(range, KEEP_BY_PRESET, freed_ms);
    usage_move_end(bytes);
  }
  cache_shrink();
  return moved;
}

struct large *range_kept(size_t bytes, size_t alignment, uint32_t site) {
  struct large *range = big_cache_take(bytes, alignment, site);
  /* No extent ends a stashed mapping. Each thread that works in its turn would leave one behind, and each length. */
  if (range == NULL && UNLIKELY(bytes >= MAPPING_BYTES_MIN) && stashes_are(STASHES_LIVE) &&
      stashed_bytes() >= MAPPING_BYTES_MIN &&
      range_evict_stashed(STASH_ANY_ROUND, MAPPING_UNITS_MIN, os_milliseconds(), SIZE_MAX) > 0)
    range = big_cache_take(bytes, alignment, site);
  return range;
}
