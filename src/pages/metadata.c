#include "pages/metadata.h"

#include "base/bits.h"
#include "budget/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/page_map.h"

#include <string.h>

/* The first memory comes from .bss, so a small program needs no mapping for its tables. */
#define START_BYTES ((size_t)64 * 1024)
#define CHUNK_BYTES ((size_t)256 * 1024)
#define CHUNK_LINES (CHUNK_BYTES / CACHE_LINE)

static SPARSE _Alignas(4096) char start_area[START_BYTES];

/* Pieces come from chunks. A chunk lies at a multiple of its size, so that a trim finds the chunk of a piece. */
struct chunk {
  struct chunk *next;
  uint64_t free[CHUNK_LINES / 64]; /* during a trim: a bit for each free cache line */
};
#define HEADER_BYTES ((sizeof(struct chunk) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE)
_Static_assert(HEADER_BYTES + ((size_t)1 << METADATA_ORDER_MAX) <= CHUNK_BYTES, "a chunk holds the longest piece");

/* A free range: a piece that was given back, or what is left of a chunk. This struct is stored in its first bytes. */
struct range {
  struct range *next;
  char *end;
  bool is_used; /* since it came from the system, or a trim gave its pages back */
};

/* D1  memory behind start_next was never used: it is zero
 * D2  a free range of 2^n bytes and less than twice as many is in list n
 * D3  a chunk has pieces only, so it can be unmapped when all of them are free; permanent memory comes from the start
 *     area or from where the page map's comes from */
static struct {
  struct lock lock;
  char *start_next;
  struct chunk *chunks;
  struct range *free[METADATA_ORDER_MAX + 1];
  _Atomic size_t free_bytes; /* of the ranges that are used; written under the lock */
} metadata = {.start_next = start_area};
_Static_assert(CHUNK_BYTES <= (size_t)2 << METADATA_ORDER_MAX, "each range has a list");

size_t metadata_free_bytes(void) { return load_relaxed(&metadata.free_bytes); }

static size_t range_bytes(const struct range *range) { return (size_t)(range->end - (const char *)range); }

static void free_give(void *at, char *end, bool is_used) {
  struct range *range = at;
  if (end == at)
    return;
  *range = (struct range){.end = end, .is_used = is_used};
  struct range **list = &metadata.free[63u - (unsigned)__builtin_clzl(range_bytes(range))];
  range->next = *list;
  *list = range;
  add_as_owner(&metadata.free_bytes, is_used ? range_bytes(range) : 0);
}

/* Takes the front of one of the shortest ranges; NULL if none is long enough. */
static void *free_take(unsigned order) {
  unsigned list = order;
  while (list <= METADATA_ORDER_MAX && metadata.free[list] == NULL)
    list++;
  if (list > METADATA_ORDER_MAX)
    return NULL;
  struct range *range = metadata.free[list], taken = *range;
  metadata.free[list] = taken.next;
  add_as_owner(&metadata.free_bytes, taken.is_used ? -range_bytes(range) : 0);
  free_give((char *)range + ((size_t)1 << order), taken.end, taken.is_used);
  return range;
}

/* Takes the front of what is left of the start area; NULL if that is too short. */
static void *start_take(size_t bytes) {
  char *piece = metadata.start_next;
  if ((size_t)(start_area + START_BYTES - piece) < bytes)
    return NULL;
  metadata.start_next += bytes;
  return piece;
}

static bool chunk_map(void) {
  struct chunk *chunk = os_map(CHUNK_BYTES, CHUNK_BYTES);
  if (chunk == NULL)
    return false;
  chunk->next = metadata.chunks;
  metadata.chunks = chunk;
  usage_move(USAGE_NOWHERE, USAGE_TABLES, CHUNK_BYTES); /* even beyond the limit: what is held needs its tables */
  free_give((char *)chunk + HEADER_BYTES, (char *)chunk + CHUNK_BYTES, false);
  return true;
}

