/* envelope.h: remote frees: blocks of other pools go in envelopes from the outbox of the thread that frees them to the
 * inbox of the pool that owns them. */
#ifndef HAK_HEAP_ENVELOPE_H
#define HAK_HEAP_ENVELOPE_H

#include "heap/heap.h"
#include "pages/page_map.h"

#define ENVELOPE_SLOTS 124u
#define ENVELOPE_BYTES_MAX ((size_t)128 * 1024) /* blocks over a KiB fill an envelope before its slots run out */

struct envelope {
  struct envelope *next;
  uint32_t owner;      /* pool id */
  uint16_t count;      /* of blocks */
  uint16_t direct_max; /* outbox_put_ready fills it up to here; 0: only outbox_put fills it */
  size_t bytes;        /* of the blocks */
  uint64_t life;       /* of the owner (heap/private.h, V2) */
  void *blocks[ENVELOPE_SLOTS];
};

/* The owner of an outbox is the only writer of its sums, so a plain store is enough. */
#define OWNER_ADD(sum, amount)                                                                                         \
  atomic_store_explicit(&(sum), atomic_load_explicit(&(sum), memory_order_relaxed) + (amount), memory_order_relaxed)

static inline void envelope_append(struct outbox *outbox, struct envelope *envelope, void *block, size_t bytes) {
  envelope->blocks[envelope->count++] = block;
  envelope->bytes += bytes;
  OWNER_ADD(outbox->open_bytes, bytes);
}

/* Puts another pool's block, freed by the owner of the outbox, into the open envelope for its owner. False, and no
 * effect, if there is none, if it would become full, or if the free needs more than that. Takes no lock. entry: the
 * block's page-map entry. */
static inline bool outbox_put_ready(struct outbox *outbox, void *block, uint32_t entry) {
  uint32_t owner = entry_pool_id(entry);
  if (UNLIKELY(outbox->open == NULL))
    return false;
  struct envelope *envelope = outbox->open[owner & (outbox->places - 1)];
  size_t bytes = class_bytes(entry_class(entry));
  if (UNLIKELY(envelope == NULL || envelope->owner != owner || envelope->count >= envelope->direct_max ||
               envelope->bytes + bytes >= ENVELOPE_BYTES_MAX ||
               atomic_load_explicit(&outbox->open_bytes, memory_order_relaxed) + bytes >= outbox->bytes_max))
    return false;
  envelope_append(outbox, envelope, block, bytes);
  return true;
}

/* The same for any block of another pool. No lock may be held. entry: as above. True if an envelope was sent. */
bool outbox_put(struct heap *heap, void *block, uint32_t entry);
/* Slow fallback without memory for a heap or an envelope: frees the block straight into the owner's slab, under its
 * lock. */
void block_deliver(void *block, uint32_t entry);
/* Sends all open envelopes. outbox_close also gives the table back. */
void outbox_send_all(struct heap *heap);
void outbox_close(struct heap *heap);
void outbox_drop_all(struct heap *heap);
/* Call when the heap becomes split: outbox_put, which counts, fills all open envelopes from now on. */
void outbox_count_each(struct heap *heap);
/* Moves the blocks that a pool received into its slabs, or to where `put` puts those of each envelope for a heap of the
 * pool. The pool's lock is held. */
typedef void envelope_put(struct heap *heap, void **blocks, size_t count);
void inbox_drain(struct heap *heap, envelope_put *put);
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
