#include "live/large_sites.h"

#define PROBES_MAX 16u

/* Address and hash never change once they are set. The hash is set first; 0 marks a free place. */
static struct place {
  _Atomic uint32_t hash;
  _Atomic uintptr_t address;
  _Atomic size_t live_count, live_bytes, taken_count, taken_bytes;
} places[LARGE_SITES + 1] SPARSE;

static struct place *place_of(uint32_t hash, bool may_begin) {
  for (uint32_t i = 0; hash != 0 && i < PROBES_MAX; i++) {
    struct place *place = &places[(hash + i) % LARGE_SITES];
    uint32_t known = load_relaxed(&place->hash);
    if (known == 0 && may_begin &&
        atomic_compare_exchange_strong_explicit(&place->hash, &known, hash, memory_order_relaxed, memory_order_relaxed))
      return place;
    if (known == hash)
      return place;
    if (known == 0)
      break;
  }
  return &places[LARGE_SITES];
}

static void figure_add(_Atomic size_t *sum, size_t amount) {
  atomic_fetch_add_explicit(sum, amount, memory_order_relaxed);
}

void large_site_changed(uint32_t hash, uintptr_t site, int objects, size_t bytes, size_t wanted) {
  struct place *place = place_of(hash, site != 0);
  if (site != 0 && place != &places[LARGE_SITES] && load_relaxed(&place->address) == 0)
    store_relaxed(&place->address, site);
  figure_add(&place->live_count, (size_t)objects);
  figure_add(&place->live_bytes, wanted - bytes);
  figure_add(&place->taken_count, objects > 0);
  figure_add(&place->taken_bytes, sub_sat(wanted, bytes));
}

/* Objects that were taken before the option was read, and freed after it, make the sum negative; returns 0 then. */
static size_t at_least_nothing(_Atomic size_t *sum) {
  size_t value = load_relaxed(sum);
  return value > SIZE_MAX / 2 ? 0 : value;
}

bool large_site_get(unsigned index, struct large_site *out) {
  struct place *place = &places[index];
  *out = (struct large_site){
      .address = load_relaxed(&place->address),
      .live_count = at_least_nothing(&place->live_count),
      .live_bytes = at_least_nothing(&place->live_bytes),
      .taken_count = load_relaxed(&place->taken_count),
      .taken_bytes = load_relaxed(&place->taken_bytes),
  };
  return out->taken_count > 0;
}
