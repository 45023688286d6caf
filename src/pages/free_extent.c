#include "pages/free_extent.h"

#include "base/bits.h"
#include "base/list.h"
#include "pages/fresh.h"
#include "pages/page_map.h"

#define LOOKS_MAX 8u /* extents of one list tried for a fit */

STACK_OF(size_list, free_extent, by_size.next, by_size.previous)
QUEUE_OF(age_list, free_extent, by_age.next, by_age.previous)
_Static_assert(sizeof(struct free_extent) <= RECORD_BYTES, "a free extent's record fits the leaf");

static struct {
  struct age_list ages[KEEP_LISTS]; /* resident ones, oldest first */
  size_t bytes;                     /* of all free extents */
  struct bank banks[EXTENT_BANKS];  /* of node 0, apart from the others: most machines have no others */
} free_extents;

static struct bank banks_of_others[EXTENT_BANKS * (NODES_MAX - 1)] SPARSE;
/* A program that frees no extent touches none of the lists. */
static struct free_extent *size_lists[EXTENT_BANKS * NODES_MAX][2][UNITS_CLASSES] SPARSE;
_Static_assert(EXTENT_BANKS *NODES_MAX <= UINT8_MAX, "a row has a byte for each mark");

struct bank *bank_numbered(unsigned number) {
  return LIKELY(number < EXTENT_BANKS) ? &free_extents.banks[number] : &banks_of_others[number - EXTENT_BANKS];
}
struct free_extent **bank_lists(unsigned number, bool resident) { return size_lists[number][resident]; }

unsigned bank_number_at(const void *address) {
  unsigned mark = arena_mark(address);
  return mark == 0 ? 0 : mark - 1;
}

static struct free_extent *extent_record(const char *unit) { return map_record(unit); }
static struct extent extent_of(const struct free_extent *e) {
  return (struct extent){.base = e->base, .bytes = e->bytes, .resident = e->resident, .zero = e->zero};
}
static char *last_unit(const struct free_extent *e) { return e->base + e->bytes - UNIT_BYTES; }

static void resident_change(unsigned keep, size_t change) {
  const struct free_extent *oldest = free_extents.ages[keep].first;
  decay_change(&extents_decay, keep, change, oldest ? oldest->freed_ms : 0);
}

/* before: as of age_list_insert, for a resident one. The caller moves its bytes to USAGE_FREE. */
static void extent_attach(unsigned number, struct extent piece, struct stay stay, struct free_extent *before) {
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
  size_list_push(&bank_lists(number, e->resident)[list], e);
  bit_set(bank->filled[e->resident], list, true);
  free_extents.bytes += e->bytes;
  if (e->resident) {
    age_list_insert(&free_extents.ages[e->keep], e, before, LOOKS_MAX);
    resident_change(e->keep, e->bytes);
  }
}

