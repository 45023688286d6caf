#include "pages/extent.h"

#include "base/bits.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/collapse.h"
#include "pages/free_extent.h"
#include "pages/fresh.h"
#include "pages/page_map.h"

static struct {
  struct lock lock;
  size_t pieces; /* connected ones of adopted arenas */
} extents;

enum extent_bank extent_bank_of(const void *address) {
  return (enum extent_bank)(bank_number_at(address) % EXTENT_BANKS);
}
unsigned extent_node_of(const void *address) { return bank_number_at(address) / EXTENT_BANKS; }

/* --- carving: with the lock held --- */

/* Retires the newest arena: its accessible rest becomes a free extent, the inaccessible rest is unmapped. */
static void bank_retire(unsigned number) {
  struct bank *bank = bank_numbered(number);
  struct extent rest = {.zero = true};
  rest.base = arena_retire(&bank->arena, &rest.bytes);
  if (rest.bytes > 0)
    free_extent_give(rest, NO_STAY, USAGE_NOWHERE);
}

/* The kernel fills a huge page only where all of it is accessible. So a long extent on huge pages takes no memory
 * behind its end: it has small pages there, and so has what is carved next, up to the next huge page. */
#define EXACT_BYTES_MIN (4 * ROW_BYTES)
static bool bank_commit(unsigned number, char *until, size_t bytes) {
  bool has_ahead = number % EXTENT_BANKS != EXTENT_HUGE || bytes < EXACT_BYTES_MIN;
  return arena_commit(&bank_numbered(number)->arena, until, bank_mark(number), has_ahead);
}

/* Carves an extent from the front of the newest arena, or of a new one. Its base is NULL if the system refuses. */
static struct extent bank_carve(unsigned number, size_t bytes, size_t alignment) {
  struct bank *bank = bank_numbered(number);
  struct arena *arena = &bank->arena;
  char *base = (char *)round_up((uintptr_t)arena->next, alignment);
  if (arena->next == NULL || base > arena->end || (size_t)(arena->end - base) < bytes) {
    bank_retire(number);
    if (!arena_reserve(arena, bytes, alignment, number % EXTENT_BANKS == EXTENT_HUGE))
      return (struct extent){0};
    base = arena->next;
  }
  if (!bank_commit(number, base + bytes, bytes))
    return (struct extent){0};
  if (base > arena->next)
    free_extent_give((struct extent){.base = arena->next, .bytes = (size_t)(base - arena->next), .zero = true}, NO_STAY,
                     USAGE_NOWHERE);
  arena->next = base + bytes;
  fresh_rows_set(base, arena->next, arena->end);
  return (struct extent){.base = base, .bytes = bytes, .zero = true};
}

/* Takes a part of one that fits. Its base is NULL if there is none. */
static NOINLINE struct extent bank_take_free(unsigned number, bool resident, size_t bytes, size_t alignment) {
  struct free_extent *e = free_extent_find(number, resident, bytes, alignment);
  return e ? free_extent_cut(e, (char *)round_up((uintptr_t)e->base, alignment), bytes) : (struct extent){0};
}

/* --- taking --- */

extent_taker *_Atomic extent_take_kept;

struct extent extent_take_resident(enum extent_bank bank, size_t bytes, size_t alignment) {
  if (load_relaxed(&usage_at[USAGE_FREE]) < bytes) /* while an extent is cut, extents_decay lacks all of it */
    return (struct extent){0};
  unsigned nodes = os_nodes(), own = os_node();
  struct extent taken = {0};
  HOLD_LOCK(&extents.lock);
  for (unsigned i = 0; i < nodes * EXTENT_BANKS && taken.base == NULL; i++)
    taken = bank_take_free(bank_number((bank + i) % EXTENT_BANKS, (own + i / EXTENT_BANKS) % nodes), true, bytes,
                           alignment);
  usage_move_begin(taken.bytes);
  return taken;
}

/* Takes `bytes` of a bank from an address on, of a free extent or of what was not carved yet. Its base is NULL if that
 * is too short, or in use. */
static struct extent bank_take_at(unsigned number, char *at, size_t bytes) {
  struct arena *arena = &bank_numbered(number)->arena;
  struct free_extent *e = free_extent_at(at);
  if (e != NULL && e->bank == number && e->bytes >= bytes)
    return free_extent_cut(e, at, bytes);
  if (at != arena->next || (size_t)(arena->end - at) < bytes || !bank_commit(number, at + bytes, bytes))
    return (struct extent){0};
  arena->next += bytes;
  fresh_rows_set(at, arena->next, arena->end);
  return (struct extent){.base = at, .bytes = bytes, .zero = true};
}

