#include "guard/slots.h"

#include "base/counters.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/metadata.h"
#include "pages/page_map.h"
#include "profile/profile.h"

#include <string.h>

#define GAP_BYTES UNIT_BYTES
#define PITCH_BYTES (GAP_BYTES + SLOT_BYTES_MAX)
#define REGION_BYTES (SLOTS * PITCH_BYTES + GAP_BYTES)

_Static_assert(SLOT_BYTES_MAX == UNIT_BYTES, "a slot is a unit");

static struct {
  _Atomic(char *) base; /* of the region; set once, when all else is there */
  struct slot *slots;
  uint8_t queue[SLOTS]; /* numbers of free slots, the oldest first */
  uint32_t first, count;
  uint64_t random;
  _Atomic bool has_ended; /* some slot may be SLOT_ENDED */
  _Atomic size_t bytes, blocks;
} region SPARSE;
static struct lock region_lock; /* guards the queue and random */

_Static_assert(SLOTS <= 256, "numbers fit the queue");

static char *region_base(void) { return atomic_load_explicit(&region.base, memory_order_acquire); }
static char *pages_of(const struct slot *slot) {
  return region_base() + GAP_BYTES + (size_t)(slot - region.slots) * PITCH_BYTES;
}
static size_t page_bytes_of(size_t size) { return round_up(size, os_page_bytes()); }

static void queue_put(uint32_t number) { region.queue[(region.first + region.count++) % SLOTS] = (uint8_t)number; }

static uint64_t random_next(void) { return mix_bits(region.random += MIX_STEP); }

bool slots_make(void) {
  if (region_base() != NULL)
    return true;
  if (!lock_try(&region_lock))
    return false;
  char *base = region_base() ? NULL : os_reserve(REGION_BYTES, UNIT_BYTES);
  if (region.slots == NULL)
    region.slots = metadata_take_forever(SLOTS * sizeof *region.slots);
  if (base != NULL && region.slots != NULL && map_cover_leaves(base, REGION_BYTES)) {
    os_random(&region.random, sizeof region.random);
    for (uint32_t i = 0; i < SLOTS; i++)
      queue_put(i);
    map_entries_set(base, REGION_BYTES / UNIT_BYTES, ENTRY_GUARDED);
    atomic_store_explicit(&region.base, base, memory_order_release);
  } else if (base != NULL) {
    os_unmap(base, REGION_BYTES);
  }
  lock_give(&region_lock);
  return region_base() != NULL;
}

/* The lock is held. */
static void collect_ended(void) {
  if (!atomic_exchange_explicit(&region.has_ended, false, memory_order_acquire))
    return;
  for (uint32_t i = 0; i < SLOTS; i++) {
    struct slot *slot = &region.slots[i];
    if (atomic_load_explicit(&slot->state, memory_order_acquire) != SLOT_ENDED)
      continue;
    if (slot->is_in_profile)
      profile_forget(slot->block);
    slot->is_in_profile = false;
    store_relaxed(&slot->state, SLOT_FREE);
    queue_put(i);
  }
}

/* The lock is held. Draws among the older half of the free slots. */
static struct slot *draw_slot(void) {
  if (region.count <= SLOTS - SLOTS_LIVE_MAX)
    return NULL;
  uint32_t drawn = (uint32_t)(random_next() % (region.count / 2));
  uint8_t *oldest = &region.queue[region.first], *place = &region.queue[(region.first + drawn) % SLOTS];
  uint8_t number = *place;
  *place = *oldest;
  region.first = (region.first + 1) % SLOTS;
  region.count--;
  return &region.slots[number];
}

static void place_block(struct slot *slot, size_t size, size_t alignment, uint64_t random) {
  char *pages = pages_of(slot), *end = pages + page_bytes_of(size);
  bool is_at_end = random & 1;
  slot->size = size;
  slot->block = is_at_end ? (char *)round_down((uintptr_t)end - size, alignment) : pages;
  slot->filler = (unsigned char)(random >> 8) | 1; /* not 0, which programs write most */
  memset(pages, slot->filler, (size_t)(slot->block - pages));
  memset(slot->block + size, slot->filler, (size_t)(end - slot->block) - size);
}

