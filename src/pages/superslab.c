#include "pages/superslab.h"

#include "base/counters.h"
#include "base/list.h"
#include "base/options.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/nodes.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/huge.h"
#include "pages/page_map.h"

#include <string.h>

#define UNITS_ALL 0xffffffffu
#define NOT_LISTED 0xff
#define RESIDENT_ORDERS (UNIT_ORDER_MAX + 2) /* the last one: no resident unit */
#define RESIDENT_NONE (UNIT_ORDER_MAX + 1)

struct links {
  struct superslab *next, *previous;
};

struct superslab {
  char *base; /* const; NULL while no superslab lies here */
  uint32_t free;
  uint32_t resident; /* subset of free: not given back to the system since it was used, or filled */
  struct links by_run;
  struct links by_age;
  uint64_t given_ms;      /* when a unit was last given back */
  uint8_t run_order;      /* longest run of free units; NOT_LISTED if no unit is free */
  uint8_t resident_order; /* longest run of resident units; both name its list */
  uint8_t keep;           /* its list by age, if any unit is resident */
  uint8_t node;           /* const: its lists by runs are this node's */
  bool not_zero;          /* after a lazy purge: free units that are not resident may not read as zero */
};
_Static_assert(sizeof(struct superslab) <= RECORD_BYTES, "a superslab's record fits the leaf");

QUEUE_OF(run_list, superslab, by_run.next, by_run.previous)
QUEUE_OF(age_list, superslab, by_age.next, by_age.previous)

struct node_lists {
  struct run_list by_run[UNIT_ORDER_MAX + 1][RESIDENT_ORDERS];
};

static struct {
  struct lock lock;
  struct node_lists of_first_node;
  struct age_list resident[KEEP_LISTS];
  size_t count;               /* superslabs */
  size_t outside_bytes;       /* of runs outside them */
  _Atomic size_t dense_bytes; /* of runs that were to be populated, since the last superslab that was */
} units;

static struct node_lists of_other_nodes[NODES_MAX - 1] SPARSE;

struct decay units_decay;
bool units_are_wiped;

static struct node_lists *lists_of(unsigned node) {
  return LIKELY(node == 0) ? &units.of_first_node : &of_other_nodes[node - 1];
}

static uint32_t run_mask(unsigned order) { return UNITS_ALL >> (SUPERSLAB_UNITS - (1u << order)); }

/* Returns a set in which bit i means: the 2^order units from i on are all in `set`, and i is a multiple of 2^order. */
static uint32_t runs_in(uint32_t set, unsigned order) {
  static const uint32_t aligned[UNIT_ORDER_MAX + 1] = {0xffffffff, 0x55555555, 0x11111111, 0x01010101, 0x00010001, 1};
  for (unsigned i = 0; i < order; i++)
    set &= set >> (1u << i);
  return set & aligned[order];
}

static NOINLINE unsigned longest_run(uint32_t free) {
  if (free == 0)
    return NOT_LISTED;
  unsigned order = UNIT_ORDER_MAX;
  while (runs_in(free, order) == 0)
    order--;
  return order;
}

static size_t bytes_of(uint32_t set) { return (size_t)__builtin_popcount(set) * UNIT_BYTES; }

static void resident_change(unsigned keep, size_t change) {
  const struct superslab *oldest = units.resident[keep].first;
  decay_change(&units_decay, keep, change, oldest ? oldest->given_ms : 0);
}

/* All changes of a superslab's units go through this function. other: where the units were counted that become resident
 * and free, or are counted that no longer are. */
