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

/* The states of 2 MiB: an array for each slab, at its first unit. The table is made when needed, for good. An array is
 * replaced when the unit serves a class of more blocks. Then none of its blocks lives. */
struct states {
  _Atomic(_Atomic uint16_t *) units[SUPERSLAB_UNITS];
  uint8_t orders[SUPERSLAB_UNITS]; /* of the pieces of metadata, under the lock of the slab's pool */
};

/* Makes the array for a block's slab, if it is missing. The lock of the slab's pool is held. False: out of memory. */
bool states_cover(const void *block, unsigned cls);

/* Returns the state of a block of the class. NULL: the address, in a unit of the class, is not the start of one. The
 * end of a slab, too short for a block, has a state of its own: "never used". */
static ALWAYS_INLINE _Atomic uint16_t *state_in(struct map_leaf *leaf, const void *block, uint64_t reciprocal,
                                                size_t bytes, unsigned order) {
  uintptr_t base = round_down((uintptr_t)block, UNIT_BYTES << order);
  size_t offset = (uintptr_t)block - base;
  size_t index = (size_t)(offset * reciprocal >> RECIPROCAL_SHIFT);
  struct states *states = atomic_load_explicit(map_leaf_states(leaf, block), memory_order_acquire);
  if (UNLIKELY(index * bytes != offset || states == NULL))
    return NULL;
  _Atomic uint16_t *array =
      atomic_load_explicit(&states->units[base >> HAK_UNIT_SHIFT & (SUPERSLAB_UNITS - 1)], memory_order_acquire);
  return LIKELY(array != NULL) ? array + index : NULL;
}
static inline _Atomic uint16_t *state_of(const void *block, unsigned cls) {
  const struct size_class *class = &size_classes[cls];
  return state_in(map_leaf(block), block, class->reciprocal, class->bytes, class->order);
}

static inline size_t size_by(size_t bytes, uint16_t state) { return bytes - (state - STATE_LIVE); }

/* --- canaries --- */

/* The lowest byte, which a string's end would overwrite first, is not zero. */
static inline uint64_t canary_of(const char *end, struct secret secret) {
  uint64_t word = ((uintptr_t)end ^ secret.mask) * secret.factor;
  return (word ^ word >> 32) | 1;
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

/* Makes a free block live. bytes - size is at most CHECKED_SLACK_MAX. */
static inline void *block_begin(struct kept kept, size_t bytes, size_t size) {
  if (LIKELY(checked.is_zeroed) && LIKELY(load_relaxed(kept.state) == 1) && UNLIKELY(!block_is_zero(kept.block, bytes)))
    fault_written_after_free(kept.block);
  canary_set((char *)kept.block + size);
  store_relaxed(kept.state, (uint16_t)(bytes - size + STATE_LIVE));
  return kept.block;
}

/* Ends the program unless the block, whose state it is, lives, and its canary is unchanged. */
static ALWAYS_INLINE void check_live(void *block, size_t bytes, const _Atomic uint16_t *state, uint16_t *value) {
  if (UNLIKELY(state == NULL))
    fault_not_a_block(block);
  *value = load_relaxed(state);
  if (UNLIKELY(*value < STATE_LIVE)) {
    if (*value == 0)
      fault_not_a_block(block);
    fault_double_free(block);
  }
  if (LIKELY(checked.has_canary) && UNLIKELY(!canary_is_there((char *)block + size_by(bytes, *value))))
    fault_written_beyond(block);
}

static ALWAYS_INLINE void retire(void *block, size_t bytes, _Atomic uint16_t *state) {
  uint16_t value;
  check_live(block, bytes, state, &value);
  if (UNLIKELY(!atomic_compare_exchange_strong_explicit(state, &value, 1, memory_order_acq_rel, memory_order_relaxed)))
    fault_double_free(block); /* by two threads at once */
  if (LIKELY(checked.is_zeroed))
    memset(block, 0, bytes);
}