/* Takes a resident free extent that is too short, with memory behind it that is not resident. Its base is NULL if there
 * is no such memory. */
static struct extent take_with_behind(struct free_extent *e, unsigned number, size_t bytes) {
  const struct free_extent *behind = free_extent_at(e->base + e->bytes);
  struct extent taken = {.base = e->base, .bytes = bytes, .front = e->bytes};
  if (behind != NULL && behind->resident) /* of another bank */
    return (struct extent){0};
  struct extent more = bank_take_at(number, e->base + e->bytes, bytes - e->bytes);
  if (more.base == NULL)
    return more;
  taken.zero = more.zero;
  free_extent_take(e);
  usage_move_begin(taken.front);
  usage_move(USAGE_FREE, USAGE_NOWHERE, taken.front);
  usage_move_end(taken.front);
  return taken;
}

/* Takes what begins with a resident extent, a long one first, and goes on with memory that is not, so that less memory
 * becomes resident. Tries one extent of each list. */
static struct extent bank_take_partly_resident(unsigned number, size_t bytes) {
  struct free_extent *const *lists = bank_lists(number, true);
  struct extent taken = {0};
  for (unsigned list = units_class(bytes / UNIT_BYTES); list > 0 && taken.base == NULL; list--)
    if (bit_is_set(bank_numbered(number)->filled[true], list) && lists[list]->bytes < bytes)
      taken = take_with_behind(lists[list], number, bytes);
  return taken;
}

static struct extent bank_take(unsigned number, size_t bytes, size_t alignment) {
  struct extent taken = bank_take_free(number, true, bytes, alignment);
  if (taken.base == NULL && alignment == UNIT_BYTES)
    taken = bank_take_partly_resident(number, bytes);
  if (taken.base == NULL)
    taken = bank_take_free(number, false, bytes, alignment);
  return taken;
}

static struct extent bank_take_or_carve(unsigned number, size_t bytes, size_t alignment) {
  struct extent taken = bank_take(number, bytes, alignment);
  if (taken.base == NULL && number % EXTENT_BANKS == EXTENT_PLAIN)
    taken = bank_take(number + EXTENT_ADOPTED, bytes, alignment);
  return taken.base != NULL ? taken : bank_carve(number, bytes, alignment);
}

/* The promise was not used, or not needed, if nothing was taken, or if it is resident. */
static struct extent taken_by_promise(struct extent taken, size_t bytes) {
  usage_move_begin(taken.bytes);
  if (taken.base == NULL || taken.resident)
    usage_move(USAGE_PROMISED, USAGE_NOWHERE, bytes);
  return taken;
}

struct extent extent_take(enum extent_bank bank, size_t bytes, size_t alignment) {
  enum extent_bank other = bank == EXTENT_PLAIN ? EXTENT_HUGE : EXTENT_PLAIN;
  unsigned nodes = os_nodes(), own = os_node();
  struct extent taken = {0};
  if (!usage_reserve(bytes))
    return taken;
  HOLD_LOCK(&extents.lock);
  for (unsigned i = 0; i < 2 * nodes && taken.base == NULL; i++)
    taken = bank_take_or_carve(bank_number(i < nodes ? bank : other, (own + i) % nodes), bytes, alignment);
  return taken_by_promise(taken, bytes);
}

COLD struct extent extent_take_behind(char *end, size_t bytes) {
  if (!usage_reserve(bytes))
    return (struct extent){0};
  HOLD_LOCK(&extents.lock);
  return taken_by_promise(bank_take_at(bank_number_at(end - UNIT_BYTES), end, bytes), bytes);
}

/* --- giving --- */

static void give_to_stay(struct extent extent, struct stay stay, enum usage from) {
  lock_take(&extents.lock);
  free_extent_give(extent, stay, from);
  lock_give(&extents.lock);
  usage_move_end(extent.bytes);
}

void extent_give(struct extent extent, unsigned keep, uint64_t freed_ms, enum usage from) {
  give_to_stay(extent, (struct stay){.freed_ms = freed_ms, .keep = keep}, from);
}

/* Purges an extent and gives it. The system refuses all of it for one locked page. So it is halved then, while *splits
 * allows. Returns the bytes that went. */
