#include "adapt/learned.h"

#include "inspect/module.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/metadata.h"

#include <string.h>

#define CALLERS 512u /* cached call sites */

_Static_assert(LEARNED_ARMS * sizeof(struct site_arm) + sizeof(struct learned_view) <= (size_t)1 << 20,
               "a MiB at most");

#define TRIAL_BYTES ((size_t)256 << 10)
#define TRIALS 3u

enum learned_state { LEARNED_NOTHING, LEARNED_READY, LEARNED_NO_MEMORY };

static struct {
  struct lock lock;
  enum learned_state state;
  uint32_t break_even_ms; /* that the costs were computed for */
  struct caller {
    uintptr_t address;
    uint64_t site;
  } callers[CALLERS]; /* direct-mapped by address */
  _Atomic bool callers_are_old;
  struct learned_view view;
} learned;

/* --- unit costs of this machine --- */

static uint32_t clamp_ns(uint64_t ns, uint32_t least, uint32_t most) {
  return ns < least ? least : ns > most ? most : (uint32_t)ns;
}

struct trial {
  uint64_t map, touch, purge, purge_nothing;
};

static struct trial measure_once(void) {
  struct trial took = {0};
  uint64_t start = os_nanoseconds();
  char *range = os_map(TRIAL_BYTES, UNIT_BYTES);
  took.map = os_nanoseconds() - start;
  if (range == NULL)
    return took;
  start = os_nanoseconds();
  for (size_t at = 0; at < TRIAL_BYTES; at += os_page_bytes())
    ((volatile char *)range)[at] = 1;
  took.touch = os_nanoseconds() - start;
  start = os_nanoseconds();
  os_purge(range, TRIAL_BYTES);
  took.purge = os_nanoseconds() - start;
  start = os_nanoseconds();
  os_purge(range, TRIAL_BYTES);
  took.purge_nothing = os_nanoseconds() - start;
  start = os_nanoseconds();
  os_unmap(range, TRIAL_BYTES);
  took.map += os_nanoseconds() - start;
  return took;
}

