/* metadata.h: memory for hakmem's own tables: heaps, bin arrays, envelopes. The program never gets this memory. Pieces
 * given back are reused, and for other orders too once a trim has joined them. */
#pragma once

#include "base/words.h"

/* Returns `bytes` zeroed bytes at a multiple of CACHE_LINE. They are never given back. NULL when memory is out. */
void *metadata_take_forever(size_t bytes);

/* Takes 2^order bytes (order 6..17) at a multiple of CACHE_LINE, with unspecified content; gives them back. */
#define METADATA_ORDER_MIN 6
#define METADATA_ORDER_MAX 17 /* the array of the biggest bin */
void *metadata_take(unsigned order);
void metadata_give(void *piece, unsigned order);
/* Returns the order of the shortest piece that holds so many bytes. */
static inline unsigned metadata_order(size_t bytes) {
  return bytes <= (size_t)1 << METADATA_ORDER_MIN ? METADATA_ORDER_MIN : 64u - (unsigned)__builtin_clzl(bytes - 1);
}

/* Joins free pieces and gives their pages back to the system. Returns the bytes. In a slow path; one at a time. */
size_t metadata_trim(void);
/* Returns the bytes of free pieces that a trim could give back. Takes no lock. */
size_t metadata_free_bytes(void);

/* Bytes taken from the system (a static start area included). */
size_t metadata_bytes(void);
