#include "pages/extent.h"

#include "os/nodes.h"
#include "os/os.h"
#include "pages/extent_bank.h"
#include "pages/page_map.h"

void extent_give(struct extent extent, uint64_t freed_ms, enum usage from) {
  lock_take(&extents_lock);
  bank_give(extent, freed_ms, from);
  lock_give(&extents_lock);
  usage_move_end(extent.bytes);
}

size_t extent_give_purged(struct extent extent, enum usage from) {
  enum purge_result result = pages_purge(extent.base, extent.bytes);
  extent.resident = result == PURGE_REFUSED;
  extent.zero = result == PURGE_GONE;
  extent_give(extent, os_milliseconds(), from);
  return extent.resident ? 0 : extent.bytes;
}

/* --- taking --- */

size_t (*_Atomic extents_evict)(void);

struct extent extent_take_resident(enum extent_bank bank, unsigned node, size_t bytes, size_t alignment) {
  if (decay_total(&extents_decay) < bytes)
    return (struct extent){0};
  HOLD_LOCK(&extents_lock);
  struct extent taken = {0};
  for (unsigned i = 0; i < EXTENT_BANKS && taken.base == NULL; i++)
    taken = bank_take_free(bank_number((bank + i) % EXTENT_BANKS, node), true, bytes, alignment);
  usage_move_begin(taken.bytes);
  return taken;
}

struct extent extent_take_resident_of_any(enum extent_bank bank, size_t bytes, size_t alignment) {
  unsigned nodes = os_nodes(), own = os_node();
  struct extent taken = {0};
  for (unsigned i = 0; i < nodes && taken.base == NULL; i++)
    taken = extent_take_resident(bank, (own + i) % nodes, bytes, alignment);
  return taken;
}

static struct extent take_of_bank(unsigned number, size_t bytes, size_t alignment) {
  struct extent taken = bank_take_free(number, true, bytes, alignment);
  return taken.base != NULL ? taken : bank_take_free(number, false, bytes, alignment);
}

static struct extent bank_take(unsigned number, size_t bytes, size_t alignment) {
  struct extent taken = take_of_bank(number, bytes, alignment);
  if (taken.base == NULL && number % EXTENT_BANKS == EXTENT_PLAIN)
    taken = take_of_bank(number + EXTENT_ADOPTED, bytes, alignment);
  return taken.base != NULL ? taken : bank_carve(number, bytes, alignment);
}

struct extent extent_take(enum extent_bank bank, size_t bytes, size_t alignment) {
  unsigned nodes = os_nodes(), own = os_node();
  struct extent taken = {0};
  HOLD_LOCK(&extents_lock);
  for (unsigned i = 0; i < nodes && taken.base == NULL; i++)
    taken = bank_take(bank_number(bank, (own + i) % nodes), bytes, alignment);
  usage_move_begin(taken.bytes);
  return taken;
}

COLD struct extent extent_take_behind(char *end, size_t bytes) {
  struct extent taken = {0};
  HOLD_LOCK(&extents_lock);
  unsigned number = bank_number_at(end - UNIT_BYTES);
  struct arena *arena = bank_arena(number);
  if (end == arena->next) {
    if ((size_t)(arena->end - end) >= bytes && arena_commit(arena, end + bytes, bank_mark(number))) {
      arena->next += bytes;
      taken = (struct extent){.base = end, .bytes = bytes, .zero = true};
    }
  } else {
    struct free_extent *e = bank_free_at(end);
    if (e && e->bytes >= bytes && e->bank == number)
      taken = bank_cut(e, end, bytes);
  }
  usage_move_begin(taken.bytes);
  return taken;
}

/* --- giving back to the system --- */

#define ISLANDS_MAX 256u /* each is a mapping, of which the kernel allows a limited number */

COLD bool extent_adopt(char *mapping, size_t bytes) {
  HOLD_LOCK(&extents_lock);
  if (bank_islands() >= ISLANDS_MAX)
    return false;
  bank_add(bank_number(EXTENT_ADOPTED, os_node()), mapping, bytes);
  return true;
}

#define ISLANDS_MANY (ISLANDS_MAX / 8)

COLD bool extent_islands_are_many(void) {
  HOLD_LOCK(&extents_lock);
  return bank_islands() >= ISLANDS_MANY;
}

/* Unmaps it. If the system refuses (too many mappings), it becomes a free extent again, without its pages. False: it is
 * still mapped. *is_gone: its pages are not resident any more. */
