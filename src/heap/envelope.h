/* envelope.h: remote frees: blocks of other pools go in envelopes from the outbox of the thread that frees them to the
 * inbox of the pool that owns them. */
#pragma once

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
  uint64_t life;       /* of the owner (threads/private.h, V2) */
  void *blocks[ENVELOPE_SLOTS];
};

/* Returns the place for an owner. The outbox has places. */
static inline struct envelope **outbox_place(const struct outbox *outbox, uint32_t owner) {
  return &outbox->open[owner % OUTBOX_PLACES];
}

/* In the entry of a tiny class, a multiple of 16 bytes, these bits are the length of its blocks. */
#define TINY_ENTRY_BYTES ((size_t)0xff << HAK_ENTRY_CLASS_SHIFT)
_Static_assert(1u << HAK_ENTRY_CLASS_SHIFT == BLOCK_ALIGNMENT, "so a class's number says it");

/* Puts another pool's block, freed by the owner of the outbox, into the open envelope for its owner. False, and no
 * effect, if there is none, if it would become full, or if the free needs more than that. Takes no lock. entry: the
 * block's page-map entry. */
static inline bool outbox_put_ready(struct outbox *outbox, void *block, uint32_t entry) {
  uint32_t owner = entry_pool_id(entry);
  struct envelope *envelope = outbox->last;
  if (UNLIKELY(envelope == NULL))
    return false;
  if (envelope->owner != owner) {
    envelope = *outbox_place(outbox, owner);
    if (UNLIKELY(envelope == NULL || envelope->owner != owner))
      return false;
    outbox->last = envelope;
  }
  uint32_t count = envelope->count;
  if (UNLIKELY(count >= envelope->direct_max))
    return false;
  size_t bytes = entry & TINY_ENTRY_BYTES;
  if (UNLIKELY(bytes > HAK_TINY_MAX))
    bytes = class_bytes(entry_class(entry));
  size_t in_envelope = envelope->bytes + bytes;
  size_t open_bytes = load_relaxed(&outbox->open_bytes) + bytes;
  if (UNLIKELY(in_envelope >= ENVELOPE_BYTES_MAX || open_bytes >= outbox->bytes_max))
    return false;
  store_relaxed(&outbox->open_bytes, open_bytes);
  envelope->bytes = in_envelope;
  envelope->blocks[count] = block;
  atomic_signal_fence(memory_order_seq_cst); /* the owner may end after any instruction, in a signal handler */
  envelope->count = (uint16_t)(count + 1);
  return true;
}

/* The same for any block of another pool. No lock may be held. entry: as above. True if an envelope was sent,
 * or none could be opened and the block went straight to its slab. */
bool outbox_put(struct heap *heap, void *block, uint32_t entry);
/* The same while the lock of the heap's pool is held. False, and no effect, if memory is out and the owner's lock is
 * not free. */
bool outbox_put_locked(struct heap *heap, void *block, uint32_t entry);
/* Slow fallback without memory for a heap or an envelope: frees the block straight into the owner's slab, under its
 * lock. If that is never given, the block is lost. */
void block_deliver(void *block, uint32_t entry);
/* Sends all open envelopes. outbox_drop_all: drops them. */
void outbox_send_all(struct heap *heap);
void outbox_drop_all(struct heap *heap);
/* Call when the heap becomes split: outbox_put, which counts, fills all open envelopes from now on. */
void outbox_count_each(struct heap *heap);
/* Calls `put` for the blocks of each envelope that a pool received, for a heap of the pool, until `put` returns true:
 * it has enough, or for `most` envelopes. put NULL: the blocks go into the slabs. The pool's lock is held. */
typedef bool envelope_put(struct heap *heap, unsigned wanted_cls, void **blocks, size_t count);
void inbox_drain(struct pool *pool, struct heap *heap, unsigned wanted_cls, envelope_put *put, uint32_t most);
/* Drains the inbox until nothing is left or another thread holds the lock. It checks again after giving the lock. So of
 * several threads that push to a pool without heaps, the last holder of the lock leaves nothing behind
 * (tests/model/park.pml). */
void inbox_serve(struct pool *pool);
/* Gives the lock of a pool that the thread's heap is not attached to. Where it has no heaps, another thread may have
 * pushed an envelope meanwhile, and not got the lock: so the inbox is drained. */
void inbox_unlock(struct pool *pool);
static inline bool inbox_has_mail(struct pool *pool) {
  return load_relaxed(&pool->inbox) != NULL || load_relaxed(&pool->received) != NULL;
}
static inline void inbox_drain_to_slabs(struct pool *pool) {
  if (inbox_has_mail(pool))
    inbox_drain(pool, NULL, 0, NULL, UINT32_MAX);
}
/* Gives the emptied envelopes of all pools back to the metadata. */
void envelopes_trim(void);
