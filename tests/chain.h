/* chain.h: blocks that are chained through themselves, so that a test that fills memory needs none beside. */
#pragma once

#include "check.h"
#include "heap_api.h"

struct link {
  struct link *next;
};

/* A block that is written every `step` bytes and at its end, or NULL. */
static inline void *chain_block_written(size_t size, size_t step) {
  errno = 0;
  char *block = (char *)t_malloc(size);
  if (block == NULL) {
    CHECK_SAY(errno == ENOMEM, "errno %d", errno);
    return NULL;
  }
  for (size_t i = 0; i < size; i += step)
    ((volatile char *)block)[i] = 1;
  ((volatile char *)block)[size - 1] = 1;
  return block;
}

/* Of which every page is written. */
static inline void *chain_block(size_t size) { return chain_block_written(size, 4096); }

/* False where there is no block. */
static inline int chain_link(struct link **chain, void *memory) {
  struct link *block = (struct link *)memory;
  if (block == NULL)
    return 0;
  block->next = *chain;
  *chain = block;
  return 1;
}
static inline int chain_add(struct link **chain, size_t size) { return chain_link(chain, chain_block(size)); }

static inline void chain_drain(struct link *chain) {
  while (chain) {
    struct link *next = chain->next;
    t_free(chain);
    chain = next;
  }
}
