#include "pages/page_map.h"

#include "budget/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"

#include <string.h>

SPARSE uintptr_t hak_map_top[HAK_MAP_TOP_COUNT];

#define INDEX_NONE UINTPTR_MAX
struct hak_map_home hak_map_home = {.index = INDEX_NONE};
static _Atomic uintptr_t home_index = INDEX_NONE; /* of the leaf that is or will be the first one */

/* Leaves, rows and permanent metadata come from the front of a chunk. `rest` is what is left of the newest chunk: the
 * number of its first cache line, and of its lines. The first chunk holds the first leaf and, without a limit of
 * address space, the rows of an arena. A later leaf is a mapping of its own. */
#define CHUNK_BYTES ((size_t)256 * 1024)
#define FIRST_CHUNK_BYTES (4 * CHUNK_BYTES)
#define REST_LINES_BITS 16

static struct {
  _Atomic uint64_t rest; /* line << REST_LINES_BITS | lines; 0 before the first chunk */
  _Atomic size_t bytes;
} chunks;

_Static_assert(sizeof(struct map_leaf) % CACHE_LINE == 0 && sizeof(struct map_row) % CACHE_LINE == 0,
               "pieces stay aligned");
_Static_assert(sizeof(struct map_leaf) <= FIRST_CHUNK_BYTES && FIRST_CHUNK_BYTES / CACHE_LINE >> REST_LINES_BITS == 0 &&
                   HAK_ADDRESS_BITS - __builtin_ctz(CACHE_LINE) + REST_LINES_BITS <= 64,
               "a rest is one word");

size_t map_bytes(void) { return load_relaxed(&chunks.bytes); }

static void *chunk_map(size_t bytes) {
  void *chunk = os_map(bytes, os_page_bytes());
  if (chunk != NULL)
    atomic_fetch_add_explicit(&chunks.bytes, bytes, memory_order_relaxed);
  return chunk;
}

static uint64_t rest_of(void *at, size_t bytes) {
  return (uintptr_t)at / CACHE_LINE << REST_LINES_BITS | bytes / CACHE_LINE;
}

void *map_piece_take(size_t bytes) {
  uint64_t rest = atomic_load_explicit(&chunks.rest, memory_order_acquire);
  for (;;) {
    void *at = (void *)((uintptr_t)(rest >> REST_LINES_BITS) * CACHE_LINE);
    size_t left = (rest & (((uint64_t)1 << REST_LINES_BITS) - 1)) * CACHE_LINE, chunk_bytes = 0;
    if (left < bytes) {
      if (rest == 0)
        chunk_bytes = max_size(os_memory_limit() == SIZE_MAX ? FIRST_CHUNK_BYTES : 0, round_up(bytes, CHUNK_BYTES));
      else if (bytes <= CHUNK_BYTES)
        chunk_bytes = CHUNK_BYTES;
      at = chunk_bytes != 0 ? chunk_map(chunk_bytes) : NULL;
      if (at == NULL) /* a later leaf, or a limit is near: map no more than needed */
        return chunk_map(round_up(bytes, os_page_bytes()));
      left = chunk_bytes;
    }
    if (atomic_compare_exchange_strong_explicit(&chunks.rest, &rest, rest_of((char *)at + bytes, left - bytes),
                                                memory_order_acq_rel, memory_order_acquire))
      return at;
    if (chunk_bytes != 0) {
      os_unmap(at, chunk_bytes);
      atomic_fetch_sub_explicit(&chunks.bytes, chunk_bytes, memory_order_relaxed);
    }
  }
}

/* Takes the spare piece, or a fresh one (NULL: not in a move). */
static void *piece_take(void **spare_piece, size_t bytes) {
  if (spare_piece == NULL)
    return map_piece_take(bytes);
  void *piece = *spare_piece;
  *spare_piece = NULL;
  return piece;
}

/* spare_leaf: NULL, or the leaf to use; then this cannot fail. If another thread is faster, the spare leaf stays, and
 * another one is lost: it is address space, of which no page was touched, and that happens once a leaf. The same holds
 * for rows. The home leaf is settled before it gets into hak_map_top, so no thread has a block in it before. Threads
 * that meet here store the same values. */
