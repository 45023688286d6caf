#include "policy/huge_policy.h"

#define SPAN_MS_MAX ((uint64_t)5 * 60 * 1000)

static bool backs_off(const struct huge_state *state, uint64_t now_ms) { return now_ms < state->until_ms; }

bool huge_wanted(const struct huge_state *state, enum huge_mode mode, bool large, size_t heap_bytes, size_t range_bytes,
                 uint64_t now_ms) {
  if (mode != HUGE_ALL && !(mode == HUGE_LARGE && large))
    return false;
  return heap_bytes >= HUGE_HEAP_BYTES_MIN && range_bytes >= HUGE_RANGE_BYTES_MIN && !backs_off(state, now_ms);
}

bool huge_wanted_for_slabs(const struct huge_state *state, enum huge_mode mode, size_t slab_bytes, size_t dense_bytes,
                           uint64_t now_ms) {
  return mode != HUGE_OFF && slab_bytes / HUGE_SLABS_SHARE >= ROW_BYTES &&
         dense_bytes >= ROW_BYTES - ROW_BYTES / HUGE_UNFILLED_SHARE && !backs_off(state, now_ms);
}

bool huge_note_written(struct huge_state *state, size_t resident_bytes, size_t range_bytes, size_t heap_bytes) {
  if (range_bytes == 0 || resident_bytes < range_bytes - range_bytes / HUGE_UNFILLED_SHARE)
    return false;
  size_t most_bytes = HUGE_EARNED_HEAPS * heap_bytes;
  size_t earned_bytes = range_bytes < most_bytes / HUGE_EARNED_TIMES ? range_bytes * HUGE_EARNED_TIMES : most_bytes;
  state->earned_bytes = max_size(state->earned_bytes, earned_bytes);
  state->lent_bytes = heap_bytes;
  return true;
}

bool huge_spend(struct huge_state *state, size_t range_bytes) {
  size_t *from =
      state->earned_bytes > 0 || range_bytes <= HUGE_RANGE_BYTES_MIN ? &state->earned_bytes : &state->lent_bytes;
  if (*from == 0)
    return false;
  *from = sub_sat(*from, range_bytes);
  return true;
}

void huge_note_stall(struct huge_state *state, uint64_t elapsed_ns, uint64_t now_ms) {
  bool is_slow = elapsed_ns > HUGE_SLOW_NS;
  state->slow_in_row = is_slow ? state->slow_in_row + 1 : 0;
  bool is_stall = elapsed_ns > HUGE_STALL_NS || state->slow_in_row == HUGE_SLOW_MAX;
  if (is_stall)
    state->slow_in_row = 0;
  /* Several threads may see the same stall; it counts once. A range of a quick touch was asked for before it. */
  if (backs_off(state, now_ms) || (is_slow && !is_stall))
    return;
  if (is_stall) {
    uint64_t span_ms = min_size(elapsed_ns / 1000000 * HUGE_STALL_TIMES, HUGE_STALL_SPAN_MS_MAX);
    state->span_ms = min_size(max_size(state->span_ms * 2, max_size(span_ms, HUGE_STALL_SPAN_MS)), SPAN_MS_MAX);
    state->until_ms = now_ms + state->span_ms;
  } else {
    state->span_ms = state->span_ms >= 2 * HUGE_STALL_SPAN_MS ? state->span_ms / 2 : 0;
  }
}
