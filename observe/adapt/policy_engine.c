#include "adapt/policy_engine.h"

#include "budget/usage.h"
#include "inspect/module.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/metadata.h"

#include <string.h>

#define CALLERS 512u /* cached call sites */

_Static_assert(POLICY_ARMS * sizeof(struct policy_place) + sizeof(struct policy_state) <= (size_t)1 << 20,
               "a MiB at most");

#define TRIAL_BYTES ((size_t)256 << 10)
#define TRIALS 3u

enum engine_state { ENGINE_NOTHING, ENGINE_READY, ENGINE_NO_MEMORY };

static struct {
  struct lock lock;
  enum engine_state state;
  uint32_t break_even_ms; /* that the costs were computed for */
  struct caller {
    uintptr_t address;
    uint64_t site;
  } callers[CALLERS]; /* direct-mapped by address */
  _Atomic bool callers_are_old;
  struct policy_state view;
} engine SPARSE;

/* --- unit costs of this machine --- */

static uint32_t clamp_ns(uint64_t ns, uint32_t least, uint32_t most) {
  return ns < least ? least : ns > most ? most : (uint32_t)ns;
}

enum { TRIAL_MAP, TRIAL_TOUCH, TRIAL_PURGE, TRIAL_PURGE_NOTHING, TRIAL_UNMAP, TRIAL_STEPS };

static void measure_once(uint64_t took[TRIAL_STEPS]) {
  uint64_t at[TRIAL_STEPS + 1] = {os_nanoseconds()};
  char *range = os_map(TRIAL_BYTES, UNIT_BYTES);
  at[1] = os_nanoseconds();
  for (size_t i = 0; range && i < TRIAL_BYTES; i += os_page_bytes())
    ((volatile char *)range)[i] = 1;
  at[2] = os_nanoseconds();
  for (unsigned step = TRIAL_PURGE; step <= TRIAL_PURGE_NOTHING; step++) {
    if (range)
      os_purge(range, TRIAL_BYTES);
    at[step + 1] = os_nanoseconds();
  }
  if (range)
    os_unmap(range, TRIAL_BYTES);
  at[TRIAL_STEPS] = os_nanoseconds();
  for (unsigned step = 0; step < TRIAL_STEPS; step++)
    took[step] = at[step + 1] - at[step];
}

/* Takes the quickest of several trials, because the others were disturbed. Bounds limit the effect of a jumping
 * clock. */
static struct policy_table_costs measure_costs(uint32_t break_even_ms) {
  uint64_t least[TRIAL_STEPS], next[TRIAL_STEPS], pages = TRIAL_BYTES / os_page_bytes();
  measure_once(least);
  for (unsigned i = 1; i < TRIALS; i++) {
    measure_once(next);
    for (unsigned step = 0; step < TRIAL_STEPS; step++)
      least[step] = min_size(least[step], next[step]);
  }
  return policy_table_costs_of(clamp_ns(least[TRIAL_TOUCH] / pages, 100, 20000),
                               clamp_ns(sub_sat(least[TRIAL_PURGE], least[TRIAL_PURGE_NOTHING]) / pages, 10, 5000),
                               clamp_ns(least[TRIAL_PURGE_NOTHING], 100, 50000),
                               clamp_ns(least[TRIAL_MAP] + least[TRIAL_UNMAP], 200, 100000), break_even_ms);
}

/* --- sites --- */

void policy_forget_callers(void) { store_relaxed(&engine.callers_are_old, true); }

static uint64_t site_at(uintptr_t address) {
  if (UNLIKELY(load_relaxed(&engine.callers_are_old))) {
    store_relaxed(&engine.callers_are_old, false);
    memset(engine.callers, 0, sizeof engine.callers);
  }
  struct caller *caller = &engine.callers[(address ^ address >> 9) % CALLERS];
  if (LIKELY(caller->address == address))
    return caller->site;
  struct os_module module;
  uint32_t tag = 0;
  if (os_module_find(address, &module)) {
    tag = policy_tag_of_build(module.build);
    policy_note_module(engine.view.modules, tag, module.name);
  }
  *caller = (struct caller){.address = address, .site = policy_site_of(tag, tag ? module.offset : address)};
  return caller->site;
}

/* --- events --- */

