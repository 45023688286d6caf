#include "pages/collapse.h"

#include "base/counters.h"
#include "base/options.h"
#include "budget/usage.h"
#include "os/filter.h"
#include "os/os.h"
#include "pages/arena.h"
#include "pages/free_extent.h"
#include "pages/fresh.h"
#include "pages/page_map.h"
#include "policy/huge_policy.h"

#include <time.h>

/* A pass looks at all rows once. What it finds dense is moved by the next one. */
static struct {
  uintptr_t row;                /* number of the row where the pass goes on; 0: none is under way */
  uint64_t next_ms;             /* when the next pass may begin */
  uint64_t rest_ms;             /* from the end of a pass to the next; longer after each one that found nothing */
  uint64_t credited_ns;         /* the process's time until which credit was given */
  uint64_t credit_ns;           /* this long the walk may work */
  uint64_t finds, finds_before; /* so far; when the pass began */
  unsigned moves, refusals;     /* so far */
  uint32_t forks;               /* fresh_forks when no other process shared pages */
  uint32_t forks_seen;          /* fresh_forks */
  uint64_t forked_ms;           /* when forks_seen changed */
} walk;

/* So many refusals before the first move: the kernel never will. Later ones are of a row whose pages the program made
 * mappings of their own, by mprotect or madvise. */
#define REFUSALS_MAX 8u
static bool is_refused(void) { return walk.moves == 0 && walk.refusals >= REFUSALS_MAX; }

/* Tells whether no other process shares pages, for all that is known (look_at_forks). */
static bool is_alone(void) { return walk.forks == fresh_forks(); }

static _Atomic bool is_forbidden;

void collapse_prepare(void) {
  store_relaxed(&is_forbidden, os_huge_is_forbidden()); /* also if the option is off: it may be set later */
}

static uint64_t row_bit(size_t i) { return UINT64_C(1) << i % 64; }
static bool row_has(_Atomic uint64_t *words, size_t i) { return (load_relaxed(&words[i / 64]) & row_bit(i)) != 0; }
static void row_set(_Atomic uint64_t *words, size_t i, bool value) {
  if (value)
    atomic_fetch_or_explicit(&words[i / 64], row_bit(i), memory_order_relaxed);
  else if (row_has(words, i))
    atomic_fetch_and_explicit(&words[i / 64], ~row_bit(i), memory_order_relaxed);
}

void collapse_forget(const void *base, size_t bytes) {
  const char *end = (const char *)base + bytes, *row;
  for (const char *at = base; at < end; at = row + ROW_BYTES) {
    row = (const char *)round_down((uintptr_t)at, ROW_BYTES);
    if (!map_covers(at))
      continue;
    row_set(map_leaf(at)->huge, map_row_in_leaf(at), false);
    row_set(map_leaf(at)->dense, map_row_in_leaf(at), false);
    if (at == row && (size_t)(end - at) >= ROW_BYTES)
      fresh_row_set(map_row(at));
  }
}

/* Tells whether slabs use all of a row, which lies in an arena on small pages, and whether a move would unshare
 * nothing. */
static bool row_is_used(const char *base) {
  const struct map_row *row = map_row(base);
  if (row == NULL || (!is_alone() && !fresh_row(row)))
    return false;
  for (const char *unit = base; unit < base + ROW_BYTES; unit += UNIT_BYTES)
    if (entry_pool_id(map_entry_acquire(unit)) == 0 || !address_in_arena(unit) ||
        bank_number_at(unit) % EXTENT_BANKS == EXTENT_HUGE)
      return false;
  return true;
}

static bool row_is_dense(const char *base) {
  return row_is_used(base) && os_resident_bytes(base, ROW_BYTES) == ROW_BYTES;
}

/* Looks at a row, and moves it if it was dense at the last look, too. False: the kernel gives no huge pages. */
static bool row_look(struct map_leaf *leaf, size_t i, char *base) {
  bool was_dense = row_has(leaf->dense, i), is_dense = row_is_dense(base);
  row_set(leaf->dense, i, is_dense);
  if (!is_dense || !was_dense) {
    walk.finds += is_dense;
    return true;
  }
  enum os_collapse result = os_huge_collapse(base, ROW_BYTES);
  walk.refusals += result == OS_COLLAPSE_REFUSED;
  if (result == OS_COLLAPSED) {
    row_set(leaf->huge, i, true);
    walk.finds++;
    walk.moves++;
    counter_note(huge_collapses);
  }
  return result != OS_COLLAPSE_SCARCE && !is_refused();
}

