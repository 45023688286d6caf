#include "pages/page_map.h"

#include "budget/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"

#include <string.h>

SPARSE uintptr_t hak_map_top[HAK_MAP_TOP_COUNT];
SPARSE struct map_row map_rows_shared[2];

#define INDEX_NONE UINTPTR_MAX
struct hak_map_home hak_map_home = {.index = INDEX_NONE};
static _Atomic uintptr_t home_index = INDEX_NONE; /* of the leaf that is or will be the first one */

static bool is_shared(const struct map_row *row) { return row == MAP_ROW_BODY || row == MAP_ROW_FREE; }

/* Leaves, rows and permanent metadata come from the front of a chunk. `next` is the begin of the newest chunk's free
 * part, which ends at the next multiple of CHUNK_BYTES. If `next` is a multiple itself, nothing is left. The first
 * chunk is longer, because it holds the first leaf. A later leaf is a mapping of its own. */
#define CHUNK_BYTES ((size_t)256 * 1024)

static struct {
  _Atomic uintptr_t next;
  _Atomic size_t bytes;
} chunks;

size_t map_bytes(void) { return load_relaxed(&chunks.bytes); }

static void *chunk_map(size_t bytes, size_t alignment) {
  void *chunk = os_map(bytes, alignment);
  if (chunk != NULL)
    atomic_fetch_add_explicit(&chunks.bytes, bytes, memory_order_relaxed);
  return chunk;
}

void *map_piece_take(size_t bytes) {
  uintptr_t next = atomic_load_explicit(&chunks.next, memory_order_acquire);
  for (;;) {
    if (round_up(next, CHUNK_BYTES) - next >= bytes) {
      if (atomic_compare_exchange_weak_explicit(&chunks.next, &next, next + bytes, memory_order_acq_rel,
                                                memory_order_acquire))
        return (void *)next;
      continue;
    }
    size_t chunk_bytes = round_up(bytes, CHUNK_BYTES);
    void *chunk = bytes > CHUNK_BYTES && next != 0 ? NULL : chunk_map(chunk_bytes, CHUNK_BYTES);
    if (chunk == NULL) /* a later leaf, or a limit is near: map no more than needed */
      return chunk_map(round_up(bytes, os_page_bytes()), os_page_bytes());
    if (atomic_compare_exchange_strong_explicit(&chunks.next, &next, (uintptr_t)chunk + bytes, memory_order_acq_rel,
                                                memory_order_acquire))
      return chunk;
    os_unmap(chunk, chunk_bytes);
    atomic_fetch_sub_explicit(&chunks.bytes, chunk_bytes, memory_order_relaxed);
  }
}

_Static_assert(sizeof(struct map_leaf) % CACHE_LINE == 0 && sizeof(struct map_row) % CACHE_LINE == 0,
               "pieces stay aligned");
_Static_assert(sizeof(struct map_leaf) > CHUNK_BYTES && sizeof(struct map_leaf) % CHUNK_BYTES != 0 &&
                   sizeof(struct map_row) < CHUNK_BYTES,
               "a chunk's end is never a piece's, but where it is full");

/* Pieces that no reserve needs at present, for the next ones. Here and in a reserve they are linked by their first
 * words, which are zero otherwise. */
static struct {
  struct lock lock;
  void *leaves, *rows;
} spares;

static void piece_push(void **first, void *piece) {
  memcpy(piece, first, sizeof *first);
  *first = piece;
}

/* NULL: there is none. */
static void *piece_pop(void **first) {
  void *piece = *first;
  if (piece != NULL) {
    memcpy(first, piece, sizeof *first);
    memset(piece, 0, sizeof *first);
  }
  return piece;
}

static bool reserve_piece(void **first, void **spare, size_t bytes) {
  lock_take(&spares.lock);
  void *piece = piece_pop(spare);
  lock_give(&spares.lock);
  if (piece == NULL && (piece = map_piece_take(bytes)) == NULL)
    return false;
  piece_push(first, piece);
  return true;
}

COLD bool map_reserve(struct map_reserve *reserve, size_t size) {
  *reserve = (struct map_reserve){0};
  bool done = reserve_piece(&reserve->row, &spares.rows, sizeof(struct map_row));
  for (size_t leaves = (size >> HAK_LEAF_SHIFT) + 2; done && leaves > 0; leaves--)
    done = reserve_piece(&reserve->leaves, &spares.leaves, sizeof(struct map_leaf));
  if (!done)
    map_reserve_end(reserve);
  return done;
}

COLD void map_reserve_end(struct map_reserve *reserve) {
  HOLD_LOCK(&spares.lock);
  while (reserve->leaves != NULL)
    piece_push(&spares.leaves, piece_pop(&reserve->leaves));
  if (reserve->row != NULL)
    piece_push(&spares.rows, piece_pop(&reserve->row));
}

/* reserve: NULL, or the reserve that the leaf comes from; then this cannot fail. If another thread is faster, a leaf of
 * no reserve is lost: it is address space, of which no page was touched, and that happens once a leaf. The same holds
 * for rows. The home leaf is settled before it gets into hak_map_top, so no thread has a block in it before. Threads
 * that meet here store the same values. */
