#include "policy/huge_policy.h"

#define SPARSE_MORE_MAX 4
#define SPAN_MS_MAX ((uint64_t)5 * 60 * 1000)

static bool backs_off(const struct huge_back_off *back_off, uint64_t now_ms) { return now_ms < back_off->until_ms; }

static void good_outcome(struct huge_back_off *back_off, uint64_t span_ms_min, uint64_t now_ms) {
  if (backs_off(back_off, now_ms)) /* the range was asked for before the back-off */
    return;
  back_off->span_ms = back_off->span_ms >= 2 * span_ms_min ? back_off->span_ms / 2 : 0;
}

/* Several threads may see the same stall; it counts once. */
static void bad_outcome(struct huge_back_off *back_off, uint64_t span_ms_min, uint64_t now_ms) {
  if (backs_off(back_off, now_ms))
    return;
  uint64_t span_ms = max_size(back_off->span_ms * 2, span_ms_min);
  back_off->span_ms = min_size(span_ms, SPAN_MS_MAX);
  back_off->until_ms = now_ms + back_off->span_ms;
}

bool huge_wanted(const struct huge_state *state, enum huge_mode mode, bool large, size_t heap_bytes, size_t range_bytes,
                 uint64_t now_ms) {
  if (mode != HUGE_ALL && !(mode == HUGE_LARGE && large))
    return false;
  return heap_bytes >= HUGE_HEAP_BYTES_MIN && range_bytes >= HUGE_RANGE_BYTES_MIN &&
         !backs_off(&state->stalls, now_ms) && !backs_off(&state->sparse, now_ms);
}

bool huge_wanted_for_slabs(const struct huge_state *state, enum huge_mode mode, size_t slab_bytes, size_t dense_bytes,
                           uint64_t now_ms) {
  return mode != HUGE_OFF && slab_bytes / HUGE_SLABS_SHARE >= ROW_BYTES &&
         dense_bytes >= ROW_BYTES - ROW_BYTES / HUGE_UNFILLED_SHARE && !backs_off(&state->stalls, now_ms) &&
         !backs_off(&state->sparse, now_ms);
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
  *from = less(*from, range_bytes);
  return true;
}

void huge_note_stall(struct huge_state *state, uint64_t elapsed_ns, uint64_t now_ms) {
  if (elapsed_ns <= HUGE_SLOW_NS) {
    state->slow_in_row = 0;
    good_outcome(&state->stalls, HUGE_STALL_SPAN_MS, now_ms);
    return;
  }
  state->slow_in_row++;
  if (elapsed_ns <= HUGE_STALL_NS && state->slow_in_row < HUGE_SLOW_MAX)
    return;
  state->slow_in_row = 0;
  uint64_t span_ms = elapsed_ns / 1000000 * HUGE_STALL_TIMES;
  bad_outcome(&state->stalls, max_size(min_size(span_ms, HUGE_STALL_SPAN_MS_MAX), HUGE_STALL_SPAN_MS), now_ms);
}

void huge_note_sparse(struct huge_state *state, size_t resident_bytes, size_t range_bytes, uint64_t now_ms) {
  if (range_bytes == 0)
    return;
  if (resident_bytes >= range_bytes - range_bytes / 2) {
    if (state->sparse_more > 0)
      state->sparse_more--;
    good_outcome(&state->sparse, HUGE_SPARSE_SPAN_MS, now_ms);
    return;
  }
  if (++state->sparse_more < SPARSE_MORE_MAX)
    return;
  state->sparse_more = 0;
  bad_outcome(&state->sparse, HUGE_SPARSE_SPAN_MS, now_ms);
}