static size_t give_purged(struct extent extent, enum usage from, unsigned *splits) {
  enum purge_result result = pages_purge(extent.base, extent.bytes);
  collapse_forget(extent.base, extent.bytes);
  size_t half = round_up(extent.bytes / 2, UNIT_BYTES);
  if (UNLIKELY(result == PURGE_REFUSED) && *splits > 0 && half < extent.bytes) {
    --*splits;
    struct extent left = extent, right = extent;
    left.bytes = half;
    right.base += half;
    right.bytes -= half;
    size_t purged = give_purged(left, from, splits);
    return purged + give_purged(right, from, splits);
  }
  extent.resident = result == PURGE_REFUSED;
  extent.zero = result == PURGE_GONE;
  give_to_stay(extent, STAY_PURGED, from);
  return extent.resident ? 0 : extent.bytes;
}

size_t extent_give_purged(struct extent extent, enum usage from) {
  unsigned splits = 0;
  return give_purged(extent, from, &splits);
}

/* --- arenas that come and go --- */

/* Adds a mapping to a bank, as an arena that is in use, or removes an extent that was cut out. */
COLD static void bank_change(unsigned number, char *base, size_t bytes, bool is_added) {
  struct arena *arena = &bank_numbered(number)->arena;
  size_t pieces = 1 - arena_neighbours(base, bytes, bank_mark(number)), change = is_added ? bytes : -bytes;
  if (number % EXTENT_BANKS == EXTENT_ADOPTED)
    extents.pieces += is_added ? pieces : -pieces;
  if (!is_added)
    map_entries_set(base, bytes / UNIT_BYTES, ENTRY_NONE); /* before the mark goes (range_entry_inside) */
  arena_mark_set(base, bytes, is_added ? bank_mark(number) : 0);
  arena->reserved_bytes += change;
  arena->committed_bytes += change;
  collapse_forget(base, bytes);
}

#define PIECES_MAX 256u /* each is a mapping, of which the kernel allows a limited number */

COLD bool extent_adopt(char *mapping, size_t bytes) {
  HOLD_LOCK(&extents.lock);
  if (extents.pieces >= PIECES_MAX)
    return false;
  bank_change(bank_number(EXTENT_ADOPTED, os_node()), mapping, bytes, true);
  return true;
}

#define PIECES_MANY (PIECES_MAX / 8)

COLD bool extent_pieces_are_many(void) {
  HOLD_LOCK(&extents.lock);
  return extents.pieces >= PIECES_MANY;
}

/* --- giving back to the system --- */

/* Unmaps an extent that was removed from its bank. False: the system refuses (too many mappings), and extent_stays must
 * follow. */
COLD static bool extent_unmap(struct extent *extent) {
  map_rows_purge(extent->base, extent->bytes); /* as long as the range is ours */
  if (!pages_unmap(extent->base, extent->bytes))
    return false;
  usage_move(extent->resident ? USAGE_FREE : USAGE_NOWHERE, USAGE_NOWHERE, extent->bytes);
  extent->resident = false;
  return true;
}

/* Makes a free extent of it again, without its pages if it may. */
COLD static void extent_stays(unsigned number, struct extent *extent) {
  enum usage from = extent->resident ? USAGE_FREE : USAGE_NOWHERE;
  extent->zero = os_purge(extent->base, extent->bytes);
  extent->resident = !extent->zero;
  usage_move_begin(extent->bytes);
  lock_take(&extents.lock);
  bank_change(number, extent->base, extent->bytes, true);
  free_extent_give(*extent, STAY_PURGED, from);
  lock_give(&extents.lock);
  usage_move_end(extent->bytes);
}

#define GAP_BYTES_MIN ((size_t)1 << 20) /* a gap between others makes one mapping more */

static bool is_to_unmap(const struct free_extent *e) {
  return e->bank % EXTENT_BANKS == EXTENT_ADOPTED &&
         (e->bytes >= GAP_BYTES_MIN || arena_neighbours(e->base, e->bytes, bank_mark(e->bank)) < 2);
}

/* Purges the oldest resident extent, and adds what went to *purged. Returns how much it tried, 0 when nothing is left.
 * splits: as of give_purged. */
static size_t purge_oldest(struct purge purge, size_t *purged, unsigned *splits) {
  lock_take(&extents.lock);
  unsigned keep = decay_next(&extents_decay, purge);
  struct free_extent *oldest = keep < KEEP_LISTS ? free_extent_oldest(keep) : NULL;
  if (oldest == NULL) {
    lock_give(&extents.lock);
    return 0;
  }
  /* Purges no more than necessary; the front stays. During the system call the extent counts as taken, so no other
   * thread can get it. */
  unsigned number = oldest->bank;
  bool to_unmap = is_to_unmap(oldest);
  size_t most_bytes = min_size(decay_bytes(&extents_decay, purge.decider) - purge.keep_bytes, purge.most_bytes);
  size_t bytes = min_size(oldest->bytes, round_up(most_bytes, ROW_BYTES));
  struct extent extent = free_extent_cut(oldest, oldest->base + oldest->bytes - bytes, bytes);
  if (UNLIKELY(to_unmap)) {
    bank_change(number, extent.base, extent.bytes, false);
    lock_give(&extents.lock);
    if (!extent_unmap(&extent))
      extent_stays(number, &extent);
    *purged += extent.resident ? 0 : bytes;
    return bytes;
  }
  usage_move_begin(bytes);
  lock_give(&extents.lock);
  *purged += give_purged(extent, USAGE_FREE, splits);
  return bytes;
}

