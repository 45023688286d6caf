#include "large/stash.h"

#include "pages/extent.h"
#include "pages/metadata.h"

#include <string.h>

_Atomic uint32_t stashes_state, stash_units_max;

#define SHARES_MAX 4u /* however many stashes there are */

static struct {
  _Atomic(struct stash *) first;
  _Atomic size_t bytes_max; /* of all */
  _Atomic uint32_t count;
} stashes;

static struct stash *stashes_first(void) { return atomic_load_explicit(&stashes.first, memory_order_acquire); }

static uint32_t units_of_share(void) {
  size_t shares = min_size(max_size(atomic_load(&stashes.count), 1), SHARES_MAX);
  return (uint32_t)(atomic_load(&stashes.bytes_max) / shares / UNIT_BYTES);
}

/* Call after a change. Two threads may make or open stashes at once: the one that stores last stores what holds. */
static void share_bytes(void) {
  uint32_t units;
  do
    atomic_store(&stash_units_max, units = units_of_share());
  while (units != units_of_share());
}

struct stash *stash_make(void) {
  struct stash *stash = metadata_take_forever(sizeof *stash);
  if (stash == NULL)
    return NULL;
  stash->next_stash = stashes_first();
  while (!atomic_compare_exchange_weak_explicit(&stashes.first, &stash->next_stash, stash, memory_order_release,
                                                memory_order_acquire))
    ;
  atomic_fetch_add(&stashes.count, 1);
  share_bytes();
  return stash;
}

static uint64_t word_at(const struct stash *stash, unsigned node) { return load_relaxed(&stash->words[node]); }
static size_t word_units(uint64_t word) { return word >> STASH_UNITS_SHIFT; }

static size_t units_in(const struct stash *stash) {
  size_t units = 0;
  for (unsigned node = 1, last = load_relaxed(&stash->node_last); node <= last; node++)
    units += word_units(word_at(stash, node));
  return units;
}

static void sweep_place(struct stash *stash, struct stash_place *place) {
  unsigned count = 0;
  uint8_t *link = &place->top;
  for (unsigned looks = 0; *link != 0 && looks < STASH_RANGES; looks++) {
    unsigned node = *link;
    if (word_at(stash, node) != 0) {
      link = &stash->next[node];
      count++;
      continue;
    }
    *link = stash->next[node];
    stash_node_free(stash, node);
  }
  place->count = (uint8_t)count;
}

/* Drops the nodes that others have emptied. False: there are none. */
static bool sweep_places(struct stash *stash) {
  uint64_t robbed = load_relaxed(&stash->robbed_units);
  if (robbed == stash->robbed_seen)
    return false;
  for (unsigned i = 0; i < STASH_PLACES; i++)
    sweep_place(stash, &stash->places[i]);
  stash->held_units = units_in(stash) + robbed;
  stash_stepped(); /* a fork in between leaves the rest to the next sweep */
  stash->robbed_seen = robbed;
  return true;
}

/* Returns the place of a length, or else one without a length, where it may have one: places are filled in the order of
 * the search. NULL: others have all. */
static struct stash_place *place_of(struct stash *stash, size_t units) {
  unsigned first = stash_hash(units);
  for (unsigned looks = 0; looks < STASH_PLACES; looks++) {
    struct stash_place *place = &stash->places[(first + looks) % STASH_PLACES];
    if (place->units == units || place->units == 0)
      return place;
  }
  return NULL;
}

/* Takes the newest range of a length. NULL: there is none. A fork may leave a ring of empty nodes. */
static struct large *take_from(struct stash *stash, struct stash_place *place) {
  struct large *range = NULL;
  for (unsigned looks = 0; range == NULL && looks < STASH_RANGES; looks++) {
    if (place == NULL || place->top == 0)
      return NULL;
    range = stash_pop(stash, place);
  }
  return range;
}

/* The next request of this kind may take from the place at once. */
static void habit_note(struct stash *stash, size_t size, uint32_t site, unsigned class,
                       const struct stash_place *place) {
  size_t units = stash_units_of(size);
  struct stash_habit *habit = stash_habit_of(stash, units, site);
  habit->units = 0;
  stash_stepped();
  habit->site = site;
  habit->note = site_note_steady(class);
  habit->place = (uint8_t)(place - stash->places);
  stash_stepped();
  habit->units = (uint32_t)units;
}

void *stash_take(struct stash *stash, size_t size, size_t alignment, uintptr_t site) {
  size_t length = large_length_steady(size, alignment);
  struct stash_place *place = place_of(stash, length / UNIT_BYTES);
  struct large *range = take_from(stash, place);
  if (range == NULL && large_may_be_bare(length, size)) {
    place = place_of(stash, length / UNIT_BYTES - 1);
    range = take_from(stash, place);
  }
  if (range == NULL)
    return NULL;
  unsigned class = units_class(length / UNIT_BYTES);
  range->steady = site_is_steady(site_hash(site), class);
  if (range->steady)
    habit_note(stash, size, site_hash(site), class, place);
  return stash_object(stash, range, size, alignment, site);
}