COLD static bool release_end(unsigned number, struct extent extent, bool *is_gone) {
  enum usage from = extent.resident ? USAGE_FREE : USAGE_NOWHERE;
  map_rows_purge(extent.base, extent.bytes); /* as long as the range is ours */
  if (pages_unmap(extent.base, extent.bytes)) {
    if (extent.resident)
      usage_move(USAGE_FREE, USAGE_NOWHERE, extent.bytes);
    return *is_gone = true;
  }
  *is_gone = extent.zero = os_purge(extent.base, extent.bytes);
  extent.resident = !extent.zero;
  usage_move_begin(extent.bytes);
  lock_take(&extents_lock);
  bank_add(number, extent.base, extent.bytes);
  bank_give(extent, os_milliseconds(), from);
  lock_give(&extents_lock);
  usage_move_end(extent.bytes);
  return false;
}

#define GAP_BYTES_MIN ((size_t)1 << 20) /* a gap between others makes one mapping more */

static bool is_to_unmap(const struct free_extent *e) {
  return e->bank % EXTENT_BANKS == EXTENT_ADOPTED &&
         (e->bytes >= GAP_BYTES_MIN || arena_neighbours(e->base, e->bytes, bank_mark(e->bank)) < 2);
}

/* Purges the oldest resident extent. Returns its bytes, 0 when nothing is left to do. */
static size_t purge_oldest(struct purge purge) {
  lock_take(&extents_lock);
  struct free_extent *oldest = bank_oldest();
  if (decay_next(&extents_decay, purge) == KEEP_LISTS) {
    lock_give(&extents_lock);
    return 0;
  }
  /* Purges no more than necessary; the front stays. During the system call the extent counts as taken, so no other
   * thread can get it. */
  unsigned number = oldest->bank;
  bool to_unmap = is_to_unmap(oldest);
  size_t most_bytes = min_size(decay_total(&extents_decay) - purge.keep_bytes, purge.most_bytes);
  size_t bytes = min_size(oldest->bytes, round_up(most_bytes, SUPERSLAB_BYTES));
  struct extent extent = bank_cut(oldest, oldest->base + oldest->bytes - bytes, bytes);
  if (UNLIKELY(to_unmap)) {
    bool is_gone;
    bank_remove(number, extent);
    lock_give(&extents_lock);
    release_end(number, extent, &is_gone);
    return is_gone ? bytes : 0;
  }
  usage_move_begin(bytes);
  lock_give(&extents_lock);
  return extent_give_purged(extent, USAGE_FREE);
}

COLD size_t extents_purge(struct purge purge) {
  size_t purged = 0;
  for (size_t bytes; purged < purge.most_bytes && (bytes = purge_oldest(purge)) > 0;)
    purged += bytes;
  return purged;
}

/* Unmaps one free extent of at least bytes_min, or the part of it that consists of whole multiples of `grain`. */
COLD static bool release_one(unsigned number, bool resident, size_t bytes_min, size_t grain) {
  struct extent extent = {0};
  bool is_gone;
  lock_take(&extents_lock);
  struct free_extent *e = bank_find(number, resident, bytes_min, grain);
  if (e) {
    char *base = (char *)round_up((uintptr_t)e->base, grain);
    extent = bank_cut(e, base, round_down((uintptr_t)(e->base + e->bytes), grain) - (uintptr_t)base);
    bank_remove(number, extent);
  }
  lock_give(&extents_lock);
  return extent.base != NULL && release_end(number, extent, &is_gone);
}

/* Unmaps at most this many short extents at a time, because each leaves a gap between two mappings. */
#define RELEASED_SHORT_MAX 1000u

COLD bool extents_release(size_t bytes_min) {
  bool any = false;
  for (unsigned i = 0; i < bank_count(); i++) {
    const struct arena *arena = bank_arena(i);
    lock_take(&extents_lock);
    any |= arena->end > arena->next;
    bank_retire(i);
    lock_give(&extents_lock);
    for (unsigned resident = 0; resident < 2; resident++) {
      while (release_one(i, resident, max_size(bytes_min, SUPERSLAB_BYTES), SUPERSLAB_BYTES))
        any = true;
      for (unsigned n = 0; bytes_min < SUPERSLAB_BYTES && n < RELEASED_SHORT_MAX; n++, any = true)
        if (!release_one(i, resident, bytes_min, UNIT_BYTES))
          break;
    }
  }
  return any;
}

COLD void extents_stats(struct extent_stats *out) {
  HOLD_LOCK(&extents_lock);
  size_t resident = decay_total(&extents_decay);
  *out = (struct extent_stats){.resident_free_bytes = resident, .other_free_bytes = bank_free_bytes() - resident};
  for (unsigned i = 0; i < bank_count(); i++) {
    const struct arena *arena = bank_arena(i);
    out->reserved_bytes += arena->reserved_bytes;
    out->committed_bytes += arena->committed_bytes;
    out->unused_bytes += (size_t)(arena->committed - arena->next);
  }
}
