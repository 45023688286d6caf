#include "pages/extent.h"

#include "base/bits.h"
#include "base/list.h"
#include "os/lock.h"
#include "os/nodes.h"
#include "os/os.h"
#include "pages/page_map.h"

#define LOOKS_MAX 8u /* extents of one list tried for a fit */

struct free_links {
  struct free_extent *next, *previous;
};
struct free_extent {
  char *base; /* stored in the last unit's record too */
  size_t bytes;
  struct free_links by_size, by_age;
  uint64_t freed_ms;
  bool resident, zero;
  uint8_t keep; /* its list by age, if it is resident */
  uint8_t bank; /* its number */
};

STACK_OF(size_list, free_extent, by_size.next, by_size.previous)
QUEUE_OF(age_list, free_extent, by_age.next, by_age.previous)
_Static_assert(sizeof(struct free_extent) <= RECORD_BYTES, "a free extent's record fits the leaf");

struct bank {
  struct free_extent *lists[2][UNITS_CLASSES]; /* [1]: resident ones */
  uint64_t filled[2][UNITS_CLASSES / 64];      /* bit i: list i is not empty */
  struct arena arena;
};

static struct {
  struct lock lock;
  struct age_list ages[KEEP_LISTS]; /* resident ones, oldest first */
  size_t free_bytes;                /* of all free extents */
  size_t islands;                   /* connected pieces of adopted arenas */
  struct bank banks[EXTENT_BANKS];  /* of node 0, apart from the others: most machines have no others */
} extents;

static struct bank banks_of_others[EXTENT_BANKS * (NODES_MAX - 1)] SPARSE;
_Static_assert(EXTENT_BANKS *NODES_MAX <= UINT8_MAX, "a row has a byte for each mark");

/* --- banks --- */

/* A bank is known by its number. They are numbered node by node. An arena's mark is its bank's number plus one. */
static unsigned bank_number(enum extent_bank bank, unsigned node) { return EXTENT_BANKS * node + bank; }
static unsigned bank_mark(unsigned number) { return number + 1; }
static unsigned bank_count(void) { return EXTENT_BANKS * os_nodes(); }

static struct bank *bank_numbered(unsigned number) {
  return LIKELY(number < EXTENT_BANKS) ? &extents.banks[number] : &banks_of_others[number - EXTENT_BANKS];
}

/* Returns the first bank's number for an address outside all arenas. */
static unsigned bank_number_at(const void *address) {
  unsigned mark = arena_mark(address);
  return mark == 0 ? 0 : mark - 1;
}

enum extent_bank extent_bank_of(const void *address) {
  return (enum extent_bank)(bank_number_at(address) % EXTENT_BANKS);
}
unsigned extent_node_of(const void *address) { return bank_number_at(address) / EXTENT_BANKS; }

/* --- lists: with the lock held --- */

static struct free_extent *extent_record(const char *unit) { return map_record(unit); }
static struct extent extent_of(const struct free_extent *e) {
  return (struct extent){.base = e->base, .bytes = e->bytes, .resident = e->resident, .zero = e->zero};
}
/* How long a free extent's pages stay, and since when. */
struct stay {
  uint64_t freed_ms;
  unsigned keep;
  bool is_fixed; /* keep holds whatever the neighbours have */
};
static struct stay stay_of(const struct free_extent *e) {
  return (struct stay){.freed_ms = e->freed_ms, .keep = e->keep};
}
static char *last_unit(const struct free_extent *e) { return e->base + e->bytes - UNIT_BYTES; }

static void resident_change(unsigned keep, size_t change) {
  const struct free_extent *oldest = extents.ages[keep].first;
  decay_change(&extents_decay, keep, change, oldest ? oldest->freed_ms : 0);
}

/* Inserts by age. Mostly this appends; an extent with an older time goes further to the front. */
static void age_insert(struct free_extent *e) {
  struct free_extent *before = extents.ages[e->keep].last;
  for (unsigned looks = 0; before && before->freed_ms > e->freed_ms && looks < LOOKS_MAX; looks++)
    before = before->by_age.previous;
  age_list_insert(&extents.ages[e->keep], e, before);
}