static void set_units(struct superslab *s, uint32_t free, uint32_t resident, enum usage other) {
  hak_assert((resident & ~free) == 0);
  unsigned order = longest_run(free);
  unsigned resident_order = resident ? longest_run(resident) : RESIDENT_NONE;
  if (order != s->run_order || resident_order != s->resident_order) {
    if (s->run_order != NOT_LISTED)
      run_list_remove(&lists_of(s->node)->by_run[s->run_order][s->resident_order], s);
    if (order != NOT_LISTED) {
      struct run_list *list = &lists_of(s->node)->by_run[order][resident_order];
      run_list_insert(list, s, list->last);
    }
    s->run_order = (uint8_t)order;
    s->resident_order = (uint8_t)resident_order;
  }
  if (!s->resident && resident)
    age_list_insert(&units.resident[s->keep], s, units.resident[s->keep].last);
  else if (s->resident && !resident)
    age_list_remove(&units.resident[s->keep], s);
  if (resident != s->resident) {
    size_t more = bytes_of(resident & ~s->resident), fewer = bytes_of(s->resident & ~resident);
    resident_change(s->keep, more - fewer);
    if (more > 0)
      usage_move(other, USAGE_FREE, more);
    if (fewer > 0)
      usage_move(USAGE_FREE, other, fewer);
  }
  s->free = free;
  s->resident = resident;
}

static struct extent take_resident(unsigned node, size_t bytes) {
  return extent_take_resident(huge_bank(false), node, bytes, bytes);
}

static struct superslab *superslab_open(struct extent extent) {
  if (extent.base == NULL)
    return NULL;
  map_entries_set(extent.base, SUPERSLAB_UNITS, ENTRY_NONE);
  struct superslab *s = map_superslab_record(extent.base);
  *s = (struct superslab){.base = extent.base,
                          .given_ms = os_milliseconds(),
                          .run_order = NOT_LISTED,
                          .keep = KEEP_BY_PRESET,
                          .node = (uint8_t)extent_node_of(extent.base),
                          .not_zero = !extent.resident && !extent.zero};
  units.count++;
  counter_note(superslabs_opened);
  set_units(s, UNITS_ALL, extent.resident ? UNITS_ALL : 0, USAGE_FREE);
  usage_move_end(SUPERSLAB_BYTES);
  HAK_PROBE(superslab_take, s->base, extent.resident);
  return s;
}

/* Call when all units are free: turns the superslab into an extent, which is resident if any unit is. Where a limit
 * leaves no room to count the other units as resident, the superslab stays until it is purged. */
COLD static void superslab_close(struct superslab *s) {
  size_t more = s->resident != 0 ? bytes_of(~s->resident) : 0;
  if (more > 0 && !usage_reserve(more))
    return;
  struct extent extent = {.base = s->base, .bytes = SUPERSLAB_BYTES, .resident = s->resident != 0};
  extent.zero = !extent.resident && !s->not_zero;
  usage_move_begin(SUPERSLAB_BYTES);
  set_units(s, 0, 0, USAGE_FREE);
  if (more > 0)
    usage_move(USAGE_PROMISED, USAGE_FREE, more);
  s->base = NULL;
  units.count--;
  counter_note(superslabs_closed);
  extent_give(extent, s->given_ms, extent.resident ? USAGE_FREE : USAGE_NOWHERE);
}

static struct superslab *superslab_open_fresh(void) {
  enum extent_bank bank = huge_bank(false);
  struct extent extent = extent_take(bank, SUPERSLAB_BYTES, SUPERSLAB_BYTES);
  if (extent.base == NULL && bank != EXTENT_PLAIN)
    extent = extent_take(EXTENT_PLAIN, SUPERSLAB_BYTES, SUPERSLAB_BYTES);
  return superslab_open(extent);
}

/* Makes a run of an extent. One that is not resident is in USAGE_PROMISED. */
static void *run_outside(struct extent extent, size_t bytes) {
  if (extent.base == NULL)
    return NULL;
  units.outside_bytes += bytes;
  usage_move(extent.resident ? USAGE_FREE : USAGE_PROMISED, USAGE_SLABS, bytes);
  return extent.base;
}

#define SUPERSLABS_MIN 256u /* that fit into a limit, so that the free units of one are next to nothing */

/* Tells whether to open a superslab. Where memory is short and its limit low, its free units serve no large object. */
static bool superslab_pays(bool is_short) {
  return LIKELY(!is_short) || os_memory_limit() / SUPERSLAB_BYTES >= SUPERSLABS_MIN;
}

