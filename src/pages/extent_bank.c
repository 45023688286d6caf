#include "pages/extent_bank.h"

#include "base/bits.h"
#include "base/list.h"
#include "os/nodes.h"
#include "os/os.h"
#include "pages/page_map.h"

/* One list for each class of length. The last one includes all longer extents. */
#define SIZE_LISTS 192u
#define LOOKS_MAX 8u /* extents of one list tried for a fit */

STACK_OF(size_list, free_extent, by_size.next, by_size.previous)
QUEUE_OF(age_list, free_extent, by_age.next, by_age.previous)
_Static_assert(sizeof(struct free_extent) <= RECORD_BYTES, "a free extent's record fits the leaf");

struct bank {
  struct free_extent *lists[2][SIZE_LISTS]; /* [1]: resident ones */
  uint64_t filled[2][SIZE_LISTS / 64];      /* bit i: list i is not empty */
  struct arena arena;
};

static struct {
  struct age_list ages;            /* resident ones, oldest first */
  size_t free_bytes;               /* of all free extents */
  size_t islands;                  /* connected pieces of adopted arenas */
  struct bank banks[EXTENT_BANKS]; /* of node 0, apart from the others: most machines have no others */
} extents;

static struct bank banks_of_others[EXTENT_BANKS * (NODES_MAX - 1)] SPARSE;
_Static_assert(EXTENT_BANKS *NODES_MAX <= UINT8_MAX, "a row has a byte for each mark");

struct lock extents_lock;
struct decay extents_decay;

/* --- banks --- */

unsigned bank_count(void) { return EXTENT_BANKS * os_nodes(); }

static struct bank *bank_numbered(unsigned number) {
  return LIKELY(number < EXTENT_BANKS) ? &extents.banks[number] : &banks_of_others[number - EXTENT_BANKS];
}

unsigned bank_number_at(const void *address) {
  unsigned mark = arena_mark(address);
  return mark == 0 ? 0 : mark - 1;
}

enum extent_bank extent_bank_of(const void *address) {
  return (enum extent_bank)(bank_number_at(address) % EXTENT_BANKS);
}
unsigned extent_node_of(const void *address) { return bank_number_at(address) / EXTENT_BANKS; }

struct arena *bank_arena(unsigned number) { return &bank_numbered(number)->arena; }
size_t bank_free_bytes(void) { return extents.free_bytes; }
struct free_extent *bank_oldest(void) { return extents.ages.first; }
size_t bank_islands(void) { return extents.islands; }

/* --- lists --- */

static unsigned list_of_units(size_t units) {
  unsigned list = units_class(units);
  return list < SIZE_LISTS ? list : SIZE_LISTS - 1;
}

static struct free_extent *extent_record(const char *unit) { return map_record(unit); }
static struct extent extent_of(const struct free_extent *e) {
  return (struct extent){.base = e->base, .bytes = e->bytes, .resident = e->resident, .zero = e->zero};
}
static char *last_unit(const struct free_extent *e) { return e->base + e->bytes - UNIT_BYTES; }

static void resident_change(size_t change) {
  decay_change(&extents_decay, KEEP_BY_PRESET, change, extents.ages.first ? extents.ages.first->freed_ms : 0);
}

/* Inserts by age. Mostly this appends; an extent with an older time goes further to the front. */
static void age_insert(struct free_extent *e) {
  struct free_extent *before = extents.ages.last;
  for (unsigned looks = 0; before && before->freed_ms > e->freed_ms && looks < LOOKS_MAX; looks++)
    before = before->by_age.previous;
  age_list_insert(&extents.ages, e, before);
}

/* The caller moves the bytes of a resident one to USAGE_FREE. */
static void extent_attach(unsigned number, struct extent piece, uint64_t freed_ms) {
  struct free_extent *e = extent_record(piece.base);
  *e = (struct free_extent){.base = piece.base,
                            .bytes = piece.bytes,
                            .freed_ms = freed_ms,
                            .resident = piece.resident,
                            .zero = piece.zero,
                            .bank = (uint8_t)number};
  extent_record(last_unit(e))->base = e->base;
  map_entry_set(e->base, ENTRY_EXTENT);
  map_entry_set(last_unit(e), ENTRY_EXTENT);
  struct bank *bank = bank_numbered(number);
  unsigned list = list_of_units(e->bytes / UNIT_BYTES);
  size_list_push(&bank->lists[e->resident][list], e);
  bits_set(bank->filled[e->resident], list, 1, true);
  extents.free_bytes += e->bytes;
  if (e->resident) {
    age_insert(e);
    resident_change(e->bytes);
  }
}

