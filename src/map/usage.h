/* usage.h: bytes that slabs and large objects occupy, now and at most. Lock-free. */
#ifndef HAK_MAP_USAGE_H
#define HAK_MAP_USAGE_H

#include "base/words.h"

extern _Atomic size_t usage_bytes;
extern _Atomic size_t usage_peak_bytes;

static inline void usage_add(size_t bytes) {
  size_t now = atomic_fetch_add_explicit(&usage_bytes, bytes, memory_order_relaxed) + bytes;
  size_t peak = atomic_load_explicit(&usage_peak_bytes, memory_order_relaxed);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&usage_peak_bytes, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed))
    ;
}
static inline void usage_subtract(size_t bytes) {
  atomic_fetch_sub_explicit(&usage_bytes, bytes, memory_order_relaxed);
}

#endif
