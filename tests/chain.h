/* chain.h: blocks that are chained through themselves, so that a test that fills memory needs none beside. */
#pragma once

#include "check.h"
#include "heap_api.h"

struct link {
  struct link *next;
};

/* A block of which every page is written, or NULL. */
static inline void *chain_block(size_t size) {
  errno = 0;
  char *block = (char *)t_malloc(size);
  if (block == NULL) {
    CHECK_SAY(errno == ENOMEM, "errno %d", errno);
    return NULL;
  }
  for (size_t i = 0; i < size; i += 4096)
    ((volatile char *)block)[i] = 1;
  ((volatile char *)block)[size - 1] = 1;
  return block;
}

/* False where there is no memory. */
static inline int chain_add(struct link **chain, size_t size) {
  struct link *block = (struct link *)chain_block(size);
  if (block == NULL)
    return 0;
  block->next = *chain;
  *chain = block;
  return 1;
}

static inline void chain_drain(struct link *chain) {
  while (chain) {
    struct link *next = chain->next;
    t_free(chain);
    chain = next;
  }
}
