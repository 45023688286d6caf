#include "pages/metadata.h"
#include "slab/record.h"

#include <string.h>

/* One more for the end, if that is too short for a block. */
static unsigned states_order(unsigned cls) {
  return metadata_order((class_slab_bytes(cls) + class_bytes(cls) - 1) / class_bytes(cls) * sizeof(uint16_t));
}

COLD bool states_open(const char *base, unsigned cls) {
  unsigned order = states_order(cls);
  _Atomic uint16_t *states = metadata_take(order);
  if (states != NULL)
    memset((void *)states, 0, (size_t)1 << order);
  atomic_store_explicit(map_row_states(map_row(base), base), states, memory_order_release);
  return states != NULL;
}

COLD void states_close(const char *base, unsigned cls) {
  metadata_give((void *)atomic_exchange(map_row_states(map_row(base), base), NULL), states_order(cls));
}