static uint32_t pages_of(size_t bytes) {
  size_t pages = bytes / min_size(os_page_bytes(), UNIT_BYTES);
  return pages > UINT32_MAX ? UINT32_MAX : (uint32_t)pages;
}

static uint32_t now_ms(void) { return (uint32_t)os_milliseconds(); }

COLD static void engine_begin(uint32_t break_even_ms) {
  uint32_t arms = usage_is_short() ? POLICY_ARMS_SHORT : POLICY_ARMS;
  void *places = metadata_take_forever(policy_table_bytes(arms));
  if (places == NULL) {
    engine.state = ENGINE_NO_MEMORY;
    return;
  }
  struct policy_table_costs costs = measure_costs(break_even_ms);
  policy_table_begin(&engine.view.table, places, arms, &costs, policy_strategy_like(break_even_ms));
  engine.break_even_ms = break_even_ms;
  engine.state = ENGINE_READY;
}

/* The lock is held. Returns true if there is a table. Updates the costs to the purge delay in force. */
static bool is_ready(void) {
  uint32_t break_even_ms = (uint32_t)option_value(OPTION_PURGE_DELAY_MS);
  if (UNLIKELY(engine.state == ENGINE_NOTHING))
    engine_begin(break_even_ms);
  if (UNLIKELY(engine.break_even_ms != break_even_ms)) {
    struct policy_table_costs *costs = &engine.view.table.costs;
    const struct policy_costs *part = &costs->part;
    *costs = policy_table_costs_of(part->fault_ns, part->purge_page_ns, part->purge_call_ns,
                                   costs->mapping.purge_call_ns - part->purge_call_ns, break_even_ms);
    engine.break_even_ms = break_even_ms;
  }
  return engine.state == ENGINE_READY;
}

/* The lock is held, and there is a table. */
static void note_taken(uint64_t site, size_t size, size_t bytes) {
  if (policy_is_evolving())
    policy_table_taken(&engine.view.table, site, policy_range(size), pages_of(bytes), now_ms());
}

static unsigned keep_of(uint64_t site, size_t size, size_t bytes, bool is_kept) {
  struct policy_table *table = &engine.view.table;
  unsigned range = policy_range(size);
  if (policy_is_evolving())
    return (unsigned)policy_table_freed(table, site, range, pages_of(bytes), is_kept, now_ms());
  return (unsigned)policy_table_leader(table, site, range);
}

uint64_t policy_large_taken(uintptr_t caller, size_t bytes) {
  HOLD_LOCK(&engine.lock);
  if (!is_ready())
    return 0;
  uint64_t site = site_at(caller);
  note_taken(site, bytes, bytes);
  return site;
}

void policy_large_resized(uint64_t site, size_t bytes, size_t wanted) {
  HOLD_LOCK(&engine.lock);
  if (!is_ready())
    return;
  if (wanted > bytes)
    note_taken(site, wanted, wanted - bytes);
  else
    keep_of(site, bytes, bytes - wanted, false); /* the end that is cut off: it goes its way already */
}

unsigned policy_large_freed(uint64_t site, size_t bytes, bool is_kept) {
  HOLD_LOCK(&engine.lock);
  return is_ready() ? keep_of(site, bytes, bytes, is_kept) : KEEP_BY_PRESET;
}

void policy_small_taken(size_t block_bytes, size_t slab_bytes) {
  HOLD_LOCK(&engine.lock);
  if (is_ready())
    note_taken(POLICY_SITE_SMALL, block_bytes, slab_bytes);
}

unsigned policy_small_freed(size_t block_bytes, size_t slab_bytes) {
  HOLD_LOCK(&engine.lock);
  return is_ready() ? keep_of(POLICY_SITE_SMALL, block_bytes, slab_bytes, true) : KEEP_BY_PRESET;
}

/* --- figures --- */

struct policy_totals policy_stats(void) {
  HOLD_LOCK(&engine.lock);
  return engine.state == ENGINE_READY ? policy_totals(&engine.view.table, now_ms()) : (struct policy_totals){0};
}

struct policy_state *policy_open(void) {
  lock_take(&engine.lock);
  return is_ready() ? &engine.view : NULL;
}

void policy_close(void) { lock_give(&engine.lock); }

#ifdef HAK_DEBUG
bool policy_is_valid(void) {
  HOLD_LOCK(&engine.lock);
  return engine.state != ENGINE_READY || policy_table_is_valid(&engine.view.table);
}
#endif