/* Returns a place that may change its length, NULL: all are in use. */
static struct stash_place *empty_place(struct stash *stash) {
  struct stash_place *place = NULL;
  for (unsigned looks = 0; looks < STASH_PLACES; looks++)
    if ((place = &stash->places[stash->next_place++ % STASH_PLACES])->top == 0)
      return place;
  return NULL;
}

void stash_expect(struct stash *stash, size_t units) {
  sweep_places(stash);
  struct stash_place *place = place_of(stash, units);
  if (place == NULL && (place = empty_place(stash)) == NULL)
    return;
  if (place->units != units) {
    memset(stash->habits, 0, sizeof stash->habits); /* one may be of the place's former length */
    stash_stepped();
    *place = (struct stash_place){.units = (uint32_t)units};
  }
  if (place->was_full) {
    place->was_full = false;
    place->wanted = (uint8_t)min_size(2u * place->wanted + 1u, STASH_RANGES);
  }
}

bool stash_put(struct stash *stash, struct large *range, void *object) {
  struct stash_place *place = stash_admits(range) ? place_of(stash, range->units) : NULL;
  bool is_put = place != NULL && stash_put_at(stash, place, range, object);
  if (is_put || place == NULL || !sweep_places(stash) || !stash_put_at(stash, place, range, object))
    return is_put;
  place->was_full = false; /* only emptied nodes were in the way */
  return true;
}

void stash_open(size_t bytes_max) {
  atomic_store(&stashes.bytes_max, min_size(bytes_max, STASH_BYTES_MAX));
  share_bytes();
  atomic_fetch_or(&stashes_state, STASHES_OPEN | STASHES_LIVE);
}

void stash_close(void) {
  if (UNLIKELY(stashes_are(STASHES_OPEN)))
    atomic_fetch_and(&stashes_state, ~STASHES_OPEN);
}

/* A thread may have read the state before the stashes were closed, and put a range afterwards. So they count as live
 * for one more round. */
void stash_next_round(void) {
  uint32_t state = atomic_load(&stashes_state), next;
  bool is_used = false, is_held = false;
  for (const struct stash *stash = stashes_first(); stash; stash = stash->next_stash) {
    uint32_t last_put = load_relaxed(&stash->last_put);
    is_used |= last_put != 0 && ((last_put ^ state) & STASHES_ROUND) == 0;
    is_held |= units_in(stash) != 0;
  }
  do {
    next = ((state + 1) & STASHES_ROUND) | (is_used ? STASHES_USED : 0);
    if (is_used || is_held)
      next |= STASHES_LIVE | (state & STASHES_OPEN);
    else if ((state & STASHES_OPEN) != 0) /* they close */
      next |= STASHES_LIVE;
  } while (!atomic_compare_exchange_weak(&stashes_state, &state, next));
}

/* Tells whether the range was put before the round. Older ones are gone long before the low bits repeat, and the two
 * rounds from this one on are the only later ones. */
static bool is_before(uint64_t word, uint32_t round) {
  return round == STASH_ANY_ROUND || ((round - 1 - word) & (STASH_ROUNDS - 1)) < STASH_ROUNDS - 2;
}

struct large *stash_take_any(uint32_t before_round, size_t units_min, size_t units_max, struct stash **at) {
  for (struct stash *stash = *at != NULL ? *at : stashes_first(); stash; stash = stash->next_stash)
    for (unsigned node = 1, last = load_relaxed(&stash->node_last); node <= last; node++) {
      uint64_t word = word_at(stash, node);
      if (word == 0 || !is_before(word, before_round) || word_units(word) < units_min || word_units(word) > units_max ||
          !atomic_compare_exchange_strong_explicit(&stash->words[node], &word, 0, memory_order_acquire,
                                                   memory_order_relaxed))
        continue;
      atomic_fetch_add_explicit(&stash->robbed_units, word_units(word), memory_order_relaxed);
      *at = stash;
      return stash_range(word);
    }
  return NULL;
}

void stash_stats(struct stash_stats *out) {
  *out = (struct stash_stats){0};
  for (const struct stash *stash = stashes_first(); stash; stash = stash->next_stash) {
    out->puts += load_relaxed(&stash->puts);
    out->takes += load_relaxed(&stash->takes);
    out->bytes += units_in(stash) * UNIT_BYTES;
  }
}

size_t stash_count(void) { return load_relaxed(&stashes.count); }

size_t stash_bytes(void) {
  struct stash_stats stats;
  stash_stats(&stats);
  return stats.bytes;
}