/* Halvings of extents in one purge: 16 find one locked unit in 4 GiB, and bound the time where all is locked. */
#define SPLITS_MAX 16u
/* After this many extents of which nothing went, further ones count against the bound of the purge. */
#define REFUSALS_MAX 64u

/* What the system refuses becomes the youngest. So all were tried once as many bytes were as there are at first. */
COLD size_t extents_purge(struct purge purge) {
  size_t purged = 0, before = 0, untried = decay_bytes(&extents_decay, purge.decider), bytes;
  unsigned splits = SPLITS_MAX, refusals = 0;
  for (; purge.most_bytes > 0 && untried > 0 && (bytes = purge_oldest(purge, &purged, &splits)) > 0; before = purged) {
    untried = sub_sat(untried, bytes);
    if (purged > before || ++refusals > REFUSALS_MAX)
      purge.most_bytes = sub_sat(purge.most_bytes, bytes);
  }
  return purged;
}

/* Unmaps one free extent of at least bytes_min, or the part of it that consists of whole multiples of `grain`. One that
 * the system refuses goes to the next place of refused. False: there is none. */
COLD static bool release_one(unsigned number, bool resident, size_t bytes_min, size_t grain, struct extent **refused) {
  struct extent extent = {0};
  lock_take(&extents.lock);
  struct free_extent *e = free_extent_find(number, resident, bytes_min, grain);
  if (e) {
    char *base = (char *)round_up((uintptr_t)e->base, grain);
    extent = free_extent_cut(e, base, round_down((uintptr_t)(e->base + e->bytes), grain) - (uintptr_t)base);
    bank_change(number, extent.base, extent.bytes, false);
  }
  lock_give(&extents.lock);
  if (extent.base != NULL && !extent_unmap(&extent))
    *(*refused)++ = extent;
  return extent.base != NULL;
}

/* Unmaps at most this many short extents at a time, because each leaves a gap between two mappings. */
#define RELEASED_SHORT_MAX 1000u
#define REFUSED_MAX 32u /* of one bank: so many inside mappings do not keep whole ones from going */

COLD static bool bank_release(unsigned number, bool resident, size_t bytes_min) {
  struct extent refused[REFUSED_MAX], *end = refused;
  size_t tries = 0, shorts = bytes_min < ROW_BYTES ? RELEASED_SHORT_MAX : 0;
  while (end < refused + REFUSED_MAX && release_one(number, resident, max_size(bytes_min, ROW_BYTES), ROW_BYTES, &end))
    tries++;
  for (; shorts > 0 && end < refused + REFUSED_MAX && release_one(number, resident, bytes_min, UNIT_BYTES, &end);
       tries++)
    shorts--;
  tries -= (size_t)(end - refused);
  while (end > refused)
    extent_stays(number, --end);
  return tries > 0;
}

COLD bool extents_release(size_t bytes_min) {
  bool any = false;
  for (unsigned i = 0; i < bank_count(); i++) {
    const struct arena *arena = &bank_numbered(i)->arena;
    lock_take(&extents.lock);
    any |= arena->end > arena->next;
    bank_retire(i);
    lock_give(&extents.lock);
    any |= bank_release(i, false, bytes_min);
    any |= bank_release(i, true, bytes_min);
  }
  return any;
}

COLD void extents_stats(struct extent_stats *out) {
  HOLD_LOCK(&extents.lock);
  size_t resident = decay_total(&extents_decay);
  *out = (struct extent_stats){.resident_free_bytes = resident, .other_free_bytes = free_extents_bytes() - resident};
  for (unsigned i = 0; i < bank_count(); i++) {
    const struct arena *arena = &bank_numbered(i)->arena;
    out->reserved_bytes += arena->reserved_bytes;
    out->committed_bytes += arena->committed_bytes;
    out->unused_bytes += (size_t)(arena->committed - arena->next);
  }
}

#ifdef HAK_DEBUG
bool extents_are_valid(void) {
  HOLD_LOCK(&extents.lock);
  return free_extents_are_valid();
}
#endif
