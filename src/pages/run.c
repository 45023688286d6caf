#include "pages/run.h"

#include "base/probe.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/huge.h"

#include <string.h>

bool runs_are_wiped;

static _Atomic size_t dense_bytes; /* of runs that were to be populated, since the last huge page that was */

static struct extent take_resident(size_t bytes) {
  extent_taker *take_kept = atomic_load_explicit(&extent_take_kept, memory_order_acquire);
  return take_kept ? take_kept(EXTENT_PLAIN, bytes, bytes) : extent_take_resident(EXTENT_PLAIN, bytes, bytes);
}

/* Makes a resident free extent of a fresh huge page. Runs take it next. */
COLD static void add_huge_page(void) {
  struct extent extent = extent_take(EXTENT_PLAIN, ROW_BYTES, ROW_BYTES);
  if (extent.base == NULL)
    return;
  enum usage from = extent.resident ? USAGE_FREE : USAGE_PROMISED;
  store_relaxed(&dense_bytes, 0);
  if (extent_bank_of(extent.base) == EXTENT_HUGE)
    huge_probe(extent.base, ROW_BYTES);
  else if (!extent.resident)
    huge_fill(extent.base);
  extent.resident = true;
  extent.zero = false; /* so that it joins with what slabs leave beside it */
  extent_give(extent, KEEP_BY_PRESET, os_milliseconds(), from);
}

void *run_take(unsigned order, bool to_populate) {
  size_t bytes = UNIT_BYTES << order;
  if (to_populate)
    atomic_fetch_add_explicit(&dense_bytes, bytes, memory_order_relaxed);
  struct extent extent = take_resident(bytes);
  to_populate = to_populate && !usage_is_short();
  if (extent.base == NULL && to_populate && huge_for_slabs(usage_slabs(), load_relaxed(&dense_bytes))) {
    add_huge_page();
    extent = take_resident(bytes);
  }
  if (extent.base == NULL)
    extent = extent_take(huge_bank(false), bytes, bytes);
  if (extent.base == NULL)
    return NULL;
  usage_move(extent.resident ? USAGE_FREE : USAGE_PROMISED, USAGE_SLABS, bytes);
  HAK_PROBE(run_take, extent.base, bytes, extent.resident);
  if (UNLIKELY(runs_are_wiped) && (extent.resident || !os_purge(extent.base, bytes)))
    memset(extent.base, 0, bytes);
  if (!extent.resident && extent_bank_of(extent.base) == EXTENT_HUGE)
    huge_probe(extent.base, bytes);
  else if (!extent.resident && to_populate)
    os_populate(extent.base, bytes);
  return extent.base;
}

void run_give(void *run, unsigned order, unsigned keep) {
  struct extent extent = {.base = run, .bytes = UNIT_BYTES << order, .resident = true};
  extent_give(extent, keep, os_milliseconds(), USAGE_SLABS);
}