/* Takes a run as an extent by itself, because a superslab does not pay, or because there is no room for one. */
COLD static void *take_outside(unsigned order) {
  size_t bytes = UNIT_BYTES << order;
  if (!usage_reserve(bytes))
    return NULL;
  enum extent_bank bank = huge_bank(false);
  struct extent extent = extent_take(bank, bytes, bytes);
  if (extent.base == NULL)
    extent = extent_take(bank == EXTENT_PLAIN ? EXTENT_HUGE : EXTENT_PLAIN, bytes, bytes);
  void *run = run_outside(extent, bytes);
  if (run == NULL || extent.resident) /* not used, or not needed */
    usage_move(USAGE_PROMISED, USAGE_NOWHERE, bytes);
  return run;
}

static void give_outside(void *run, unsigned order) {
  size_t bytes = UNIT_BYTES << order;
  units.outside_bytes -= bytes;
  extent_give((struct extent){.base = run, .bytes = bytes, .resident = true}, os_milliseconds(), USAGE_SLABS);
}

/* Finds the superslab of a node with the shortest run that serves; is_resident: with a resident one, which costs no
 * page faults. */
static ALWAYS_INLINE struct superslab *find_run(unsigned node, unsigned order, bool is_resident) {
  const struct node_lists *lists = lists_of(node);
  for (unsigned free = order; free <= UNIT_ORDER_MAX; free++) {
    unsigned last = is_resident ? free : RESIDENT_NONE;
    for (unsigned resident = is_resident ? order : 0; resident <= last; resident++)
      if (lists->by_run[free][resident].first)
        return lists->by_run[free][resident].first;
  }
  return NULL;
}

COLD static struct superslab *find_free_of_others(unsigned node, unsigned order) {
  struct superslab *s = NULL;
  for (unsigned i = 1; s == NULL && i < os_nodes(); i++)
    s = find_run((node + i) % os_nodes(), order, false);
  return s;
}

/* Takes a run out of a superslab. NULL if a limit does not allow it. */
static void *take_from(struct superslab *s, unsigned order) {
  uint32_t runs = runs_in(s->resident, order);
  if (runs == 0)
    runs = runs_in(s->free, order);
  unsigned first = (unsigned)__builtin_ctz(runs);
  uint32_t mask = run_mask(order) << first;
  size_t more = bytes_of(mask & ~s->resident);
  if (more > 0 && !usage_reserve(more)) {
    if (s->free == UNITS_ALL)
      superslab_close(s);
    return NULL;
  }
  usage_move_begin(UNIT_BYTES << order);
  set_units(s, s->free & ~mask, s->resident & ~mask, USAGE_SLABS);
  if (more > 0)
    usage_move(USAGE_PROMISED, USAGE_SLABS, more);
  return s->base + first * UNIT_BYTES;
}

static void *resident_run_of(unsigned node, unsigned order) {
  size_t bytes = UNIT_BYTES << order;
  struct superslab *s = find_run(node, order, true);
  if (s == NULL)
    s = superslab_open(take_resident(node, SUPERSLAB_BYTES));
  return s ? take_from(s, order) : run_outside(take_resident(node, bytes), bytes);
}

/* Takes a run that is resident, wherever it lies; of other nodes than the thread's, if there is none there. If there is
 * none at all, cached extents become free until there is one. */
static void *resident_run(unsigned node, unsigned order) {
  size_t (*evict)(void) = atomic_load_explicit(&extents_evict, memory_order_acquire);
  for (size_t evicted = 0, more;; evicted += more) {
    lock_take(&units.lock);
    void *run = resident_run_of(node, order);
    for (unsigned i = 1; UNLIKELY(i < os_nodes()) && run == NULL; i++)
      run = resident_run_of((node + i) % os_nodes(), order);
    lock_give(&units.lock);
    if (run != NULL || evict == NULL || evicted >= UNIT_BYTES << order || (more = evict()) == 0)
      return run;
  }
}