/* Removes a free extent from its lists and clears its end marks. The entries between stay as the last owner left
 * them. */
static struct extent extent_detach(struct free_extent *e) {
  struct bank *bank = bank_numbered(e->bank);
  unsigned list = list_of_units(e->bytes / UNIT_BYTES);
  struct free_extent **first = &bank->lists[e->resident][list];
  size_list_remove(first, e);
  bits_set(bank->filled[e->resident], list, 1, *first != NULL);
  extents.free_bytes -= e->bytes;
  if (e->resident) {
    age_list_remove(&extents.ages, e);
    resident_change(-e->bytes);
  }
  map_entry_set(e->base, ENTRY_NONE);
  map_entry_set(last_unit(e), ENTRY_NONE);
  return extent_of(e);
}

/* Returns the free extent that ends at an address; NULL if there is none. */
static NOINLINE struct free_extent *free_before(char *base) {
  return map_entry(base - UNIT_BYTES) == ENTRY_EXTENT ? extent_record(extent_record(base - UNIT_BYTES)->base) : NULL;
}
NOINLINE struct free_extent *bank_free_at(char *base) {
  return map_entry(base) == ENTRY_EXTENT ? extent_record(base) : NULL;
}

static bool same_kind(const struct free_extent *e, unsigned number, const struct extent *piece) {
  return e && e->resident == piece->resident && e->zero == piece->zero && e->bank == number;
}

/* Joins a free neighbour, if it is of the same kind. Both are as old as the younger one then. */
static void join_neighbour(unsigned number, struct extent *piece, uint64_t *freed_ms, struct free_extent *neighbour) {
  if (!same_kind(neighbour, number, piece))
    return;
  *freed_ms = max_size(*freed_ms, neighbour->freed_ms);
  struct extent joined = extent_detach(neighbour);
  piece->base = joined.base < piece->base ? joined.base : piece->base;
  piece->bytes += joined.bytes;
}

void bank_give(struct extent piece, uint64_t freed_ms, enum usage from) {
  size_t own_bytes = piece.bytes;
  unsigned number = bank_number_at(piece.base);
  join_neighbour(number, &piece, &freed_ms, bank_free_at(piece.base + piece.bytes));
  join_neighbour(number, &piece, &freed_ms, free_before(piece.base));
  extent_attach(number, piece, freed_ms);
  usage_move(from, piece.resident ? USAGE_FREE : USAGE_NOWHERE, own_bytes);
}

/* --- cutting and carving --- */

void bank_retire(unsigned number) {
  struct bank *bank = bank_numbered(number);
  struct extent rest = {.zero = true};
  rest.base = arena_retire(&bank->arena, &rest.bytes);
  if (rest.bytes > 0)
    bank_give(rest, 0, USAGE_NOWHERE);
}

struct extent bank_carve(unsigned number, size_t bytes, size_t alignment) {
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
    bank_give((struct extent){.base = arena->next, .bytes = (size_t)(base - arena->next), .zero = true}, 0,
              USAGE_NOWHERE);
  arena->next = base + bytes;
  return (struct extent){.base = base, .bytes = bytes, .zero = true};
}

static bool extent_fits(const struct free_extent *e, size_t bytes, size_t alignment) {
  char *base = (char *)round_up((uintptr_t)e->base, alignment);
  return base + bytes <= e->base + e->bytes;
}

/* Looks in the lists of the smallest possible sizes. It tries only some extents of each list. In lists where every
 * extent fits it takes the first. */