static struct slot *refuse_slot(void) {
  counter_note(guarded_refused);
  return NULL;
}

struct slot *slot_take(size_t size, size_t alignment) {
  if (alignment > SLOT_BYTES_MAX || !slots_make() || !lock_try(&region_lock))
    return refuse_slot();
  collect_ended();
  struct slot *slot = draw_slot();
  uint64_t random = random_next();
  lock_give(&region_lock);
  if (slot == NULL)
    return refuse_slot();
  if (!os_commit(pages_of(slot), page_bytes_of(size))) {
    atomic_store_explicit(&slot->state, SLOT_ENDED, memory_order_release);
    atomic_store_explicit(&region.has_ended, true, memory_order_release);
    return refuse_slot();
  }
  atomic_fetch_add_explicit(&region.bytes, page_bytes_of(size), memory_order_relaxed);
  atomic_fetch_add_explicit(&region.blocks, 1, memory_order_relaxed);
  counter_note(guarded_allocations);
  place_block(slot, size, alignment, random);
  slot->freed.depth = 0;
  return slot;
}

void slot_publish(struct slot *slot) { atomic_store_explicit(&slot->state, SLOT_LIVE, memory_order_release); }

static struct slot *slot_if_used(size_t number) {
  return number < SLOTS && region.slots[number].block != NULL ? &region.slots[number] : NULL;
}

struct slot *slot_of(uintptr_t address) {
  uintptr_t base = (uintptr_t)region_base();
  if (base == 0 || address < base || address >= base + REGION_BYTES)
    return NULL;
  size_t number = (address - base) / PITCH_BYTES, offset = (address - base) % PITCH_BYTES;
  struct slot *slot = slot_if_used(number);
  if (offset >= GAP_BYTES)
    return slot;
  struct slot *former = number > 0 ? slot_if_used(number - 1) : NULL; /* the gap belongs to both: the nearer one */
  return slot == NULL || (former != NULL && offset < GAP_BYTES / 2) ? former : slot;
}

bool slot_claim(struct slot *slot) {
  uint32_t live = SLOT_LIVE;
  return atomic_compare_exchange_strong(&slot->state, &live, SLOT_ENDING);
}

const char *slot_written(const struct slot *slot) {
  const char *end = pages_of(slot) + page_bytes_of(slot->size);
  for (const char *at = slot->block + slot->size; at < end; at++)
    if ((unsigned char)*at != slot->filler)
      return at;
  for (const char *at = slot->block; at > pages_of(slot); at--)
    if ((unsigned char)at[-1] != slot->filler)
      return at - 1;
  return NULL;
}

/* If the kernel refuses, the slot stays as it is, and is not used again. */
void slot_end(struct slot *slot, bool is_inside) {
  atomic_fetch_sub_explicit(&region.blocks, 1, memory_order_relaxed);
  if (!os_seal(pages_of(slot), page_bytes_of(slot->size)))
    return;
  atomic_fetch_sub_explicit(&region.bytes, page_bytes_of(slot->size), memory_order_relaxed);
  atomic_store_explicit(&slot->state, SLOT_ENDED, memory_order_release);
  atomic_store_explicit(&region.has_ended, true, memory_order_release);
  if (is_inside && lock_try(&region_lock)) {
    collect_ended();
    lock_give(&region_lock);
  }
}

void slots_in_child(void) {
  if (lock_is_held(&region_lock)) /* by a thread that does not exist; a write would copy the page */
    lock_give(&region_lock);
}

void slots_stats(struct hak_stats *out) {
  out->guarded_bytes = load_relaxed(&region.bytes);
  out->guarded_blocks = load_relaxed(&region.blocks);
}
