/* envelope.h: remote frees: blocks of other pools go in envelopes from the outbox of the thread that frees them to the
 * inbox of the pool that owns them. */
#ifndef HAK_HEAP_ENVELOPE_H
#define HAK_HEAP_ENVELOPE_H

#include "heap/heap.h"

/* Puts another pool's block, freed by the owner of `heap`, into the open envelope for its owner. False, and no effect,
 * if there is none or if it would become full. Takes no lock. entry: the block's page-map entry. */
bool outbox_put_ready(struct heap *heap, void *block, uint32_t entry);
/* The same, but always succeeds. No lock may be held. True if an envelope was sent. */
bool outbox_put(struct heap *heap, void *block, uint32_t entry);
/* Slow fallback without memory for a heap or an envelope: frees the block straight into the owner's slab, under its
 * lock. */
void block_deliver(void *block, uint32_t entry);
/* Sends all open envelopes. outbox_close also gives the table back. */
void outbox_send_all(struct heap *heap);
void outbox_close(struct heap *heap);
void outbox_drop_all(struct heap *heap);
/* Moves the blocks that a pool received into its slabs, or to where `put` puts them for a heap of the pool. The pool's
 * lock is held. */
void inbox_drain(struct heap *heap, void (*put)(struct heap *heap, unsigned cls, void *block));
void inbox_drain_to_slabs(struct pool *pool);
/* Drains the inbox until nothing is left or another thread holds the lock. It checks again after giving the lock. So of
 * several threads that push to a pool without heaps, the last holder of the lock leaves nothing behind
 * (tests/model/park.pml). */
void inbox_serve(struct pool *pool);
static inline bool inbox_has_mail(struct pool *pool) {
  return atomic_load_explicit(&pool->inbox, memory_order_relaxed) != NULL;
}
/* Gives unused envelopes back to the metadata. */
void envelopes_trim(void);

#endif