/* Counts a superslab whose first run was just taken as resident, if it is to come on a huge page. Its other units are
 * the next that are taken. The lock is held. */
static bool make_dense(struct superslab *s) {
  size_t bytes = bytes_of(s->free);
  if (s->resident != 0 || extent_bank_of(s->base) == EXTENT_HUGE ||
      !huge_for_superslab(usage_slabs(), load_relaxed(&units.dense_bytes)) || !usage_reserve(bytes))
    return false;
  store_relaxed(&units.dense_bytes, 0);
  usage_move_begin(bytes);
  set_units(s, s->free, s->free, USAGE_PROMISED);
  usage_move_end(bytes);
  return true;
}

/* Resident memory comes first. Where memory is short, the shortest free run does: units in many superslabs would be in
 * the way of large objects. */
void *units_take(unsigned order, bool to_populate) {
  bool is_short = usage_is_short();
  unsigned node = os_node();
  if (to_populate)
    atomic_fetch_add_explicit(&units.dense_bytes, UNIT_BYTES << order, memory_order_relaxed);
  void *run = is_short ? NULL : resident_run(node, order);
  if (run != NULL) {
    if (UNLIKELY(units_are_wiped))
      memset(run, 0, UNIT_BYTES << order);
    return run;
  }
  bool is_fresh = false;
  lock_take(&units.lock);
  struct superslab *s = find_run(node, order, false);
  if (s == NULL && UNLIKELY(is_short))
    s = find_free_of_others(node, order);
  if (s == NULL && superslab_pays(is_short))
    is_fresh = (s = superslab_open_fresh()) != NULL;
  if (UNLIKELY(s == NULL))
    s = find_free_of_others(node, order);
  run = s ? take_from(s, order) : take_outside(order);
  to_populate = to_populate && !is_short && s != NULL && extent_bank_of(s->base) != EXTENT_HUGE;
  bool to_fill = to_populate && is_fresh && run != NULL && make_dense(s);
  lock_give(&units.lock);
  if (UNLIKELY(units_are_wiped && run != NULL) && !os_purge(run, UNIT_BYTES << order))
    memset(run, 0, UNIT_BYTES << order);
  if (to_fill)
    huge_fill(run);
  else if (to_populate && run != NULL)
    os_populate(run, UNIT_BYTES << order);
  else if (UNLIKELY(is_fresh && run != NULL && extent_bank_of(s->base) == EXTENT_HUGE))
    huge_probe(run, UNIT_BYTES << order);
  return run;
}

/* Moves the superslab to the end of a list by age, because it was in use just now. */
static void note_given(struct superslab *s, unsigned keep) {
  if (s->resident) {
    age_list_remove(&units.resident[s->keep], s);
    resident_change(s->keep, -bytes_of(s->resident));
  }
  s->given_ms = os_milliseconds();
  s->keep = (uint8_t)keep;
  if (s->resident) {
    age_list_insert(&units.resident[keep], s, units.resident[keep].last);
    resident_change(keep, bytes_of(s->resident));
  }
}

/* Tells whether a wholly free superslab stays one, because its pages are to go back sooner than an extent's, which the
 * preset decides about. */
static bool goes_sooner(const struct superslab *s) {
  return s->resident && s->keep != KEEP_BY_PRESET && option_value(OPTION_PURGE) != PURGE_OFF &&
         keep_delay_ms((enum keep)s->keep) < (uint64_t)option_value(OPTION_PURGE_DELAY_MS);
}

void units_give(void *run, unsigned order, unsigned keep) {
  HOLD_LOCK(&units.lock);
  struct superslab *s = map_superslab_record(run);
  if (UNLIKELY(s->base == NULL)) {
    give_outside(run, order);
    return;
  }
  uint32_t mask = run_mask(order) << map_unit_in_row(run);
  hak_assert((s->free & mask) == 0);
  note_given(s, keep);
  set_units(s, s->free | mask, s->resident | mask, USAGE_SLABS);
  usage_move_end(UNIT_BYTES << order);
  if (s->free == UNITS_ALL && !goes_sooner(s))
    superslab_close(s);
}