/* The caller moves the bytes of a resident one to USAGE_FREE. */
static void extent_attach(unsigned number, struct extent piece, struct stay stay) {
  struct free_extent *e = extent_record(piece.base);
  *e = (struct free_extent){.base = piece.base,
                            .bytes = piece.bytes,
                            .freed_ms = stay.freed_ms,
                            .resident = piece.resident,
                            .zero = piece.zero,
                            .keep = (uint8_t)stay.keep,
                            .bank = (uint8_t)number};
  extent_record(last_unit(e))->base = e->base;
  map_entry_set(e->base, ENTRY_EXTENT);
  map_entry_set(last_unit(e), ENTRY_EXTENT);
  struct bank *bank = bank_numbered(number);
  unsigned list = units_class(e->bytes / UNIT_BYTES);
  size_list_push(&bank->lists[e->resident][list], e);
  bits_set(bank->filled[e->resident], list, 1, true);
  extents.free_bytes += e->bytes;
  if (e->resident) {
    age_insert(e);
    resident_change(e->keep, e->bytes);
  }
}

/* Removes a free extent from its lists and clears its end marks. The entries between stay as the last owner left
 * them. */
static struct extent extent_detach(struct free_extent *e) {
  struct bank *bank = bank_numbered(e->bank);
  unsigned list = units_class(e->bytes / UNIT_BYTES);
  struct free_extent **first = &bank->lists[e->resident][list];
  size_list_remove(first, e);
  bits_set(bank->filled[e->resident], list, 1, *first != NULL);
  extents.free_bytes -= e->bytes;
  if (e->resident) {
    age_list_remove(&extents.ages[e->keep], e);
    resident_change(e->keep, -e->bytes);
  }
  map_entry_set(e->base, ENTRY_NONE);
  map_entry_set(last_unit(e), ENTRY_NONE);
  return extent_of(e);
}

/* Returns the free extent that ends at an address; NULL if there is none. */
static NOINLINE struct free_extent *free_before(char *base) {
  return map_entry(base - UNIT_BYTES) == ENTRY_EXTENT ? extent_record(extent_record(base - UNIT_BYTES)->base) : NULL;
}
/* Returns the free extent that begins at an address; NULL if there is none. */
static NOINLINE struct free_extent *free_at(char *base) {
  return map_entry(base) == ENTRY_EXTENT ? extent_record(base) : NULL;
}

static bool same_kind(const struct free_extent *e, unsigned number, const struct extent *piece) {
  return e && e->resident == piece->resident && e->zero == piece->zero && e->bank == number;
}

/* Joins a free neighbour, if it is of the same kind. Both are as old as the younger one then. The strategy of the one
 * with more bytes decides. */
static void join_neighbour(unsigned number, struct extent *piece, struct stay *stay, struct free_extent *neighbour) {
  if (!same_kind(neighbour, number, piece))
    return;
  stay->freed_ms = max_size(stay->freed_ms, neighbour->freed_ms);
  if (neighbour->bytes > piece->bytes && !stay->is_fixed)
    stay->keep = neighbour->keep;
  struct extent joined = extent_detach(neighbour);
  piece->base = joined.base < piece->base ? joined.base : piece->base;
  piece->bytes += joined.bytes;
}

#define NO_STAY ((struct stay){.keep = KEEP_BY_PRESET}) /* of one without pages */
/* Of one that was purged. If the system refused, a neighbour's strategy might have it tried again at once. */
#define STAY_PURGED ((struct stay){.freed_ms = os_milliseconds(), .keep = KEEP_BY_PRESET, .is_fixed = true})

/* Makes a free extent, joined with its free neighbours. One that is not resident is counted nowhere. */
static void bank_give(struct extent piece, struct stay stay, enum usage from) {
  size_t own_bytes = piece.bytes;
  unsigned number = bank_number_at(piece.base);
  join_neighbour(number, &piece, &stay, free_at(piece.base + piece.bytes));
  join_neighbour(number, &piece, &stay, free_before(piece.base));
  extent_attach(number, piece, stay);
  usage_move(from, piece.resident ? USAGE_FREE : USAGE_NOWHERE, own_bytes);
}

