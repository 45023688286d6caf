#include "checked/checked_block.h"

#include "os/os.h"
#include "pages/metadata.h"

struct checked_settings checked;
SPARSE uint64_t checked_inverses[HAK_CLASS_COUNT];

void secret_draw(void) {
  if (checked.older_count == OLDER_MAX)
    return;
  if (checked.secret.factor != 0)
    checked.older[checked.older_count++] = checked.secret;
  os_random(&checked.secret, sizeof checked.secret);
  checked.secret.factor |= 1;
}

bool canary_is_older(const char *end, uint64_t word) {
  for (uint32_t i = 0; i < checked.older_count; i++)
    if (word == canary_of(end, checked.older[i]))
      return true;
  return false;
}

static struct states *states_made(const void *block) {
  _Atomic(void *) *place = map_states(block);
  void *none = NULL, *there = atomic_load_explicit(place, memory_order_acquire);
  if (LIKELY(there != NULL))
    return there;
  void *states = metadata_take_forever(sizeof(struct states));
  if (states == NULL || atomic_compare_exchange_strong(place, &none, states))
    return states;
  return none; /* another thread made one at the same time; this one is lost */
}

bool states_cover(const void *block, unsigned cls) {
  char *base = slab_base(block, size_classes[cls].order);
  size_t count = (class_slab_bytes(cls) + class_bytes(cls) - 1) / class_bytes(cls); /* blocks, and the end, if any */
  unsigned order = metadata_order(count * sizeof(uint16_t));
  struct states *states = states_made(base);
  if (UNLIKELY(states == NULL))
    return false;
  size_t unit = map_unit_in_row(base);
  _Atomic uint16_t *array = load_relaxed(&states->units[unit]);
  if (LIKELY(array != NULL && states->orders[unit] >= order))
    return true;
  _Atomic uint16_t *longer = metadata_take(order);
  if (longer != NULL)
    memset((void *)longer, 0, (size_t)1 << order);
  atomic_store_explicit(&states->units[unit], longer, memory_order_release);
  if (array != NULL)
    metadata_give((void *)array, states->orders[unit]);
  states->orders[unit] = (uint8_t)order;
  return longer != NULL;
}

void checked_retire(void *block, uint32_t entry) {
  unsigned cls = entry_class(entry);
  retire(block, class_bytes(cls), state_of(block, cls));
  block_clear(block, class_bytes(cls));
}

size_t checked_size(const void *block, uint32_t entry) {
  _Atomic uint16_t *state = state_of(block, entry_class(entry));
  uint16_t value = state ? load_relaxed(state) : 0;
  return value < STATE_LIVE ? 0 : size_by(class_bytes(entry_class(entry)), value);
}

size_t checked_resize(void *block, uint32_t entry, size_t size, bool *resized) {
  unsigned cls = entry_class(entry);
  _Atomic uint16_t *state = state_of(block, cls);
  uint16_t value = state ? load_relaxed(state) : 0;
  size_t bytes = class_bytes(cls);
  check_state(block, value);
  check_canary(block, bytes, value);
  size_t before = size_by(bytes, value);
  size_t room = checked_room;
  *resized = size + room <= bytes && size >= bytes / 2 && bytes - size <= CHECKED_SLACK_MAX;
  if (*resized) {
    char *end = (char *)block + min_size(size, before);
    memset(end, 0, min_size((size_t)((char *)block + before + room - end), bytes));
    canary_set((char *)block + size);
    store_relaxed(state, (uint16_t)(bytes - size + STATE_LIVE));
  }
  return before;
}