static bool leaf_make(uintptr_t index, struct map_reserve *reserve) {
  uintptr_t none = 0, home = INDEX_NONE;
  if (__atomic_load_n(&hak_map_top[index], __ATOMIC_ACQUIRE) != 0)
    return true;
  struct map_leaf *leaf = reserve ? piece_pop(&reserve->leaves) : map_piece_take(sizeof *leaf);
  if (leaf == NULL)
    return false;
  uintptr_t entries = (uintptr_t)leaf - map_bias(index);
  bool is_home = atomic_compare_exchange_strong(&home_index, &home, index) || home == index;
  if (!__atomic_compare_exchange_n(is_home ? &hak_map_home.entries : &hak_map_top[index], &none, entries, false,
                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    if (reserve)
      piece_push(&reserve->leaves, leaf);
    entries = none;
  }
  if (is_home) {
    __atomic_store_n(&hak_map_home.index, index, __ATOMIC_RELEASE);
    __atomic_store_n(&hak_map_top[index], entries, __ATOMIC_RELEASE);
  }
  return true;
}

static struct map_row **row_place(const void *address) { return &map_leaf(address)->rows[map_row_in_leaf(address)]; }

/* The leaf exists. */
COLD static bool row_make(const void *address, struct map_reserve *reserve) {
  struct map_row **place = row_place(address);
  struct map_row *none = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (none != NULL && !is_shared(none))
    return true;
  struct map_row *row = reserve ? piece_pop(&reserve->row) : map_piece_take(sizeof *row);
  if (row == NULL)
    return false;
  if (!__atomic_compare_exchange_n(place, &none, row, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) && reserve)
    piece_push(&reserve->row, row);
  return true;
}

COLD static bool leaves_make(const void *address, size_t size, struct map_reserve *reserve) {
  uintptr_t first = (uintptr_t)address >> HAK_LEAF_SHIFT;
  uintptr_t last = ((uintptr_t)address + size - 1) >> HAK_LEAF_SHIFT;
  if (last >= HAK_MAP_TOP_COUNT || last < first)
    return false;
  for (uintptr_t index = first; index <= last; index++)
    if (!leaf_make(index, reserve))
      return false;
  return true;
}

bool map_cover_object(const void *address, size_t size) {
  return leaves_make(address, size, NULL) && row_make(address, NULL);
}

void map_cover_reserved(const void *address, size_t size, struct map_reserve *reserve) {
  bool done = leaves_make(address, size, reserve) && row_make(address, reserve);
  hak_assert(done);
  (void)done;
}

bool map_cover(const void *address, size_t size) {
  if (!leaves_make(address, size, NULL))
    return false;
  uintptr_t last = ((uintptr_t)address + size - 1) >> ROW_SHIFT;
  for (uintptr_t at = (uintptr_t)address >> ROW_SHIFT; at <= last; at++)
    if (!row_make((void *)(at << ROW_SHIFT), NULL))
      return false;
  return true;
}

static void entries_write(const char *at, size_t units, uint32_t entry) {
  uint32_t *first = map_leaf_entry(map_leaf(at), at);
  for (size_t i = 0; i < units; i++)
    __atomic_store_n(&first[i], entry, __ATOMIC_RELAXED);
}

static bool entries_are_none(const char *at) {
  const uint32_t *first = map_leaf_entry(map_leaf(at), at);
  uint32_t any = 0;
  for (size_t i = 0; i < ROW_UNITS; i++)
    any |= __atomic_load_n(&first[i], __ATOMIC_RELAXED);
  return any == ENTRY_NONE;
}

/* Sets the entries of `units` units from `at` on, which lie in one row. If the row is shared and only some of its
 * entries change, all are written. */
static void entries_set_in_row(const char *at, size_t units, uint32_t entry) {
  struct map_row **place = row_place(at), *row = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  bool is_whole = units == ROW_UNITS;
  bool may_share = is_whole && (entry == ENTRY_LARGE_BODY || entry == ENTRY_LARGE_FREE);
  if (may_share && (is_shared(row) || (row == NULL && entries_are_none(at))) &&
      __atomic_compare_exchange_n(place, &row, entry == ENTRY_LARGE_BODY ? MAP_ROW_BODY : MAP_ROW_FREE, false,
                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return;
  if (is_shared(row)) {
    if (!is_whole)
      entries_write((const char *)round_down((uintptr_t)at, ROW_BYTES), ROW_UNITS,
                    row == MAP_ROW_BODY ? ENTRY_LARGE_BODY : ENTRY_LARGE_FREE);
    __atomic_store_n(place, NULL, __ATOMIC_RELEASE);
    if (is_whole && entry == ENTRY_NONE)
      return;
  }
  entries_write(at, units, entry);
}

void map_entries_set(const void *address, size_t units, uint32_t entry) {
  const char *at = address;
  while (units > 0) {
    hak_assert(map_covers(at));
    size_t some = min_size(units, ROW_UNITS - map_unit_in_row(at));
    entries_set_in_row(at, some, entry);
    at += some * UNIT_BYTES;
    units -= some;
  }
}

/* Rows of neighbours mostly lie side by side. */
COLD void map_rows_purge(const char *base, size_t bytes) {
  const struct map_row *first = NULL, *next = NULL;
  for (const char *at = (const char *)round_up((uintptr_t)base, ROW_BYTES); at + ROW_BYTES <= base + bytes;
       at += ROW_BYTES) {
    const struct map_row *row = map_row(at);
    if (row == NULL || is_shared(row))
      continue;
    if (row != next) {
      pages_purge_inside(first, next);
      first = row;
    }
    next = row + 1;
  }
  pages_purge_inside(first, next);
}
