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
  bool is_usual; /* has_canary, is_zeroed, zero_is_wide */
  uint32_t key;  /* of the first pool's entries */
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
                                                int32_t slab_mask) {
  uintptr_t base = (uintptr_t)block & (uintptr_t)(intptr_t)slab_mask;
  size_t index;
  if (UNLIKELY(!block_index_alone(inverse, (uintptr_t)block - base, &index)))
    return NULL;
  _Atomic uint16_t *states =
      atomic_load_explicit(map_row_states(map_leaf_row(leaf, block), (void *)base), memory_order_acquire);
  return LIKELY(states != NULL) ? states + index : NULL;
}
static inline int32_t slab_mask_of(unsigned cls) { return -(int32_t)class_slab_bytes(cls); }
static inline _Atomic uint16_t *state_of(const void *block, unsigned cls) {
  return state_in(map_leaf(block), block, size_classes[cls].inverse, slab_mask_of(cls));
}

static inline size_t size_by(size_t bytes, uint16_t state) { return bytes + STATE_LIVE - (size_t)state; }

/* --- canaries --- */

/* The highest byte of the product, which depends on all others, comes first in memory. It is not zero, so that a
 * string's end is seen. */
static inline uint64_t canary_of(const char *end, struct secret secret) {
  return __builtin_bswap64(((uintptr_t)end ^ secret.mask) * secret.factor) | 1;
}

/* Tells whether the word of the present secret is there; canary_is_older: that of an older one. */
static ALWAYS_INLINE bool canary_is_ours(const char *end) {
  uint64_t word;
  memcpy(&word, end, sizeof word);
  return word == canary_of(end, checked.secret);
}
COLD bool canary_is_older(const char *end);

/* --- life --- */

/* A free block and its state. */
struct kept {
  void *block;
  _Atomic uint16_t *state;
};

static ALWAYS_INLINE void *block_make_live(struct kept kept, size_t bytes, size_t size, bool has_canary) {
  char *end = (char *)kept.block + size;
  uint64_t word = canary_of(end, checked.secret);
  if (LIKELY(has_canary))
    memcpy(end, &word, sizeof word);
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
  if (UNLIKELY(value < STATE_LIVE)) {
    if (value == 0)
      fault_not_a_block(block);
    fault_double_free(block);
  }
}

static ALWAYS_INLINE void check_canary(void *block, size_t bytes, uint16_t value) {
  const char *end = (const char *)block + size_by(bytes, value);
  if (LIKELY(checked.has_canary) && UNLIKELY(!canary_is_ours(end)) && !canary_is_older(end))
    fault_written_beyond(block);
}

/* Ends the life of a block whose state has this value, if no other thread has done so. The caller must clear it. */
static ALWAYS_INLINE void state_retire(void *block, _Atomic uint16_t *state, uint16_t value) {
  if (UNLIKELY(atomic_exchange_explicit(state, 1, memory_order_acq_rel) != value))
    fault_double_free(block); /* by two threads at once */
}

static ALWAYS_INLINE void block_clear(void *block, size_t bytes) {
  if (LIKELY(checked.is_zeroed))
    memset(block, 0, bytes);
}