static uint64_t min_ns(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Takes the quickest of several trials, because the others were disturbed. Bounds limit the effect of a jumping
 * clock. */
static struct site_costs measure_costs(uint32_t break_even_ms) {
  struct trial best = measure_once();
  for (unsigned i = 1; i < TRIALS; i++) {
    struct trial next = measure_once();
    best = (struct trial){min_ns(best.map, next.map), min_ns(best.touch, next.touch), min_ns(best.purge, next.purge),
                          min_ns(best.purge_nothing, next.purge_nothing)};
  }
  uint64_t pages = TRIAL_BYTES / os_page_bytes();
  return site_costs_of(clamp_ns(best.touch / pages, 100, 20000),
                       clamp_ns((best.purge - min_ns(best.purge, best.purge_nothing)) / pages, 10, 5000),
                       clamp_ns(best.purge_nothing, 100, 50000), clamp_ns(best.map, 200, 100000), break_even_ms);
}

/* --- sites --- */

void learned_forget_callers(void) { atomic_store_explicit(&learned.callers_are_old, true, memory_order_relaxed); }

static uint64_t site_at(uintptr_t address) {
  if (UNLIKELY(atomic_load_explicit(&learned.callers_are_old, memory_order_relaxed))) {
    atomic_store_explicit(&learned.callers_are_old, false, memory_order_relaxed);
    memset(learned.callers, 0, sizeof learned.callers);
  }
  struct caller *caller = &learned.callers[(address ^ address >> 9) % CALLERS];
  if (LIKELY(caller->address == address))
    return caller->site;
  struct os_module module;
  uint32_t tag = 0;
  if (os_module_find(address, &module)) {
    tag = learned_tag_of_build(module.build);
    learned_note_module(learned.view.modules, tag, module.name);
  }
  *caller = (struct caller){.address = address, .site = learned_site_of(tag, tag ? module.offset : address)};
  return caller->site;
}

/* --- events --- */

static uint32_t pages_of(size_t bytes) {
  size_t pages = bytes / min_size(os_page_bytes(), UNIT_BYTES);
  return pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages;
}

static uint32_t now_ms(void) { return (uint32_t)os_milliseconds(); }

COLD static void begin(uint32_t break_even_ms) {
  struct learned_view *view = &learned.view;
  void *places = metadata_take_forever(site_table_bytes(LEARNED_ARMS));
  if (places == NULL) {
    learned.state = LEARNED_NO_MEMORY;
    return;
  }
  site_table_begin(&view->table, places, LEARNED_ARMS, evolve_like(break_even_ms));
  view->costs = measure_costs(break_even_ms);
  learned.break_even_ms = break_even_ms;
  learned.state = LEARNED_READY;
}

/* Takes the lock. Returns true if there is a table. Updates the costs to the purge delay in force. */
static bool learned_enter(void) {
  uint32_t break_even_ms = (uint32_t)option_value(OPTION_PURGE_DELAY_MS);
  lock_take(&learned.lock);
  if (UNLIKELY(learned.state == LEARNED_NOTHING))
    begin(break_even_ms);
  if (UNLIKELY(learned.break_even_ms != break_even_ms)) {
    const struct evolve_costs *part = &learned.view.costs.part, *mapping = &learned.view.costs.mapping;
    learned.view.costs = site_costs_of(part->fault_ns, part->purge_page_ns, part->purge_call_ns,
                                       mapping->purge_call_ns - part->purge_call_ns, break_even_ms);
    learned.break_even_ms = break_even_ms;
  }
  return learned.state == LEARNED_READY;
}

static void learned_leave(void) { lock_give(&learned.lock); }

static bool policy_is_evolving(void) { return option_value(OPTION_POLICY) == POLICY_EVOLVING; }

/* Call between learned_enter and learned_leave, if there is a table. */
static void note_taken(uint64_t site, size_t size, size_t bytes) {
  if (policy_is_evolving())
    site_taken(&learned.view.table, &learned.view.costs, site, site_range(size), pages_of(bytes), now_ms());
}

static unsigned keep_of(uint64_t site, size_t size, size_t bytes, bool is_kept) {
  struct learned_view *view = &learned.view;
  unsigned range = site_range(size);
  if (policy_is_evolving())
    return (unsigned)site_freed(&view->table, &view->costs, site, range, pages_of(bytes), is_kept, now_ms());
  return (unsigned)site_leader(&view->table, site, range);
}

uint64_t learned_large_taken(uintptr_t caller, size_t bytes) {
  uint64_t site = 0;
  if (learned_enter()) {
    site = site_at(caller);
    note_taken(site, bytes, bytes);
  }
  learned_leave();
  return site;
}

void learned_large_resized(uint64_t site, size_t bytes, size_t wanted) {
  bool is_ready = learned_enter();
  if (is_ready && wanted > bytes)
    note_taken(site, wanted, wanted - bytes);
  else if (is_ready)
    keep_of(site, bytes, bytes - wanted, false); /* the end that is cut off: it goes its way already */
  learned_leave();
}

unsigned learned_large_freed(uint64_t site, size_t bytes, bool is_kept) {
  unsigned keep = learned_enter() ? keep_of(site, bytes, bytes, is_kept) : KEEP_BY_PRESET;
  learned_leave();
  return keep;
}

void learned_small_taken(size_t block_bytes, size_t slab_bytes) {
  if (learned_enter())
    note_taken(LEARNED_SITE_SMALL, block_bytes, slab_bytes);
  learned_leave();
}

unsigned learned_small_freed(size_t block_bytes, size_t slab_bytes) {
  unsigned keep = learned_enter() ? keep_of(LEARNED_SITE_SMALL, block_bytes, slab_bytes, true) : KEEP_BY_PRESET;
  learned_leave();
  return keep;
}

/* --- figures --- */

void learned_stats(struct learned_stats *out) {
  *out = (struct learned_stats){0};
  lock_take(&learned.lock);
  if (learned.state == LEARNED_READY) {
    out->arms = learned.view.table.taken_count;
    out->totals = site_totals(&learned.view.table, &learned.view.costs, now_ms());
  }
  learned_leave();
}

struct learned_view *learned_open(void) { return learned_enter() ? &learned.view : NULL; }

void learned_close(void) { learned_leave(); }

#ifdef HAK_DEBUG
bool learned_is_valid(void) {
  lock_take(&learned.lock);
  bool valid = learned.state != LEARNED_READY || site_table_is_valid(&learned.view.table);
  lock_give(&learned.lock);
  return valid;
}
#endif