/* Returns the number of the next row, from `row` on, that is on small pages for all that is known; 0: there is none. */
static uintptr_t row_next(uintptr_t row) {
  while (row < HAK_MAP_TOP_COUNT * LEAF_ROWS) {
    const char *base = (const char *)(row << ROW_SHIFT);
    if (!map_covers(base))
      row = round_down(row, LEAF_ROWS) + LEAF_ROWS;
    else if (map_row(base) == NULL || row_has(map_leaf(base)->huge, map_row_in_leaf(base)))
      row++;
    else
      return row;
  }
  return 0;
}

static void forget_moves(void) {
  for (uintptr_t row = 1; row < HAK_MAP_TOP_COUNT * LEAF_ROWS; row = round_down(row, LEAF_ROWS) + LEAF_ROWS) {
    const char *base = (const char *)(row << ROW_SHIFT);
    for (size_t i = 0; map_covers(base) && i < LEAF_ROWS / 64; i++)
      store_relaxed(&map_leaf(base)->huge[i], 0);
  }
}

/* The kernel splits a huge page that is shared when one of its pages is written. So all rows are looked at again when
 * the processes of the last forks have ended. Returns true while it is worth to wait for that. */
#define FORKED_MS_MAX 60000u
static bool look_at_forks(uint64_t now_ms) {
  if (walk.forks_seen != fresh_forks()) {
    walk.forks_seen = fresh_forks();
    walk.forked_ms = now_ms;
  }
  if (is_alone())
    return false;
  if (!fresh_is_alone())
    return now_ms - walk.forked_ms < FORKED_MS_MAX;
  walk.forks = walk.forks_seen;
  forget_moves();
  walk.next_ms = 0;
  return false;
}

static bool pass_begins(uint64_t now_ms) {
  if (now_ms < walk.next_ms)
    return false;
  walk.row = 1;
  walk.finds_before = walk.finds;
  return true;
}

static void pass_ends(void) {
  walk.row = 0;
  walk.rest_ms = collapse_rest_ms(walk.rest_ms, walk.finds > walk.finds_before);
  walk.next_ms = os_milliseconds() + walk.rest_ms;
}

static void take_credit(void) {
  uint64_t now_ns = os_nanoseconds_of(CLOCK_PROCESS_CPUTIME_ID);
  walk.credit_ns = collapse_credit_ns(walk.credit_ns, sub_sat(now_ns, walk.credited_ns));
  walk.credited_ns = now_ns;
}

bool collapse_is_possible(void) {
  return option_value(OPTION_HUGE) != HUGE_OFF && !load_relaxed(&is_forbidden) && !is_refused() &&
         os_page_bytes() == SMALL_PAGE_BYTES;
}

bool collapse_some(bool (*may_go_on)(void)) {
  if (!collapse_is_possible() || usage_held() < HUGE_HEAP_BYTES_MIN || usage_is_short() || usage_fills_limit() ||
      !os_may_call())
    return false;
  take_credit();
  uint64_t now_ms = os_milliseconds();
  bool waits = look_at_forks(now_ms);
  if (walk.row == 0 && !pass_begins(now_ms))
    return waits;
  uint64_t now_ns = os_nanoseconds(), before_ns, finds = walk.finds;
  while (walk.credit_ns > 0 && (may_go_on == NULL || may_go_on())) {
    walk.row = row_next(walk.row);
    char *base = (char *)(walk.row << ROW_SHIFT);
    if (base == NULL || !row_look(map_leaf(base), map_row_in_leaf(base), base)) {
      pass_ends();
      break;
    }
    walk.row++;
    before_ns = now_ns;
    now_ns = os_nanoseconds();
    walk.credit_ns = sub_sat(walk.credit_ns, now_ns - before_ns);
  }
  return waits || walk.finds > finds;
}
