#include "map/superslab.h"

#include "base/options.h"
#include "map/page_map.h"
#include "map/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"
#include "policy/purge_policy.h"

#define UNITS_ALL 0xffffffffu
#define NOT_LISTED 0xff

/* Committing grows with the heap: few system calls for a big one, little charged for a small one. */
#define COMMIT_BYTES_MIN ((size_t)8 << 20)
#define COMMIT_BYTES_MAX ((size_t)64 << 20)
#define ARENA_BYTES_MIN ((size_t)64 << 20)
#define PURGE_BYTES_MIN ((size_t)1 << 20)
#define PURGE_MARGIN ((size_t)4 << 20) /* a purge goes so far below its bound: the next run is not due at once */

struct links {
  struct superslab *next, *previous;
};

struct superslab {
  char *base; /* const; NULL while no superslab lies here */
  uint32_t free;
  uint32_t resident; /* subset of free: not given back to the system since it was used */
  struct links by_run;
  struct links by_age;
  uint64_t given_ms; /* when a unit was last given back */
  uint8_t run_order; /* list it is in, NOT_LISTED if no unit is free */
};
_Static_assert(sizeof(struct superslab) <= RECORD_BYTES, "a superslab's record fits the leaf");

struct list {
  struct superslab *first, *last;
};

static struct {
  struct lock purging; /* held over a whole purge, so that a fork finds no units half-way; only tried */
  struct lock lock;
  struct list by_run[UNIT_ORDER_MAX + 1];
  struct list resident;
  char *next, *committed, *end; /* current arena: carved up to next, accessible up to committed */
  size_t commit_step;
  struct demand demand;
  size_t reserved_bytes, carved_bytes;
  /* Written under the lock, read without: */
  _Atomic size_t taken_bytes, resident_free_bytes, keep_for_now_bytes;
  _Atomic uint64_t oldest_ms; /* given_ms of the first in the resident list */
} units;

#define LIST_OPERATIONS(name, links)                                                                                   \
  static void name##_append(struct list *list, struct superslab *s) {                                                  \
    s->links.next = NULL;                                                                                              \
    s->links.previous = list->last;                                                                                    \
    *(list->last ? &list->last->links.next : &list->first) = s;                                                        \
    list->last = s;                                                                                                    \
  }                                                                                                                    \
  static void name##_remove(struct list *list, struct superslab *s) {                                                  \
    *(s->links.previous ? &s->links.previous->links.next : &list->first) = s->links.next;                              \
    *(s->links.next ? &s->links.next->links.previous : &list->last) = s->links.previous;                               \
  }
LIST_OPERATIONS(run_list, by_run)
LIST_OPERATIONS(age_list, by_age)

static uint32_t run_mask(unsigned order) { return order == 5 ? UNITS_ALL : (1u << (1u << order)) - 1; }

/* Bit i of the result: the 2^order units from i on are all in `set`, and i is a multiple of 2^order. */
static uint32_t runs_in(uint32_t set, unsigned order) {
  static const uint32_t aligned[UNIT_ORDER_MAX + 1] = {0xffffffff, 0x55555555, 0x11111111, 0x01010101, 0x00010001, 1};
  for (unsigned i = 0; i < order; i++)
    set &= set >> (1u << i);
  return set & aligned[order];
}

static unsigned longest_run(uint32_t free) {
  if (free == 0)
    return NOT_LISTED;
  unsigned order = UNIT_ORDER_MAX;
  while (runs_in(free, order) == 0)
    order--;
  return order;
}

/* Under the lock: a plain store is enough. */
static void sum_add(_Atomic size_t *sum, size_t bytes) {
  atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + bytes, memory_order_relaxed);
}
static size_t sum_read(_Atomic size_t *sum) { return atomic_load_explicit(sum, memory_order_relaxed); }

static void note_oldest(void) {
  const struct superslab *oldest = units.resident.first;
  atomic_store_explicit(&units.oldest_ms, oldest ? oldest->given_ms : 0, memory_order_relaxed);
}

/* Every change of a superslab's units goes through here. */
static void set_units(struct superslab *s, uint32_t free, uint32_t resident) {
  hak_assert((resident & ~free) == 0);
  unsigned order = longest_run(free);
  if (order != s->run_order) {
    if (s->run_order != NOT_LISTED)
      run_list_remove(&units.by_run[s->run_order], s);
    if (order != NOT_LISTED)
      run_list_append(&units.by_run[order], s);
    s->run_order = (uint8_t)order;
  }
  if (!s->resident && resident)
    age_list_append(&units.resident, s);
  else if (s->resident && !resident)
    age_list_remove(&units.resident, s);
  sum_add(&units.resident_free_bytes, (size_t)__builtin_popcount(resident) * UNIT_BYTES);
  sum_add(&units.resident_free_bytes, -(size_t)__builtin_popcount(s->resident) * UNIT_BYTES);
  s->free = free;
  s->resident = resident;
  note_oldest();
}

