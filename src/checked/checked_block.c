#include "checked/checked_block.h"

#include "os/os.h"

struct checked_settings checked;

void secret_draw(void) {
  if (checked.older_count == OLDER_MAX)
    return;
  if (checked.secret.factor != 0)
    checked.older[checked.older_count++] = checked.secret;
  os_random(&checked.secret, sizeof checked.secret);
  checked.secret.factor |= 1;
}

bool canary_is_older(const char *end) {
  uint64_t word;
  memcpy(&word, end, sizeof word);
  for (uint32_t i = 0; i < checked.older_count; i++)
    if (word == canary_of(end, checked.older[i]))
      return true;
  return false;
}

void checked_retire(void *block, uint32_t entry) {
  unsigned cls = entry_class(entry);
  _Atomic uint16_t *state = state_of(block, cls);
  uint16_t value = state ? load_relaxed(state) : 0;
  check_state(block, value);
  check_canary(block, class_bytes(cls), value);
  state_retire(block, state, value);
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
    block_make_live((struct kept){.block = block, .state = state}, bytes, size, checked.has_canary);
  }
  return before;
}