/* Purges a superslab's resident free units. The lock is held, but not over the system calls. Returns the bytes, 0 if
 * the system refuses. */
static size_t superslab_purge(struct superslab *s) {
  /* During the system calls the units count as taken, so no other thread can get them. */
  uint32_t mask = s->resident;
  usage_move_begin(bytes_of(mask));
  set_units(s, s->free & ~mask, 0, USAGE_PROMISED);
  lock_give(&units.lock);
  bool zero = true, refused = false;
  for (uint32_t left = mask; left != 0;) {
    uint32_t lowest = left & -left;
    uint32_t run = left & ~(left + lowest); /* the ones from the lowest up to the first gap */
    enum purge_result result = pages_purge(s->base + (size_t)__builtin_ctz(run) * UNIT_BYTES, bytes_of(run));
    zero &= result == PURGE_GONE;
    refused |= result == PURGE_REFUSED;
    left &= ~run;
  }
  lock_take(&units.lock);
  s->not_zero |= !zero;
  if (refused) /* counts as used just now: it is not tried again at once */
    note_given(s, KEEP_BY_PRESET);
  set_units(s, s->free | mask, refused ? s->resident | mask : s->resident, USAGE_PROMISED);
  if (!refused)
    usage_move(USAGE_PROMISED, USAGE_NOWHERE, bytes_of(mask));
  usage_move_end(bytes_of(mask));
  if (s->free == UNITS_ALL)
    superslab_close(s);
  return refused ? 0 : bytes_of(mask);
}

COLD size_t units_purge(struct purge purge) {
  size_t purged = 0;
  HOLD_LOCK(&units.lock);
  size_t bytes = 1;
  for (unsigned keep; bytes > 0 && purged < purge.most_bytes && (keep = decay_next(&units_decay, purge)) < KEEP_LISTS;
       purged += bytes)
    bytes = superslab_purge(units.resident[keep].first);
  return purged;
}

COLD void units_stats(struct unit_stats *out) {
  HOLD_LOCK(&units.lock);
  size_t resident = decay_total(&units_decay), superslab_bytes = units.count * SUPERSLAB_BYTES + units.outside_bytes;
  *out = (struct unit_stats){
      .superslab_bytes = superslab_bytes,
      .resident_free_bytes = resident,
      .other_free_bytes = superslab_bytes - usage_slabs() - resident, /* they change under this lock */
  };
}

#ifdef HAK_DEBUG
bool superslabs_are_valid(void) {
  bool valid = true;
  size_t resident_bytes = 0, learned_bytes = 0;
  HOLD_LOCK(&units.lock);
  for (unsigned list = 0; list < os_nodes() * (UNIT_ORDER_MAX + 1); list++)
    for (unsigned resident = 0; resident < RESIDENT_ORDERS; resident++) {
      unsigned node = list / (UNIT_ORDER_MAX + 1), order = list % (UNIT_ORDER_MAX + 1);
      for (struct superslab *s = lists_of(node)->by_run[order][resident].first; s; s = s->by_run.next)
        valid &= s->run_order == order && longest_run(s->free) == order && (s->resident & ~s->free) == 0 &&
                 s->resident_order == resident &&
                 (s->resident ? longest_run(s->resident) : RESIDENT_NONE) == resident && s->node == node &&
                 extent_node_of(s->base) == node;
    }
  for (unsigned keep = 0; keep < KEEP_LISTS; keep++)
    for (struct superslab *s = units.resident[keep].first; s; s = s->by_age.next) {
      valid &= s->resident != 0 && s->keep == keep;
      valid &= s->by_age.next == NULL || s->given_ms <= s->by_age.next->given_ms;
      resident_bytes += bytes_of(s->resident);
      learned_bytes += keep == KEEP_BY_PRESET ? 0 : bytes_of(s->resident);
    }
  valid &= resident_bytes == decay_total(&units_decay) && learned_bytes == decay_bytes(&units_decay, BY_ENGINE);
  return valid;
}
#endif
