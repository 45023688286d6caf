#include "policy/purge_policy.h"

#define KEEP_SHARE 8
#define LARGE_REST_SHARE 2
#define WASTE_SHARE 4

void demand_note(struct demand *demand, size_t taken_bytes, uint64_t now_ms, uint64_t window_ms) {
  if (now_ms - demand->window_start_ms >= window_ms) {
    /* After a long pause the window before has no data. */
    bool adjacent = now_ms - demand->window_start_ms < 2 * window_ms;
    demand->previous_peak_bytes = adjacent ? demand->peak_bytes : taken_bytes;
    demand->peak_bytes = 0;
    demand->window_start_ms = now_ms;
  }
  demand->peak_bytes = max_size(demand->peak_bytes, taken_bytes);
}

size_t purge_keep(size_t keep_bytes, size_t taken_bytes) { return keep_bytes + taken_bytes / KEEP_SHARE; }

static size_t recent_peak(const struct demand *demand) {
  return max_size(demand->peak_bytes, demand->previous_peak_bytes);
}

size_t purge_keep_for_now(const struct demand *demand, const struct demand *large, size_t keep_bytes,
                          size_t taken_bytes) {
  size_t peak = recent_peak(demand);
  size_t rest = recent_peak(large) / LARGE_REST_SHARE;
  return max_size(purge_keep(keep_bytes, taken_bytes), keep_bytes + rest + peak - min_size(peak, taken_bytes));
}

bool slabs_waste(size_t slab_bytes, size_t taken_bytes, size_t keep_bytes) {
  return slab_bytes - min_size(slab_bytes, taken_bytes) > keep_bytes + taken_bytes / WASTE_SHARE;
}