void *metadata_take_forever(size_t bytes) {
  HOLD_LOCK(&metadata.lock);
  bytes = round_up(bytes, CACHE_LINE);
  void *memory = start_take(bytes);
  return memory != NULL ? memory : map_piece_take(bytes);
}

void *metadata_take(unsigned order) {
  hak_assert(order >= METADATA_ORDER_MIN && order <= METADATA_ORDER_MAX);
  HOLD_LOCK(&metadata.lock);
  void *piece = free_take(order);
  if (piece == NULL)
    piece = start_take((size_t)1 << order);
  return piece == NULL && chunk_map() ? free_take(order) : piece;
}

static void range_give(void *at, char *end, bool is_used) {
  HOLD_LOCK(&metadata.lock);
  free_give(at, end, is_used);
}

void metadata_give(void *piece, unsigned order) { range_give(piece, (char *)piece + ((size_t)1 << order), true); }

/* --- trim --- */

static bool is_in_start_area(const void *piece) {
  return (uintptr_t)piece >= (uintptr_t)start_area && (uintptr_t)piece < (uintptr_t)start_area + START_BYTES;
}

static void mark_free(const struct range *range) {
  struct chunk *chunk = (struct chunk *)round_down((uintptr_t)range, CHUNK_BYTES);
  bits_set(chunk->free, ((uintptr_t)range - (uintptr_t)chunk) / CACHE_LINE, range_bytes(range) / CACHE_LINE, true);
}

/* Gives back the pages of a chunk's free runs and keeps the runs for later. */
static size_t chunk_trim(struct chunk *chunk) {
  size_t given_back = 0, page = os_page_bytes();
  for (size_t line = 0;;) {
    size_t first = bit_find(chunk->free, line, CHUNK_LINES, true);
    line = bit_find(chunk->free, first, CHUNK_LINES, false);
    if (first == CHUNK_LINES)
      break;
    char *at = (char *)chunk + first * CACHE_LINE, *end = (char *)chunk + line * CACHE_LINE;
    char *pages = (char *)round_up((uintptr_t)at, page), *pages_end = (char *)round_down((uintptr_t)end, page);
    if (pages < pages_end) {
      size_t resident = os_resident_bytes(pages, (size_t)(pages_end - pages)); /* an earlier trim may have taken them */
      if (pages_purge(pages, (size_t)(pages_end - pages)) != PURGE_REFUSED)
        given_back += resident;
    }
    range_give(at, end, false);
  }
  memset(chunk->free, 0, sizeof chunk->free);
  return given_back;
}

size_t metadata_trim(void) {
  struct range *lists[METADATA_ORDER_MAX + 1];
  lock_take(&metadata.lock);
  struct chunk *chunks = metadata.chunks;
  memcpy(lists, metadata.free, sizeof lists);
  metadata.chunks = NULL;
  memset(metadata.free, 0, sizeof metadata.free);
  store_relaxed(&metadata.free_bytes, 0);
  lock_give(&metadata.lock);
  /* No other thread can reach these lists. */
  for (unsigned order = METADATA_ORDER_MIN; order <= METADATA_ORDER_MAX; order++)
    for (struct range *range = lists[order], *next; range; range = next) {
      next = range->next;
      if (is_in_start_area(range))
        range_give(range, range->end, true);
      else
        mark_free(range);
    }
  size_t given_back = 0;
  for (struct chunk *chunk = chunks, *next; chunk; chunk = next) {
    next = chunk->next;
    bool is_unused = bit_find(chunk->free, HEADER_BYTES / CACHE_LINE, CHUNK_LINES, false) == CHUNK_LINES;
    if (is_unused && os_unmap(chunk, CHUNK_BYTES)) {
      usage_move(USAGE_TABLES, USAGE_NOWHERE, CHUNK_BYTES);
      given_back += CHUNK_BYTES;
      continue;
    }
    given_back += chunk_trim(chunk);
    lock_take(&metadata.lock);
    chunk->next = metadata.chunks;
    metadata.chunks = chunk;
    lock_give(&metadata.lock);
  }
  return given_back;
}

size_t metadata_bytes(void) { return START_BYTES + usage_tables(); }