struct extent free_extent_take(struct free_extent *e) {
  struct bank *bank = bank_numbered(e->bank);
  unsigned list = units_class(e->bytes / UNIT_BYTES);
  struct free_extent **first = &bank_lists(e->bank, e->resident)[list];
  size_list_remove(first, e);
  bit_set(bank->filled[e->resident], list, *first != NULL);
  free_extents.bytes -= e->bytes;
  if (e->resident) {
    age_list_remove(&free_extents.ages[e->keep], e);
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
NOINLINE struct free_extent *free_extent_at(char *base) {
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
  struct extent joined = free_extent_take(neighbour);
  piece->base = joined.base < piece->base ? joined.base : piece->base;
  piece->bytes += joined.bytes;
}

void free_extent_give(struct extent piece, struct stay stay, enum usage from) {
  size_t own_bytes = piece.bytes;
  unsigned number = bank_number_at(piece.base);
  join_neighbour(number, &piece, &stay, free_extent_at(piece.base + piece.bytes));
  join_neighbour(number, &piece, &stay, free_before(piece.base));
  extent_attach(number, piece, stay, free_extents.ages[stay.keep].last); /* mostly the youngest */
  usage_move(from, piece.resident ? USAGE_FREE : USAGE_NOWHERE, own_bytes);
}

struct extent free_extent_cut(struct free_extent *e, char *base, size_t bytes) {
  struct stay stay = {.freed_ms = e->freed_ms, .keep = e->keep};
  struct free_extent *before = e->by_age.previous;
  unsigned number = e->bank;
  struct extent whole = free_extent_take(e);
  struct extent left = whole, right = whole;
  left.bytes = (size_t)(base - whole.base);
  right.base = base + bytes;
  right.bytes = whole.bytes - left.bytes - bytes;
  if (left.bytes > 0)
    extent_attach(number, left, stay, before);
  if (right.bytes > 0)
    extent_attach(number, right, stay, before);
  if (!whole.resident)
    fresh_rows_set(base, base + bytes, whole.base + whole.bytes);
  whole.base = base;
  whole.bytes = bytes;
  return whole;
}

static bool extent_fits(const struct free_extent *e, size_t bytes, size_t alignment) {
  char *base = (char *)round_up((uintptr_t)e->base, alignment);
  return base + bytes <= e->base + e->bytes;
}

/* Looks in the lists of the smallest possible sizes, and tries only some extents of each. In lists where every extent
 * fits it takes the first. */
struct free_extent *free_extent_find(unsigned number, bool resident, size_t bytes, size_t alignment) {
  const uint64_t *filled = bank_numbered(number)->filled[resident];
  size_t list = units_class(bytes / UNIT_BYTES);
  for (; (list = bit_find(filled, list, UNITS_CLASSES, true)) < UNITS_CLASSES; list++) {
    struct free_extent *e = bank_lists(number, resident)[list];
    for (unsigned looks = 0; e && looks < LOOKS_MAX; looks++, e = e->by_size.next)
      if (extent_fits(e, bytes, alignment))
        return e;
  }
  return NULL;
}

size_t free_extents_bytes(void) { return free_extents.bytes; }
struct free_extent *free_extent_oldest(unsigned keep) { return free_extents.ages[keep].first; }

#ifdef HAK_DEBUG
static bool extent_is_valid(const struct free_extent *e, unsigned number, bool resident, unsigned list) {
  struct extent piece = extent_of(e);
  return e == extent_record(e->base) && e->resident == resident && e->bank == number &&
         e->bank == bank_number_at(e->base) && units_class(e->bytes / UNIT_BYTES) == list &&
         extent_record(last_unit(e))->base == e->base && map_entry(e->base) == ENTRY_EXTENT &&
         map_entry(last_unit(e)) == ENTRY_EXTENT && !same_kind(free_extent_at(e->base + e->bytes), e->bank, &piece) &&
         !same_kind(free_before(e->base), e->bank, &piece);
}

bool free_extents_are_valid(void) {
  bool valid = true;
  size_t resident_bytes = 0, aged_bytes = 0, learned_bytes = 0;
  for (unsigned i = 0; i < bank_count(); i++)
    for (unsigned resident = 0; resident < 2; resident++)
      for (unsigned list = 0; list < UNITS_CLASSES; list++) {
        struct free_extent *first = bank_lists(i, resident)[list];
        valid &= (first != NULL) == bit_is_set(bank_numbered(i)->filled[resident], list);
        for (struct free_extent *e = first; e; e = e->by_size.next) {
          valid &= extent_is_valid(e, i, resident, list);
          resident_bytes += resident ? e->bytes : 0;
        }
      }
  for (unsigned keep = 0; keep < KEEP_LISTS; keep++)
    for (struct free_extent *e = free_extents.ages[keep].first; e; e = e->by_age.next) {
      valid &= e->keep == keep;
      aged_bytes += e->bytes;
      learned_bytes += keep == KEEP_BY_PRESET ? 0 : e->bytes;
    }
  valid &= resident_bytes == decay_total(&extents_decay) && aged_bytes == resident_bytes &&
           learned_bytes == decay_bytes(&extents_decay, BY_ENGINE);
  return valid;
}
#endif
