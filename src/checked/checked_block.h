/* checked_block.h: one checked block: its state, its canary, and what is checked when its life begins and ends. */
#pragma once

#include "checked/checked.h"
#include "checked/checked_zero.h"
#include "os/fault.h"
#include "pages/page_map.h"

#include <string.h>

#define OLDER_MAX 7u /* forks of forks from here on share the secret */

/* Changes at program start, and the secrets in the child of a fork. */
extern HAK_HIDDEN struct checked_settings {
  bool has_canary, is_zeroed, is_random;
  uint32_t ring_max;
  uint32_t older_count;
  struct secret {
    uint64_t mask, factor;
  } secret, older[OLDER_MAX];
} checked;

/* Draws another secret. A live block of before a fork has the canary of an older one, so the child keeps those. The
 * process has one thread then. */
void secret_draw(void);

/* --- states --- */

/* Returns the state of a block whose class has these values. NULL: the address, in a unit of the class, is not the
 * start of one. The end of a slab, too short for a block, has a state of its own: "never used". */
static ALWAYS_INLINE _Atomic uint16_t *state_in(struct map_leaf *leaf, const void *block, uint64_t inverse,
                                                unsigned order) {
  uintptr_t base = round_down((uintptr_t)block, UNIT_BYTES << order);
  size_t index;
  if (UNLIKELY(!block_index(inverse, (uintptr_t)block - base, &index)))
    return NULL;
  _Atomic uint16_t *states =
      atomic_load_explicit(map_row_states(map_leaf_row(leaf, block), (void *)base), memory_order_acquire);
  return LIKELY(states != NULL) ? states + index : NULL;
}
static inline _Atomic uint16_t *state_of(const void *block, unsigned cls) {
  return state_in(map_leaf(block), block, size_classes[cls].inverse, size_classes[cls].order);
}

static inline size_t size_by(size_t bytes, uint16_t state) { return bytes - (state - STATE_LIVE); }

/* --- canaries --- */

/* The highest byte of the product, which depends on all others, comes first in memory. It is not zero, so that a
 * string's end is seen. */
static inline uint64_t canary_of(const char *end, struct secret secret) {
  return __builtin_bswap64(((uintptr_t)end ^ secret.mask) * secret.factor) | 1;
}

static inline void canary_set(char *end) {
  uint64_t word = canary_of(end, checked.secret);
  if (LIKELY(checked.has_canary))
    memcpy(end, &word, sizeof word);
}

COLD bool canary_is_older(const char *end, uint64_t word);

static inline bool canary_is_there(const char *end) {
  uint64_t word;
  memcpy(&word, end, sizeof word);
  return LIKELY(word == canary_of(end, checked.secret)) || canary_is_older(end, word);
}

/* --- life --- */

/* A free block and its state. */
struct kept {
  void *block;
  _Atomic uint16_t *state;
};

static ALWAYS_INLINE void *block_make_live(struct kept kept, size_t bytes, size_t size) {
  canary_set((char *)kept.block + size);
  store_relaxed(kept.state, (uint16_t)(bytes - size + STATE_LIVE));
  return kept.block;
}

/* The same as block_begin for a block that need not be checked, and for others: with vectors of a cache line, and
 * without. */
void *block_begin_clear(struct kept kept, size_t bytes, size_t size);
void *block_begin_wide(struct kept kept, size_t bytes, size_t size);
void *block_begin_narrow(struct kept kept, size_t bytes, size_t size);

/* Makes a free block live. bytes - size is at most CHECKED_SLACK_MAX. */
static ALWAYS_INLINE void *block_begin(struct kept kept, size_t bytes, size_t size) {
  if (UNLIKELY(!checked.is_zeroed) || UNLIKELY(load_relaxed(kept.state) == 0))
    return block_begin_clear(kept, bytes, size);
  return LIKELY(zero_is_wide) ? block_begin_wide(kept, bytes, size) : block_begin_narrow(kept, bytes, size);
}

/* Ends the program unless a block lives that has this value of its state. */
static ALWAYS_INLINE void check_state(void *block, uint16_t value) {
  if (UNLIKELY(value == 0))
    fault_not_a_block(block);
  if (UNLIKELY(value < STATE_LIVE))
    fault_double_free(block);
}

static ALWAYS_INLINE void check_canary(void *block, size_t bytes, uint16_t value) {
  if (LIKELY(checked.has_canary) && UNLIKELY(!canary_is_there((char *)block + size_by(bytes, value))))
    fault_written_beyond(block);
}

/* Ends the life of a block, which the caller must clear. */
static ALWAYS_INLINE void retire(void *block, size_t bytes, _Atomic uint16_t *state) {
  if (UNLIKELY(state == NULL))
    fault_not_a_block(block);
  uint16_t value = load_relaxed(state);
  check_state(block, value);
  check_canary(block, bytes, value);
  if (UNLIKELY(atomic_exchange_explicit(state, 1, memory_order_acq_rel) != value))
    fault_double_free(block); /* by two threads at once */
}

static ALWAYS_INLINE void block_clear(void *block, size_t bytes) {
  if (LIKELY(checked.is_zeroed))
    memset(block, 0, bytes);
}
