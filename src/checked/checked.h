/* checked.h: small blocks whose every free is checked at once: the preset `secure` (docs/security.md).
 *
 * The slabs belong to a few pools without threads. Each thread has a cache of blocks in front of them. Blocks never
 * enter a bin, so malloc and free take their slow paths, which come here. A block has a state, outside all blocks.
 *   C1  state 0: never used; 1: free; n > 1: it lives, and n - 2 is its slack, class_bytes - size of the request
 *   C2  a block whose state is 0 or 1 reads as zero, unless the program wrote through a stale pointer
 *   C3  with the option `canary`, 8 bytes behind the request hold a word that depends on the address and a secret
 *   C4  a free block is in a slab's bitmap or in one thread's cache. There the last ones that it freed wait, and any of
 *       the others may be given out next
 * A cache is changed by its owner in an owner's step or a slow path, or by the sweeper of a dead thread's heap. */
#pragma once

#include "base/size_class.h"
#include "heap/heap.h"

/* The slabs are spread over pools, so that threads seldom wait for one: by the thread's lane, and by class. */
#define CHECKED_LANES 4u
#define CLASS_GROUPS 2u
#define CHECKED_POOLS (CHECKED_LANES * CLASS_GROUPS)
#define CANARY_BYTES sizeof(uint64_t)
#define STATE_LIVE 2u /* and above */
#define CHECKED_SLACK_MAX (UINT16_MAX - STATE_LIVE)

/* The id of the first of the pools, whose ids follow each other; 0: off. It is set once, at program start. */
extern HAK_HIDDEN _Atomic uint32_t checked_first_id;

static inline bool checked_is_on(void) { return UNLIKELY(load_relaxed(&checked_first_id) != 0); }
static inline bool entry_is_checked(uint32_t entry) {
  uint32_t first = load_relaxed(&checked_first_id);
  return UNLIKELY(first != 0) && entry_pool_id(entry) - first < CHECKED_POOLS;
}

/* Call once, at program start: reads the options and draws the secret. The pools must be new. */
void checked_begin(struct pool *const pools[CHECKED_POOLS]);

extern HAK_HIDDEN size_t checked_room; /* bytes behind each request; const after the start */

/* Returns the class for a request, 0 if it needs a large object. */
static inline unsigned checked_class(size_t size, size_t alignment) {
  size_t bytes = max_size(size, 1) + checked_room;
  if (UNLIKELY(bytes > HAK_SMALL_MAX || size > HAK_SMALL_MAX))
    return 0;
  return LIKELY(alignment <= BLOCK_ALIGNMENT) ? hak_class_of(bytes) : class_aligned(bytes, alignment);
}

/* Returns a block of a heap's cache, which it fills, and makes if there is none. The block is at most CHECKED_SLACK_MAX
 * longer than `size`. may_open: a slab; else the last ready blocks are given out, too, when the slabs have none. NULL
 * when there is none, or memory is out. In a slow path. */
void *checked_take(struct heap *heap, unsigned cls, size_t size, bool may_open);

/* Ends the life of a block; any thread may call it anywhere. A double free, an address that is no block, or a changed
 * canary ends the program. The block must then go to one of the next two. */
void checked_retire(void *block, uint32_t entry);
/* Puts it into the cache of a heap. In a slow path. */
void checked_put(struct heap *heap, void *block, uint32_t entry);
/* Puts it into its slab. In a slow path. */
void checked_deliver(void *block, uint32_t entry);

/* Returns the pool from whose slabs the heap takes blocks of a class. */
struct pool *checked_pool(const struct heap *heap, unsigned cls);

/* Returns the size of the request for a live block; 0 for any other address. */
size_t checked_size(const void *block, uint32_t entry);
/* Checks a live block as checked_retire does, and makes it shorter or longer, if its class and `size` fit. Returns the
 * size that it had; *resized: it has the new one. */
size_t checked_resize(void *block, uint32_t entry, size_t size, bool *resized);

/* Makes the cache of a heap whole whose owner ended outside slow paths, maybe in the middle of a step. */
void checked_recover(struct heap *heap);
/* Empties the cache of a heap into the slabs. Call without a pool's lock. */
void checked_flush(struct heap *heap);
/* In the child of a fork: drops the cache of a thread that does not exist there; draws another secret. */
void checked_drop(struct heap *heap);
void checked_in_child(struct heap *self);

/* Returns the bytes of the blocks in a heap's cache, and what it gave and took of a class. Any thread may call it. */
size_t checked_cached_bytes(const struct heap *heap);
struct class_counts checked_counts(const struct heap *heap, unsigned cls);