/* A new arena: as much as all before it, so that a small program reserves little (mlockall, and limits
 * set later, count it). Where address space is limited, less, so that large objects keep a share. */
static bool arena_reserve(void) {
  static const size_t steps[] = {ARENA_BYTES_MIN, (size_t)4 << 20, SUPERSLAB_BYTES};
  size_t limit = os_address_space_limit();
  size_t size =
      min_size((size_t)option_value(OPTION_RESERVE_MB) << 20, max_size(ARENA_BYTES_MIN, units.reserved_bytes));
  if (limit != SIZE_MAX)
    size = min_size(size, max_size(round_down(limit / 64, SUPERSLAB_BYTES), SUPERSLAB_BYTES));
  size = round_up(size, SUPERSLAB_BYTES);
  char *base = os_reserve(size, SUPERSLAB_BYTES);
  for (unsigned i = 0; base == NULL && i < sizeof steps / sizeof steps[0]; i++) {
    if (steps[i] < size)
      base = os_reserve(size = steps[i], SUPERSLAB_BYTES);
  }
  if (base == NULL)
    return false;
  units.next = units.committed = base;
  units.end = base + size;
  units.reserved_bytes += size;
  return true;
}

/* Opens the next superslab of the current arena. */
static struct superslab *superslab_carve(void) {
  if (units.next == units.end && !arena_reserve())
    return NULL;
  if (units.next == units.committed) {
    size_t left = (size_t)(units.end - units.next);
    size_t step = min_size(left, max_size(units.commit_step, COMMIT_BYTES_MIN));
    if (!os_commit(units.next, step)) {
      step = SUPERSLAB_BYTES;
      if (!os_commit(units.next, step))
        return NULL;
    }
    units.committed += step;
    units.commit_step = min_size(step * 2, COMMIT_BYTES_MAX);
  }
  if (!map_cover(units.next, SUPERSLAB_BYTES))
    return NULL;
  struct superslab *s = map_superslab_record(units.next);
  s->run_order = NOT_LISTED;
  __atomic_store_n(&s->base, units.next, __ATOMIC_RELAXED); /* address_in_superslab may look on */
  units.next += SUPERSLAB_BYTES;
  units.carved_bytes += SUPERSLAB_BYTES;
  set_units(s, UNITS_ALL, 0);
  return s;
}

static uint64_t delay_ms(void) { return (uint64_t)option_value(OPTION_PURGE_DELAY_MS); }

/* The lock is held. */
static void note_demand(void) {
  size_t taken = sum_read(&units.taken_bytes);
  demand_note(&units.demand, taken, os_milliseconds(), max_size(delay_ms(), 1));
  size_t keep_bytes = (size_t)option_value(OPTION_KEEP_MB) << 20;
  atomic_store_explicit(&units.keep_for_now_bytes, purge_keep_for_now(&units.demand, keep_bytes, taken),
                        memory_order_relaxed);
}

void *units_take(unsigned order) {
  void *run = NULL;
  lock_take(&units.lock);
  struct superslab *s = NULL;
  for (unsigned i = order; s == NULL && i <= UNIT_ORDER_MAX; i++)
    s = units.by_run[i].first;
  if (s == NULL)
    s = superslab_carve();
  if (s != NULL) {
    uint32_t runs = runs_in(s->resident, order); /* resident ones cost no page faults */
    if (runs == 0)
      runs = runs_in(s->free, order);
    unsigned first = (unsigned)__builtin_ctz(runs);
    uint32_t mask = run_mask(order) << first;
    set_units(s, s->free & ~mask, s->resident & ~mask);
    run = s->base + first * UNIT_BYTES;
    sum_add(&units.taken_bytes, UNIT_BYTES << order);
    note_demand();
    usage_add(UNIT_BYTES << order);
  }
  lock_give(&units.lock);
  return run;
}

void units_give(void *run, unsigned order) {
  lock_take(&units.lock);
  struct superslab *s = map_superslab_record(run);
  uint32_t mask = run_mask(order) << (((uintptr_t)run >> HAK_UNIT_SHIFT) & (SUPERSLAB_UNITS - 1));
  hak_assert((s->free & mask) == 0);
  if (s->resident) /* to the end of the list: it was in use just now */
    age_list_remove(&units.resident, s);
  s->given_ms = os_milliseconds();
  if (s->resident)
    age_list_append(&units.resident, s);
  set_units(s, s->free | mask, s->resident | mask);
  sum_add(&units.taken_bytes, -(UNIT_BYTES << order));
  note_demand();
  usage_subtract(UNIT_BYTES << order);
  lock_give(&units.lock);
}