struct free_extent *bank_find(unsigned number, bool resident, size_t bytes, size_t alignment) {
  const struct bank *bank = bank_numbered(number);
  const uint64_t *filled = bank->filled[resident];
  size_t list = list_of_units(bytes / UNIT_BYTES);
  for (; (list = bit_find(filled, list, SIZE_LISTS, true)) < SIZE_LISTS; list++) {
    struct free_extent *e = bank->lists[resident][list];
    for (unsigned looks = 0; e && looks < LOOKS_MAX; looks++, e = e->by_size.next)
      if (extent_fits(e, bytes, alignment))
        return e;
  }
  return NULL;
}

struct extent bank_cut(struct free_extent *e, char *base, size_t bytes) {
  uint64_t freed_ms = e->freed_ms;
  unsigned number = e->bank;
  struct extent whole = extent_detach(e);
  struct extent left = whole, right = whole;
  left.bytes = (size_t)(base - whole.base);
  right.base = base + bytes;
  right.bytes = whole.bytes - left.bytes - bytes;
  if (left.bytes > 0)
    extent_attach(number, left, freed_ms);
  if (right.bytes > 0)
    extent_attach(number, right, freed_ms);
  whole.base = base;
  whole.bytes = bytes;
  return whole;
}

NOINLINE struct extent bank_take_free(unsigned number, bool resident, size_t bytes, size_t alignment) {
  struct free_extent *e = bank_find(number, resident, bytes, alignment);
  return e ? bank_cut(e, (char *)round_up((uintptr_t)e->base, alignment), bytes) : (struct extent){0};
}

/* --- arenas that come and go --- */

COLD void bank_add(unsigned number, char *base, size_t bytes) {
  struct bank *bank = bank_numbered(number);
  if (number % EXTENT_BANKS == EXTENT_ADOPTED)
    extents.islands += 1 - arena_neighbours(base, bytes, bank_mark(number));
  arena_mark_set(base, bytes, bank_mark(number));
  bank->arena.reserved_bytes += bytes;
  bank->arena.committed_bytes += bytes;
}

COLD void bank_remove(unsigned number, struct extent extent) {
  struct bank *bank = bank_numbered(number);
  if (number % EXTENT_BANKS == EXTENT_ADOPTED)
    extents.islands -= 1 - arena_neighbours(extent.base, extent.bytes, bank_mark(number));
  arena_mark_set(extent.base, extent.bytes, 0);
  map_entries_set(extent.base, extent.bytes / UNIT_BYTES, ENTRY_NONE);
  bank->arena.reserved_bytes -= extent.bytes;
  bank->arena.committed_bytes -= extent.bytes;
}

#ifdef HAK_DEBUG
static bool extent_is_valid(const struct free_extent *e, const struct bank *bank, bool resident, unsigned list) {
  struct extent piece = extent_of(e);
  return e == extent_record(e->base) && e->resident == resident && bank_numbered(e->bank) == bank &&
         e->bank == bank_number_at(e->base) && list_of_units(e->bytes / UNIT_BYTES) == list &&
         extent_record(last_unit(e))->base == e->base && map_entry(e->base) == ENTRY_EXTENT &&
         map_entry(last_unit(e)) == ENTRY_EXTENT && !same_kind(bank_free_at(e->base + e->bytes), e->bank, &piece) &&
         !same_kind(free_before(e->base), e->bank, &piece);
}

bool extents_are_valid(void) {
  bool valid = true;
  size_t resident_bytes = 0, aged_bytes = 0;
  HOLD_LOCK(&extents_lock);
  for (unsigned i = 0; i < bank_count(); i++)
    for (unsigned resident = 0; resident < 2; resident++)
      for (unsigned list = 0; list < SIZE_LISTS; list++) {
        const struct bank *bank = bank_numbered(i);
        valid &= (bank->lists[resident][list] != NULL) == bit_is_set(bank->filled[resident], list);
        for (struct free_extent *e = bank->lists[resident][list]; e; e = e->by_size.next) {
          valid &= extent_is_valid(e, bank, resident, list);
          resident_bytes += resident ? e->bytes : 0;
        }
      }
  for (struct free_extent *e = extents.ages.first; e; e = e->by_age.next)
    aged_bytes += e->bytes;
  valid &= resident_bytes == decay_total(&extents_decay) && aged_bytes == resident_bytes;
  return valid;
}
#endif