/* --- cutting and carving: the same --- */

/* Retires the newest arena: its accessible rest becomes a free extent, the inaccessible rest is unmapped. */
static void bank_retire(unsigned number) {
  struct bank *bank = bank_numbered(number);
  struct extent rest = {.zero = true};
  rest.base = arena_retire(&bank->arena, &rest.bytes);
  if (rest.bytes > 0)
    bank_give(rest, NO_STAY, USAGE_NOWHERE);
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
  if (!arena_commit(arena, base + bytes, bank_mark(number)))
    return (struct extent){0};
  if (base > arena->next)
    bank_give((struct extent){.base = arena->next, .bytes = (size_t)(base - arena->next), .zero = true}, NO_STAY,
              USAGE_NOWHERE);
  arena->next = base + bytes;
  return (struct extent){.base = base, .bytes = bytes, .zero = true};
}

static bool extent_fits(const struct free_extent *e, size_t bytes, size_t alignment) {
  char *base = (char *)round_up((uintptr_t)e->base, alignment);
  return base + bytes <= e->base + e->bytes;
}

/* Returns a free extent that fits, of about the shortest; NULL if none was found. Looks in the lists of the smallest
 * possible sizes, and tries only some extents of each. In lists where every extent fits it takes the first. */
static struct free_extent *bank_find(unsigned number, bool resident, size_t bytes, size_t alignment) {
  const struct bank *bank = bank_numbered(number);
  const uint64_t *filled = bank->filled[resident];
  size_t list = units_class(bytes / UNIT_BYTES);
  for (; (list = bit_find(filled, list, UNITS_CLASSES, true)) < UNITS_CLASSES; list++) {
    struct free_extent *e = bank->lists[resident][list];
    for (unsigned looks = 0; e && looks < LOOKS_MAX; looks++, e = e->by_size.next)
      if (extent_fits(e, bytes, alignment))
        return e;
  }
  return NULL;
}

/* Takes [base, base + bytes) out of a free extent. The rest on both sides stays free. The bytes of a resident one still
 * count as free. */
static struct extent extent_cut(struct free_extent *e, char *base, size_t bytes) {
  struct stay stay = stay_of(e);
  unsigned number = e->bank;
  struct extent whole = extent_detach(e);
  struct extent left = whole, right = whole;
  left.bytes = (size_t)(base - whole.base);
  right.base = base + bytes;
  right.bytes = whole.bytes - left.bytes - bytes;
  if (left.bytes > 0)
    extent_attach(number, left, stay);
  if (right.bytes > 0)
    extent_attach(number, right, stay);
  whole.base = base;
  whole.bytes = bytes;
  return whole;
}

/* The same of one that bank_find returns. Its base is NULL if there is none. */
static NOINLINE struct extent bank_take_free(unsigned number, bool resident, size_t bytes, size_t alignment) {
  struct free_extent *e = bank_find(number, resident, bytes, alignment);
  return e ? extent_cut(e, (char *)round_up((uintptr_t)e->base, alignment), bytes) : (struct extent){0};
}

/* --- taking --- */

size_t (*_Atomic extents_evict)(void);

