/* event.h: events that `api` counts, also in signal handlers. Observers read the counts. */
#ifndef HAK_BASE_EVENT_H
#define HAK_BASE_EVENT_H

#include "base/words.h"

enum event {
  EVENT_FOREIGN_FREE,
  EVENT_SPARE_CALL,    /* malloc was refused a slow path and got spare memory */
  EVENT_FREE_DEFERRED, /* free was refused a slow path */
  EVENT_MEMORY_RETRY,
  EVENT_LIMIT_CALLBACK,
  EVENT_MEMORY_REFUSED,
  EVENT_KINDS
};

extern _Atomic uint64_t event_counts[EVENT_KINDS];

static inline void event_note(enum event event) {
  atomic_fetch_add_explicit(&event_counts[event], 1, memory_order_relaxed);
}
static inline uint64_t event_count(enum event event) {
  return atomic_load_explicit(&event_counts[event], memory_order_relaxed);
}

#endif
