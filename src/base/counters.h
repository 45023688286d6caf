/* counters.h: the counters of the process. Each is a row of the kind COUNTER in hakmem/stats.h. Observers read them.
 *
 * Any thread may count, in a signal handler too. What refills and flushes count lies in heaps and pools instead
 * (struct heap_counters, pool_counters, slab_counters), so that threads do not contend for it.
 */
#pragma once

#include "base/words.h"
#include "hakmem/stats.h"

#define COUNTERS_FIELD(group, name, kind, unit, sentence) COUNTERS_FIELD_##kind(name)
#define COUNTERS_FIELD_GAUGE(name)
#define COUNTERS_FIELD_COUNTER(name) _Atomic uint64_t name;

extern struct process_counters {
  HAK_STATS_ROWS(COUNTERS_FIELD)
} process_counters;

/* Counters that lie elsewhere are fields of the same names. */
#define COUNTER_FIELD(name) uint64_t name;

#define counter_add(name, change)                                                                                      \
  ((void)atomic_fetch_add_explicit(&process_counters.name, (change), memory_order_relaxed))
#define counter_note(name) counter_add(name, 1)
/* For a counter that changes under one lock only. */
#define counter_add_locked(name, change) add_as_owner(&process_counters.name, (change))
#define counter_read(name) load_relaxed(&process_counters.name)