/* Purges the oldest superslab's resident free units. Returns the bytes, 0 when nothing is left to do. */
static size_t purge_oldest(size_t keep_bytes, uint64_t given_before_ms) {
  lock_take(&units.lock);
  struct superslab *s = units.resident.first;
  if (s == NULL || sum_read(&units.resident_free_bytes) <= keep_bytes || s->given_ms > given_before_ms) {
    lock_give(&units.lock);
    return 0;
  }
  /* While the system works on them, the units count as taken: nobody else can get them. */
  uint32_t mask = s->resident;
  set_units(s, s->free & ~mask, 0);
  lock_give(&units.lock);
  for (uint32_t left = mask; left != 0;) {
    uint32_t lowest = left & -left;
    uint32_t run = left & ~(left + lowest); /* the ones from the lowest up to the first gap */
    os_purge(s->base + (size_t)__builtin_ctz(run) * UNIT_BYTES, (size_t)__builtin_popcount(run) * UNIT_BYTES);
    left &= ~run;
  }
  lock_take(&units.lock);
  set_units(s, s->free | mask, s->resident);
  lock_give(&units.lock);
  return (size_t)__builtin_popcount(mask) * UNIT_BYTES;
}

size_t units_purge(size_t keep_bytes, uint64_t age_ms) {
  size_t purged = 0;
  if (!lock_try(&units.purging))
    return 0; /* another thread is at it */
  uint64_t now_ms = os_milliseconds();
  uint64_t given_before_ms = now_ms - (age_ms < now_ms ? age_ms : now_ms);
  for (size_t bytes; (bytes = purge_oldest(keep_bytes, given_before_ms)) > 0;)
    purged += bytes;
  lock_give(&units.purging);
  return purged;
}

static size_t keep(void) {
  return purge_keep((size_t)option_value(OPTION_KEEP_MB) << 20, sum_read(&units.taken_bytes));
}

/* Read without the lock: late or early by one run does not matter. */
bool units_purge_is_due(void) {
  size_t resident = sum_read(&units.resident_free_bytes);
  if (LIKELY(resident < PURGE_BYTES_MIN) || resident <= keep())
    return false;
  return resident > sum_read(&units.keep_for_now_bytes) ||
         os_milliseconds() - atomic_load_explicit(&units.oldest_ms, memory_order_relaxed) >= delay_ms();
}

void units_purge_due(void) {
  size_t bound = sum_read(&units.keep_for_now_bytes);
  if (sum_read(&units.resident_free_bytes) > bound)
    units_purge(bound - min_size(bound, PURGE_MARGIN), 0);
  units_purge(keep(), delay_ms());
}

bool units_release_empty(void) {
  bool any = false;
  for (;;) {
    lock_take(&units.lock);
    struct superslab *s = units.by_run[UNIT_ORDER_MAX].first;
    char *base = NULL;
    if (s != NULL) {
      base = s->base;
      set_units(s, 0, 0);
      __atomic_store_n(&s->base, NULL, __ATOMIC_RELAXED);
      units.carved_bytes -= SUPERSLAB_BYTES;
      units.reserved_bytes -= SUPERSLAB_BYTES;
    }
    lock_give(&units.lock);
    if (base == NULL)
      return any;
    os_unmap(base, SUPERSLAB_BYTES);
    any = true;
  }
}

bool address_in_superslab(const void *address) {
  if (!map_covers(address))
    return false;
  struct superslab *s = map_superslab_record(address);
  return __atomic_load_n(&s->base, __ATOMIC_RELAXED) != NULL;
}

void units_stats(struct unit_stats *out) {
  lock_take(&units.lock);
  *out = (struct unit_stats){
      .reserved_bytes = units.reserved_bytes,
      .committed_bytes = units.carved_bytes,
      .taken_bytes = sum_read(&units.taken_bytes),
      .resident_free_bytes = sum_read(&units.resident_free_bytes),
  };
  lock_give(&units.lock);
}

void units_lock_for_fork(void) {
  lock_take(&units.purging);
  lock_take(&units.lock);
}

void units_unlock_after_fork(bool child) {
  if (child) {
    lock_reset(&units.lock);
    lock_reset(&units.purging);
  } else {
    lock_give(&units.lock);
    lock_give(&units.purging);
  }
}

#ifdef HAK_DEBUG
bool superslabs_are_valid(void) {
  bool valid = true;
  size_t resident_bytes = 0;
  lock_take(&units.lock);
  for (unsigned order = 0; order <= UNIT_ORDER_MAX; order++)
    for (struct superslab *s = units.by_run[order].first; s; s = s->by_run.next)
      valid &= s->run_order == order && longest_run(s->free) == order && (s->resident & ~s->free) == 0;
  for (struct superslab *s = units.resident.first; s; s = s->by_age.next) {
    valid &= s->resident != 0 && (s->by_age.next == NULL || s->given_ms <= s->by_age.next->given_ms);
    resident_bytes += (size_t)__builtin_popcount(s->resident) * UNIT_BYTES;
  }
  valid &= resident_bytes == sum_read(&units.resident_free_bytes);
  lock_give(&units.lock);
  return valid;
}
#endif