static bool leaf_make(uintptr_t index, void **spare_leaf) {
  uintptr_t none = 0, home = INDEX_NONE;
  if (__atomic_fetch_add(&hak_map_top[index], 0, __ATOMIC_ACQUIRE) != 0) /* a write, so a fresh page faults once */
    return true;
  struct map_leaf *leaf = piece_take(spare_leaf, sizeof *leaf);
  if (leaf == NULL)
    return false;
  uintptr_t entries = (uintptr_t)leaf - map_bias(index);
  bool is_home = atomic_compare_exchange_strong(&home_index, &home, index) || home == index;
  if (!__atomic_compare_exchange_n(is_home ? &hak_map_home.entries : &hak_map_top[index], &none, entries, false,
                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    if (spare_leaf)
      *spare_leaf = leaf;
    entries = none;
  }
  if (is_home) {
    __atomic_store_n(&hak_map_home.index, index, __ATOMIC_RELEASE);
    __atomic_store_n(&hak_map_top[index], entries, __ATOMIC_RELEASE);
  }
  return true;
}

/* The leaf exists. */
COLD static bool row_make(const void *address, void **spare_row) {
  struct map_leaf *leaf = map_leaf(address);
  struct map_row **place = &leaf->rows[map_row_in_leaf(address)], *none = NULL;
  if (__atomic_fetch_add((uintptr_t *)(void *)place, 0, __ATOMIC_ACQUIRE) != 0) /* as in leaf_make */
    return true;
  struct map_row *row = piece_take(spare_row, sizeof *row);
  if (row == NULL)
    return false;
  if (!__atomic_compare_exchange_n(place, &none, row, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) && spare_row)
    *spare_row = row;
  return true;
}

COLD bool map_cover_leaves(const void *address, size_t size) {
  uintptr_t first = (uintptr_t)address >> HAK_LEAF_SHIFT;
  uintptr_t last = ((uintptr_t)address + size - 1) >> HAK_LEAF_SHIFT;
  if (last >= HAK_MAP_TOP_COUNT || last < first)
    return false;
  for (uintptr_t index = first; index <= last; index++)
    if (!leaf_make(index, NULL))
      return false;
  return true;
}

/* The pieces for the next move; NULL: none. */
static struct {
  struct lock lock;
  void *leaf, *row;
} spare;

static bool piece_ready(void **spare_piece, size_t bytes) {
  return *spare_piece != NULL || (*spare_piece = map_piece_take(bytes)) != NULL;
}

COLD bool map_move_begin(void) {
  lock_take(&spare.lock);
  if (piece_ready(&spare.leaf, sizeof(struct map_leaf)) && piece_ready(&spare.row, sizeof(struct map_row)))
    return true;
  lock_give(&spare.lock);
  return false;
}

COLD void map_move_end(const void *target) {
  bool done =
      target == NULL || (leaf_make((uintptr_t)target >> HAK_LEAF_SHIFT, &spare.leaf) && row_make(target, &spare.row));
  hak_assert(done);
  (void)done;
  lock_give(&spare.lock);
}

bool map_cover(const void *address, size_t size) {
  if (!map_cover_leaves(address, size))
    return false;
  uintptr_t last = ((uintptr_t)address + size - 1) >> ROW_SHIFT;
  for (uintptr_t at = (uintptr_t)address >> ROW_SHIFT; at <= last; at++)
    if (!row_make((void *)(at << ROW_SHIFT), NULL))
      return false;
  return true;
}

void map_entries_set(const void *address, size_t units, uint32_t entry) {
  for (const char *at = address; units > 0;) {
    hak_assert(map_covers(at));
    size_t some = min_size(units, LEAF_UNITS - (((uintptr_t)at >> HAK_UNIT_SHIFT) & (LEAF_UNITS - 1)));
    uint32_t *first = map_leaf_entry(map_leaf(at), at);
    for (size_t i = 0; i < some; i++)
      __atomic_store_n(&first[i], entry, __ATOMIC_RELEASE);
    at += some * UNIT_BYTES;
    units -= some;
  }
}

#define WORD_BYTES (64 * ROW_BYTES) /* what a word of `starts` tells about */

COLD void map_start_note(const void *address) {
  size_t row = map_row_in_leaf(address);
  uint64_t bit = UINT64_C(1) << row % 64;
  _Atomic uint64_t *word = &map_leaf(address)->starts[row / 64];
  if ((load_relaxed(word) & bit) == 0)
    atomic_fetch_or_explicit(word, bit, memory_order_release);
}

COLD uintptr_t map_start_before(uintptr_t unit, uintptr_t end) {
  while (unit > end) {
    const void *at = (const void *)unit;
    size_t passed = LEAF_BYTES, row = map_row_in_leaf(at);
    uint64_t rows = 0; /* the upper bit is the unit's own row */
    if (map_covers(at)) {
      rows = atomic_load_explicit(&map_leaf(at)->starts[row / 64], memory_order_acquire) << (63 - row % 64);
      passed = WORD_BYTES;
    }
    if (rows >> 63 != 0)
      return unit;
    if (rows != 0)
      unit = round_down(unit, ROW_BYTES) - ((size_t)__builtin_clzll(rows) - 1) * ROW_BYTES - UNIT_BYTES;
    else
      unit = sub_sat(round_down(unit, passed), UNIT_BYTES);
  }
  return 0;
}

/* Rows of neighbours mostly lie side by side. */
COLD void map_rows_purge(const char *base, size_t bytes) {
  const struct map_row *first = NULL, *next = NULL;
  for (const char *at = (const char *)round_up((uintptr_t)base, ROW_BYTES); at + ROW_BYTES <= base + bytes;
       at += ROW_BYTES) {
    const struct map_row *row = map_row(at);
    if (row == NULL)
      continue;
    if (row != next) {
      pages_purge_inside(first, next);
      first = row;
    }
    next = row + 1;
  }
  pages_purge_inside(first, next);
}