struct extent extent_take_resident(enum extent_bank bank, unsigned node, size_t bytes, size_t alignment) {
  if (load_relaxed(&usage_at[USAGE_FREE]) < bytes) /* while an extent is cut, extents_decay lacks all of it */
    return (struct extent){0};
  HOLD_LOCK(&extents.lock);
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

/* Takes `bytes` of a bank from an address on, of a free extent or of what was not carved yet. Its base is NULL if that
 * is too short, or in use. */
static struct extent bank_take_at(unsigned number, char *at, size_t bytes) {
  struct arena *arena = &bank_numbered(number)->arena;
  struct free_extent *e = free_at(at);
  if (e != NULL && e->bank == number && e->bytes >= bytes)
    return extent_cut(e, at, bytes);
  if (at != arena->next || (size_t)(arena->end - at) < bytes || !arena_commit(arena, at + bytes, bank_mark(number)))
    return (struct extent){0};
  arena->next += bytes;
  return (struct extent){.base = at, .bytes = bytes, .zero = true};
}

/* Takes a resident free extent that is too short, with memory behind it that is not resident. Its base is NULL if there
 * is no such memory. */
static struct extent take_with_behind(struct free_extent *e, unsigned number, size_t bytes) {
  const struct free_extent *behind = free_at(e->base + e->bytes);
  struct extent taken = {.base = e->base, .bytes = bytes, .front = e->bytes};
  if (behind != NULL && behind->resident) /* of another bank */
    return (struct extent){0};
  struct extent more = bank_take_at(number, e->base + e->bytes, bytes - e->bytes);
  if (more.base == NULL)
    return more;
  taken.zero = more.zero;
  extent_detach(e);
  usage_move_begin(taken.front);
  usage_move(USAGE_FREE, USAGE_NOWHERE, taken.front);
  usage_move_end(taken.front);
  return taken;
}

/* Takes what begins with a resident extent, a long one first, and goes on with memory that is not, so that less memory
 * becomes resident. Tries one extent of each list. */
static struct extent bank_take_partly_resident(unsigned number, size_t bytes) {
  struct free_extent *const *lists = bank_numbered(number)->lists[true];
  struct extent taken = {0};
  for (unsigned list = units_class(bytes / UNIT_BYTES); list > 0 && taken.base == NULL; list--)
    if (lists[list] != NULL && lists[list]->bytes < bytes)
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

struct extent extent_take(enum extent_bank bank, size_t bytes, size_t alignment) {
  unsigned nodes = os_nodes(), own = os_node();
  struct extent taken = {0};
  HOLD_LOCK(&extents.lock);
  for (unsigned i = 0; i < nodes && taken.base == NULL; i++)
    taken = bank_take_or_carve(bank_number(bank, (own + i) % nodes), bytes, alignment);
  usage_move_begin(taken.bytes);
  return taken;
}

COLD struct extent extent_take_behind(char *end, size_t bytes) {
  HOLD_LOCK(&extents.lock);
  struct extent taken = bank_take_at(bank_number_at(end - UNIT_BYTES), end, bytes);
  usage_move_begin(taken.bytes);
  return taken;
}

/* --- giving --- */

static void give_to_stay(struct extent extent, struct stay stay, enum usage from) {
  lock_take(&extents.lock);
  bank_give(extent, stay, from);
  lock_give(&extents.lock);
  usage_move_end(extent.bytes);
}

void extent_give_to_keep(struct extent extent, unsigned keep, uint64_t freed_ms, enum usage from) {
  give_to_stay(extent, (struct stay){.freed_ms = freed_ms, .keep = keep}, from);
}

void extent_give(struct extent extent, uint64_t freed_ms, enum usage from) {
  extent_give_to_keep(extent, KEEP_BY_PRESET, freed_ms, from);
}

size_t extent_give_purged(struct extent extent, enum usage from) {
  enum purge_result result = pages_purge(extent.base, extent.bytes);
  extent.resident = result == PURGE_REFUSED;
  extent.zero = result == PURGE_GONE;
  give_to_stay(extent, STAY_PURGED, from);
  return extent.resident ? 0 : extent.bytes;
}

/* --- arenas that come and go --- */

/* Adds a mapping to a bank, as an arena that is in use, or removes an extent that was cut out. */
COLD static void bank_change(unsigned number, char *base, size_t bytes, bool is_added) {
  struct arena *arena = &bank_numbered(number)->arena;
  size_t islands = 1 - arena_neighbours(base, bytes, bank_mark(number)), change = is_added ? bytes : -bytes;
  if (number % EXTENT_BANKS == EXTENT_ADOPTED)
    extents.islands += is_added ? islands : -islands;
  arena_mark_set(base, bytes, is_added ? bank_mark(number) : 0);
  if (!is_added)
    map_entries_set(base, bytes / UNIT_BYTES, ENTRY_NONE);
  arena->reserved_bytes += change;
  arena->committed_bytes += change;
}

#define ISLANDS_MAX 256u /* each is a mapping, of which the kernel allows a limited number */

COLD bool extent_adopt(char *mapping, size_t bytes) {
  HOLD_LOCK(&extents.lock);
  if (extents.islands >= ISLANDS_MAX)
    return false;
  bank_change(bank_number(EXTENT_ADOPTED, os_node()), mapping, bytes, true);
  return true;
}

#define ISLANDS_MANY (ISLANDS_MAX / 8)

COLD bool extent_islands_are_many(void) {
  HOLD_LOCK(&extents.lock);
  return extents.islands >= ISLANDS_MANY;
}

/* --- giving back to the system --- */

/* Unmaps an extent that was removed from its bank. If the system refuses (too many mappings), it becomes a free extent
 * again, without its pages if it may. False: it is still mapped. */
COLD static bool extent_unmap(unsigned number, struct extent *extent) {
  enum usage from = extent->resident ? USAGE_FREE : USAGE_NOWHERE;
  map_rows_purge(extent->base, extent->bytes); /* as long as the range is ours */
  if (pages_unmap(extent->base, extent->bytes)) {
    usage_move(from, USAGE_NOWHERE, extent->bytes);
    extent->resident = false;
    return true;
  }
  extent->zero = os_purge(extent->base, extent->bytes);
  extent->resident = !extent->zero;
  usage_move_begin(extent->bytes);
  lock_take(&extents.lock);
  bank_change(number, extent->base, extent->bytes, true);
  bank_give(*extent, STAY_PURGED, from);
  lock_give(&extents.lock);
  usage_move_end(extent->bytes);
  return false;
}

#define GAP_BYTES_MIN ((size_t)1 << 20) /* a gap between others makes one mapping more */

static bool is_to_unmap(const struct free_extent *e) {
  return e->bank % EXTENT_BANKS == EXTENT_ADOPTED &&
         (e->bytes >= GAP_BYTES_MIN || arena_neighbours(e->base, e->bytes, bank_mark(e->bank)) < 2);
}

/* Purges the oldest resident extent. Returns its bytes, 0 when nothing is left to do. */
static size_t purge_oldest(struct purge purge) {
  lock_take(&extents.lock);
  unsigned keep = decay_next(&extents_decay, purge);
  if (keep == KEEP_LISTS) {
    lock_give(&extents.lock);
    return 0;
  }
  struct free_extent *oldest = extents.ages[keep].first;
  /* Purges no more than necessary; the front stays. During the system call the extent counts as taken, so no other
   * thread can get it. */
  unsigned number = oldest->bank;
  bool to_unmap = is_to_unmap(oldest);
  size_t most_bytes = min_size(decay_bytes(&extents_decay, purge.decider) - purge.keep_bytes, purge.most_bytes);
  size_t bytes = min_size(oldest->bytes, round_up(most_bytes, ROW_BYTES));
  struct extent extent = extent_cut(oldest, oldest->base + oldest->bytes - bytes, bytes);
  if (UNLIKELY(to_unmap)) {
    bank_change(number, extent.base, extent.bytes, false);
    lock_give(&extents.lock);
    extent_unmap(number, &extent);
    return extent.resident ? 0 : bytes;
  }
  usage_move_begin(bytes);
  lock_give(&extents.lock);
  return extent_give_purged(extent, USAGE_FREE);
}

COLD size_t extents_purge(struct purge purge) {
  size_t purged = 0;
  for (size_t bytes; purge.most_bytes > 0 && (bytes = purge_oldest(purge)) > 0; purged += bytes)
    purge.most_bytes = less(purge.most_bytes, bytes);
  return purged;
}

/* Unmaps one free extent of at least bytes_min, or the part of it that consists of whole multiples of `grain`. */
COLD static bool release_one(unsigned number, bool resident, size_t bytes_min, size_t grain) {
  struct extent extent = {0};
  lock_take(&extents.lock);
  struct free_extent *e = bank_find(number, resident, bytes_min, grain);
  if (e) {
    char *base = (char *)round_up((uintptr_t)e->base, grain);
    extent = extent_cut(e, base, round_down((uintptr_t)(e->base + e->bytes), grain) - (uintptr_t)base);
    bank_change(number, extent.base, extent.bytes, false);
  }
  lock_give(&extents.lock);
  return extent.base != NULL && extent_unmap(number, &extent);
}

/* Unmaps at most this many short extents at a time, because each leaves a gap between two mappings. */
#define RELEASED_SHORT_MAX 1000u

COLD bool extents_release(size_t bytes_min) {
  bool any = false;
  for (unsigned i = 0; i < bank_count(); i++) {
    const struct arena *arena = &bank_numbered(i)->arena;
    lock_take(&extents.lock);
    any |= arena->end > arena->next;
    bank_retire(i);
    lock_give(&extents.lock);
    for (unsigned resident = 0; resident < 2; resident++) {
      while (release_one(i, resident, max_size(bytes_min, ROW_BYTES), ROW_BYTES))
        any = true;
      for (unsigned n = 0; bytes_min < ROW_BYTES && n < RELEASED_SHORT_MAX; n++, any = true)
        if (!release_one(i, resident, bytes_min, UNIT_BYTES))
          break;
    }
  }
  return any;
}

COLD void extents_stats(struct extent_stats *out) {
  HOLD_LOCK(&extents.lock);
  size_t resident = decay_total(&extents_decay);
  *out = (struct extent_stats){.resident_free_bytes = resident, .other_free_bytes = extents.free_bytes - resident};
  for (unsigned i = 0; i < bank_count(); i++) {
    const struct arena *arena = &bank_numbered(i)->arena;
    out->reserved_bytes += arena->reserved_bytes;
    out->committed_bytes += arena->committed_bytes;
    out->unused_bytes += (size_t)(arena->committed - arena->next);
  }
}

#ifdef HAK_DEBUG
static bool extent_is_valid(const struct free_extent *e, const struct bank *bank, bool resident, unsigned list) {
  struct extent piece = extent_of(e);
  return e == extent_record(e->base) && e->resident == resident && bank_numbered(e->bank) == bank &&
         e->bank == bank_number_at(e->base) && units_class(e->bytes / UNIT_BYTES) == list &&
         extent_record(last_unit(e))->base == e->base && map_entry(e->base) == ENTRY_EXTENT &&
         map_entry(last_unit(e)) == ENTRY_EXTENT && !same_kind(free_at(e->base + e->bytes), e->bank, &piece) &&
         !same_kind(free_before(e->base), e->bank, &piece);
}

bool extents_are_valid(void) {
  bool valid = true;
  size_t resident_bytes = 0, aged_bytes = 0, learned_bytes = 0;
  HOLD_LOCK(&extents.lock);
  for (unsigned i = 0; i < bank_count(); i++)
    for (unsigned resident = 0; resident < 2; resident++)
      for (unsigned list = 0; list < UNITS_CLASSES; list++) {
        const struct bank *bank = bank_numbered(i);
        valid &= (bank->lists[resident][list] != NULL) == bit_is_set(bank->filled[resident], list);
        for (struct free_extent *e = bank->lists[resident][list]; e; e = e->by_size.next) {
          valid &= extent_is_valid(e, bank, resident, list);
          resident_bytes += resident ? e->bytes : 0;
        }
      }
  for (unsigned keep = 0; keep < KEEP_LISTS; keep++)
    for (struct free_extent *e = extents.ages[keep].first; e; e = e->by_age.next) {
      valid &= e->keep == keep;
      aged_bytes += e->bytes;
      learned_bytes += keep == KEEP_BY_PRESET ? 0 : e->bytes;
    }
  valid &= resident_bytes == decay_total(&extents_decay) && aged_bytes == resident_bytes &&
           learned_bytes == decay_bytes(&extents_decay, BY_ENGINE);
  return valid;
}
#endif
