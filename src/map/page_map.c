#include "map/page_map.h"

#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"

uintptr_t hak_map_top[HAK_MAP_TOP_COUNT];

static struct lock leaf_lock;
static _Atomic size_t leaf_count;

static bool cover(const void *address, size_t size, bool may_wait) {
  uintptr_t first = (uintptr_t)address >> HAK_LEAF_SHIFT;
  uintptr_t last = ((uintptr_t)address + size - 1) >> HAK_LEAF_SHIFT;
  if (last >= HAK_MAP_TOP_COUNT || last < first)
    return false;
  for (uintptr_t gib = first; gib <= last; gib++) {
    if (__atomic_load_n(&hak_map_top[gib], __ATOMIC_ACQUIRE) != 0)
      continue;
    if (may_wait)
      lock_take(&leaf_lock);
    else if (!lock_try(&leaf_lock))
      return false;
    bool done = hak_map_top[gib] != 0;
    if (!done) {
      char *leaf = os_map(LEAF_TABLE_BYTES, os_page_bytes());
      if (leaf != NULL) {
        __atomic_store_n(&hak_map_top[gib], (uintptr_t)leaf - map_bias(gib), __ATOMIC_RELEASE);
        atomic_fetch_add_explicit(&leaf_count, 1, memory_order_relaxed);
        done = true;
      }
    }
    lock_give(&leaf_lock);
    if (!done)
      return false;
  }
  return true;
}

bool map_cover(const void *address, size_t size) { return cover(address, size, true); }
bool map_cover_without_waiting(const void *address, size_t size) { return cover(address, size, false); }

void map_entries_set(const void *address, size_t units, uint32_t entry) {
  const char *at = address;
  for (size_t i = 0; i < units; i++, at += UNIT_BYTES) {
    hak_assert(map_covers(at));
    __atomic_store_n((uint32_t *)map_leaf(at) + map_unit_in_leaf(at), entry, __ATOMIC_RELAXED);
  }
}

bool map_entry_change(const void *address, uint32_t from, uint32_t to) {
  uint32_t *entry = (uint32_t *)(void *)map_leaf(address) + map_unit_in_leaf(address);
  return __atomic_compare_exchange_n(entry, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void map_lock_for_fork(void) { lock_take(&leaf_lock); }

void map_unlock_after_fork(bool child) {
  if (child)
    lock_reset(&leaf_lock);
  else
    lock_give(&leaf_lock);
}

size_t map_bytes(void) { return atomic_load_explicit(&leaf_count, memory_order_relaxed) * LEAF_TABLE_BYTES; }
