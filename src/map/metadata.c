#include "map/metadata.h"

#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"

#include <string.h>

/* The first pieces come from .bss: a small program needs no mapping for its tables. */
#define START_BYTES ((size_t)64 * 1024)
#define CHUNK_BYTES ((size_t)256 * 1024)

static _Alignas(4096) char start_area[START_BYTES];

/* D1  pieces behind `next` were never used: they are zero
 * D2  a free piece's first word links to the next free piece of its order */
static struct {
  struct lock lock;
  char *next, *end;
  void *free[METADATA_ORDER_MAX + 1];
  size_t bytes;
} metadata;

static void *carve(size_t bytes) {
  bytes = round_up(bytes, CACHE_LINE);
  if (metadata.bytes == 0) {
    metadata.next = start_area;
    metadata.end = start_area + START_BYTES;
    metadata.bytes = START_BYTES;
  }
  if ((size_t)(metadata.end - metadata.next) < bytes) {
    size_t wanted = round_up(max_size(bytes, CHUNK_BYTES), UNIT_BYTES);
    char *chunk = os_map(wanted, os_page_bytes());
    if (chunk == NULL)
      return NULL;
    if (chunk != metadata.end) /* the rest of the last chunk is lost, unless the new one follows it */
      metadata.next = chunk;
    metadata.end = chunk + wanted;
    metadata.bytes += wanted;
  }
  void *piece = metadata.next;
  metadata.next += bytes;
  return piece;
}

void *metadata_take_forever(size_t bytes) {
  lock_take(&metadata.lock);
  void *piece = carve(bytes);
  lock_give(&metadata.lock);
  return piece;
}

void *metadata_take(unsigned order) {
  hak_assert(order >= METADATA_ORDER_MIN && order <= METADATA_ORDER_MAX);
  lock_take(&metadata.lock);
  void *piece = metadata.free[order];
  if (piece != NULL)
    memcpy(&metadata.free[order], piece, sizeof(void *));
  else
    piece = carve((size_t)1 << order);
  lock_give(&metadata.lock);
  return piece;
}

void metadata_give(void *piece, unsigned order) {
  lock_take(&metadata.lock);
  memcpy(piece, &metadata.free[order], sizeof(void *));
  metadata.free[order] = piece;
  lock_give(&metadata.lock);
}

void metadata_lock_for_fork(void) { lock_take(&metadata.lock); }

void metadata_unlock_after_fork(bool child) {
  if (child)
    lock_reset(&metadata.lock);
  else
    lock_give(&metadata.lock);
}

size_t metadata_bytes(void) {
  lock_take(&metadata.lock);
  size_t bytes = metadata.bytes;
  lock_give(&metadata.lock);
  return bytes;
}
