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
#define AREA_BYTES_MIN ((size_t)4096) /* shorter rests go to the lists of pieces */
#define AREA_LOOKS_MAX 16             /* areas tried before a new chunk is mapped */
#define CHUNK_LINES (CHUNK_BYTES / CACHE_LINE)

static SPARSE _Alignas(4096) char start_area[START_BYTES];

/* Pieces come from chunks. A chunk lies at a multiple of its size, so that a trim finds the chunk of a piece. */
struct chunk {
  struct chunk *next;
  uint64_t free[CHUNK_LINES / 64]; /* during a trim: a bit for each free cache line */
};
#define HEADER_BYTES ((sizeof(struct chunk) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE)
_Static_assert(HEADER_BYTES + ((size_t)1 << METADATA_ORDER_MAX) <= CHUNK_BYTES, "a chunk holds the longest piece");

/* Free memory of at least AREA_BYTES_MIN. This struct is stored in its first bytes. */
struct area {
  struct area *next;
  char *end;
};

struct space {
  char *next, *end;
};

/* D1  memory behind start.next was never used: it is zero
 * D2  a free piece's first word links to the next free piece of its order
 * D3  a chunk has pieces only, so it can be unmapped when all of them are free; permanent memory comes from the start
 *     area or from where the page map's comes from */
static struct {
  struct lock lock;
  struct space start, pieces;
  struct chunk *chunks;
  struct area *areas;
  void *free[METADATA_ORDER_MAX + 1];
  _Atomic size_t free_bytes; /* of the pieces in the lists; written under the lock */
} metadata = {.start = {.next = start_area, .end = start_area + START_BYTES}};

static size_t space_left(const struct space *space) { return (size_t)(space->end - space->next); }

static void *space_carve(struct space *space, size_t bytes) {
  void *piece = space->next;
  space->next += bytes;
  return piece;
}

size_t metadata_free_bytes(void) { return load_relaxed(&metadata.free_bytes); }

static void push_free(void *piece, unsigned order) {
  add_as_owner(&metadata.free_bytes, (size_t)1 << order);
  memcpy(piece, &metadata.free[order], sizeof(void *));
  metadata.free[order] = piece;
}

/* Keeps a free range for later: as an area, or as pieces. */
static void keep_rest(char *at, char *end) {
  if ((size_t)(end - at) >= AREA_BYTES_MIN) {
    struct area *area = (struct area *)(void *)at;
    *area = (struct area){.next = metadata.areas, .end = end};
    metadata.areas = area;
    return;
  }
  while ((size_t)(end - at) >= (size_t)1 << METADATA_ORDER_MIN) {
    unsigned order = 63u - (unsigned)__builtin_clzl((size_t)(end - at));
    push_free(at, order);
    at += (size_t)1 << order;
  }
}

/* Takes an area with enough room out of the list. */
static bool area_take(struct space *out, size_t bytes) {
  struct area **link = &metadata.areas;
  for (unsigned looks = 0; *link != NULL && looks < AREA_LOOKS_MAX; looks++, link = &(*link)->next) {
    struct area *area = *link;
    if ((size_t)(area->end - (char *)area) < bytes)
      continue;
    *link = area->next;
    *out = (struct space){.next = (char *)area, .end = area->end};
    return true;
  }
  return false;
}

static bool chunk_map(struct space *out) {
  struct chunk *chunk = os_map(CHUNK_BYTES, CHUNK_BYTES);
  if (chunk == NULL)
    return false;
  chunk->next = metadata.chunks;
  metadata.chunks = chunk;
  usage_move(USAGE_NOWHERE, USAGE_TABLES, CHUNK_BYTES); /* even beyond the limit: what is held needs its tables */
  *out = (struct space){.next = (char *)chunk + HEADER_BYTES, .end = (char *)chunk + CHUNK_BYTES};
  return true;
}

void *metadata_take_forever(size_t bytes) {
  HOLD_LOCK(&metadata.lock);
  bytes = round_up(bytes, CACHE_LINE);
  return space_left(&metadata.start) >= bytes ? space_carve(&metadata.start, bytes) : map_piece_take(bytes);
}

void *metadata_take(unsigned order) {
  hak_assert(order >= METADATA_ORDER_MIN && order <= METADATA_ORDER_MAX);
  HOLD_LOCK(&metadata.lock);
  size_t bytes = (size_t)1 << order;
  void *piece = metadata.free[order];
  if (piece != NULL) {
    memcpy(&metadata.free[order], piece, sizeof(void *));
    add_as_owner(&metadata.free_bytes, -bytes);
    return piece;
  }
  if (space_left(&metadata.pieces) >= bytes)
    return space_carve(&metadata.pieces, bytes);
  if (space_left(&metadata.start) >= bytes)
    return space_carve(&metadata.start, bytes);
  struct space next;
  if (!area_take(&next, bytes) && !chunk_map(&next))
    return NULL;
  keep_rest(metadata.pieces.next, metadata.pieces.end);
  metadata.pieces = next;
  return space_carve(&metadata.pieces, bytes);
}

void metadata_give(void *piece, unsigned order) {
  HOLD_LOCK(&metadata.lock);
  push_free(piece, order);
}

/* --- trim --- */

static bool is_in_start_area(const void *piece) {
  return (uintptr_t)piece >= (uintptr_t)start_area && (uintptr_t)piece < (uintptr_t)start_area + START_BYTES;
}

static struct chunk *chunk_of(const void *piece) { return (struct chunk *)round_down((uintptr_t)piece, CHUNK_BYTES); }

static size_t line_of(const void *piece) { return ((uintptr_t)piece & (CHUNK_BYTES - 1)) / CACHE_LINE; }

static void mark_free(const void *piece, size_t bytes) {
  bits_set(chunk_of(piece)->free, line_of(piece), bytes / CACHE_LINE, true);
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
    lock_take(&metadata.lock);
    keep_rest(at, end);
    lock_give(&metadata.lock);
  }
  memset(chunk->free, 0, sizeof chunk->free);
  return given_back;
}

size_t metadata_trim(void) {
  void *lists[METADATA_ORDER_MAX + 1];
  lock_take(&metadata.lock);
  struct chunk *chunks = metadata.chunks;
  struct area *areas = metadata.areas;
  memcpy(lists, metadata.free, sizeof lists);
  metadata.chunks = NULL;
  metadata.areas = NULL;
  memset(metadata.free, 0, sizeof metadata.free);
  store_relaxed(&metadata.free_bytes, 0);
  lock_give(&metadata.lock);
  /* No other thread can reach these lists. */
  for (struct area *area = areas, *next; area; area = next) {
    next = area->next;
    mark_free(area, round_down((uintptr_t)area->end, CACHE_LINE) - (uintptr_t)area);
  }
  for (unsigned order = METADATA_ORDER_MIN; order <= METADATA_ORDER_MAX; order++)
    for (void *piece = lists[order], *next; piece; piece = next) {
      memcpy(&next, piece, sizeof next);
      if (is_in_start_area(piece))
        metadata_give(piece, order);
      else
        mark_free(piece, (size_t)1 << order);
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
