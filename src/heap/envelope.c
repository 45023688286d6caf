/* Remote frees: blocks on their way from the thread that freed them to the pool that owns them.
 *
 * The address of a freed block is stored in an open envelope for the owner. The block itself is not touched. A full
 * envelope is pushed onto the owner's inbox by one compare-and-swap. The owner takes the whole list by one exchange, so
 * a push never meets a reused head (no ABA). tests/model/inbox.pml checks the protocol exhaustively. */
#include "heap/envelope.h"
#include "base/probe.h"
#include "pages/metadata.h"

#define OUTBOX_BYTES_MAX ((size_t)256 * 1024) /* of all open envelopes of a thread */
#define CROWD_BYTES_MAX ((size_t)32 * 1024)   /* the same in a crowded pool */
#define INBOX_BYTES_MAX ((size_t)256 * 1024)  /* with more the sender drains some of the inbox */
#define INBOX_ENVELOPES_MAX 64u               /* likewise: envelopes of many senders may be nearly empty */
#define EMPTIED_MAX (2 * INBOX_ENVELOPES_MAX) /* that a pool keeps for its next senders */
/* Envelopes that a sender drains. It adds one each time, so the inbox falls. */
#define DRAINED_BY_SENDER_MAX 4u
#define SENDS_PER_SWEEP (16 * OUTBOX_PLACES) /* after so many sends half-filled envelopes go, too */

static void envelope_begin(struct envelope *envelope, const struct heap *heap, uint32_t owner) {
  bool is_slow = owner >= PRIVATE_FIRST || heap_is_counted(heap); /* its blocks may be void, or are counted */
  envelope->owner = owner;
  envelope->count = 0;
  envelope->direct_max = is_slow ? 0 : ENVELOPE_SLOTS - 1;
  envelope->bytes = 0;
  envelope->life = pool_life(pool_by_id(owner));
}

static bool is_void(const struct envelope *envelope) {
  return UNLIKELY(envelope->owner >= PRIVATE_FIRST) && envelope->life != pool_life(pool_by_id(envelope->owner));
}

/* A pool keeps the envelopes that came to it, for the next senders. So senders to different pools do not contend. */
static struct envelope *envelope_take(const struct heap *heap, uint32_t owner) {
  struct pool *pool = pool_by_id(owner);
  lock_take(&pool->emptied.lock);
  struct envelope *envelope = pool->emptied.first;
  if (envelope) {
    pool->emptied.first = envelope->next;
    add_as_owner(&pool->emptied.count, -1u);
  }
  lock_give(&pool->emptied.lock);
  if (envelope == NULL)
    envelope = metadata_take(metadata_order(sizeof *envelope));
  if (envelope)
    envelope_begin(envelope, heap, owner);
  return envelope;
}

static void envelopes_end(struct envelope *first) {
  for (struct envelope *envelope = first, *next; envelope; envelope = next) {
    next = envelope->next;
    metadata_give(envelope, metadata_order(sizeof *envelope));
  }
}

static uint32_t emptied_count(const struct pool *pool) { return load_relaxed(&pool->emptied.count); }

static void envelopes_keep(struct pool *pool, struct envelope *first, struct envelope *last, uint32_t count) {
  lock_take(&pool->emptied.lock);
  bool room = emptied_count(pool) + count <= EMPTIED_MAX;
  if (room) {
    last->next = pool->emptied.first;
    pool->emptied.first = first;
    add_as_owner(&pool->emptied.count, count);
  }
  lock_give(&pool->emptied.lock);
  if (!room)
    envelopes_end(first);
}

COLD void envelopes_trim(void) {
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool)) {
    if (emptied_count(pool) == 0) /* a write would copy the page in the child of a fork */
      continue;
    lock_take(&pool->emptied.lock);
    struct envelope *first = pool->emptied.first;
    pool->emptied.first = NULL;
    store_relaxed(&pool->emptied.count, 0);
    lock_give(&pool->emptied.lock);
    envelopes_end(first);
  }
}

void inbox_serve(struct pool *pool) {
  while ((atomic_load_explicit(&pool->inbox, memory_order_seq_cst) != NULL || inbox_has_mail(pool)) &&
         lock_try(&pool->lock)) {
    inbox_drain_to_slabs(pool);
    lock_give(&pool->lock);
  }
}

static bool has_heaps(struct pool *pool) { return atomic_load_explicit(&pool->heaps, memory_order_seq_cst) != 0; }

/* Pushes an envelope onto the owner's inbox. Drains the inbox if it has grown long, if the pool has no heaps, or if the
 * envelope goes early because its place is needed. So a pool whose threads sleep pins no memory. */
static void envelope_send(struct envelope *envelope, bool early) {
  struct pool *owner = pool_by_id(envelope->owner);
  size_t bytes = envelope->bytes;
  HAK_PROBE(envelope_send, envelope->owner, envelope->count, bytes);
  /* Before the push: the thread that drains the envelope subtracts the same bytes. */
  bytes += atomic_fetch_add_explicit(&owner->inbox_bytes, bytes, memory_order_relaxed);
  uint32_t envelopes = atomic_fetch_add_explicit(&owner->inbox_envelopes, 1, memory_order_relaxed) + 1;
  struct envelope *head = load_relaxed(&owner->inbox);
  do
    envelope->next = head;
  while (!atomic_compare_exchange_weak_explicit(&owner->inbox, &head, envelope, memory_order_seq_cst,
                                                memory_order_relaxed));
  bool overdue = early || bytes > INBOX_BYTES_MAX || envelopes > INBOX_ENVELOPES_MAX;
  /* heap_park detaches the heap, then serves. This thread pushed and now reads the number of heaps. All four accesses
   * are sequentially consistent, so one of the two threads sees the other's. */
  if (!has_heaps(owner))
    inbox_serve(owner);
  else if (overdue && lock_try(&owner->lock)) {
    inbox_drain(owner, NULL, 0, NULL, DRAINED_BY_SENDER_MAX);
    lock_give(&owner->lock);
  }
}

static void envelope_close(struct outbox *outbox, struct envelope **place, bool early) {
  struct envelope *envelope = *place;
  *place = NULL;
  outbox->last = NULL;
  outbox->sent_since_sweep++;
  add_as_owner(&outbox->open_bytes, -envelope->bytes);
  add_as_owner(&outbox->envelopes_sent, 1);
  add_as_owner(&outbox->remote_frees, envelope->count);
  envelope_send(envelope, early);
}

void outbox_send_all(struct heap *heap) {
  struct outbox *outbox = &heap->outbox;
  for (uint32_t i = 0; outbox->open && i < OUTBOX_PLACES; i++)
    if (outbox->open[i])
      envelope_close(outbox, &outbox->open[i], false);
  outbox->sent_since_sweep = 0;
  store_relaxed(&outbox->open_bytes, 0); /* an owner that ended in outbox_put_ready may have counted a block too much */
}

COLD void outbox_drop_all(struct heap *heap) {
  struct outbox *outbox = &heap->outbox;
  for (uint32_t i = 0; outbox->open && i < OUTBOX_PLACES; i++)
    outbox->open[i] = NULL;
  outbox->last = NULL;
  store_relaxed(&outbox->open_bytes, 0);
}

static bool sweep_is_due(const struct outbox *outbox) { return outbox->sent_since_sweep > SENDS_PER_SWEEP; }

/* Returns the place for an owner, with an open envelope in it; NULL when memory is out. */
static NOINLINE struct envelope **outbox_open(struct heap *heap, uint32_t owner) {
  struct outbox *outbox = &heap->outbox;
  if (outbox->open == NULL && (outbox->open = metadata_take_forever(OUTBOX_PLACES * sizeof *outbox->open)) == NULL)
    return NULL;
  if (sweep_is_due(outbox))
    outbox_send_all(heap);
  struct envelope **place = outbox_place(outbox, owner);
  if (*place != NULL)
    envelope_close(outbox, place, true);
  outbox->bytes_max = pool_is_crowded(heap_pool(heap)) ? CROWD_BYTES_MAX : OUTBOX_BYTES_MAX;
  *place = envelope_take(heap, owner);
  return *place ? place : NULL;
}

void inbox_unlock(struct pool *pool) {
  lock_give(&pool->lock);
  if (UNLIKELY(!has_heaps(pool)))
    inbox_serve(pool);
}

/* Frees a block straight into its slab. False: the owner's lock is taken; waits: for good. */
static bool give_to_slab(void *block, uint32_t entry, bool waits) {
  struct pool *owner = pool_by_id(entry_pool_id(entry));
  if (waits ? pool_is_stuck(owner) || !pool_lock(owner) : !lock_try(&owner->lock))
    return false;
  slab_set_give(&owner->slabs, entry_class(entry), &block, 1);
  owner->counters.frees_by_hand++;
  inbox_unlock(owner);
  return true;
}

COLD void block_deliver(void *block, uint32_t entry) { give_to_slab(block, entry, true); }

/* Returns false if memory is out. It waits for no pool's lock. */
static bool outbox_try(struct heap *heap, void *block, uint32_t entry, bool *is_sent) {
  struct outbox *outbox = &heap->outbox;
  uint32_t owner = entry_pool_id(entry);
  struct envelope **place = outbox->open ? outbox_place(outbox, owner) : NULL;
  struct envelope *envelope = place ? *place : NULL;
  if (envelope != NULL && is_void(envelope)) {
    add_as_owner(&outbox->open_bytes, -envelope->bytes);
    envelope_begin(envelope, heap, envelope->owner);
  }
  if (envelope == NULL || envelope->owner != owner) {
    /* With more owners than places, envelopes would be sent nearly empty. From time to time all places are emptied. */
    bool has_many = envelope != NULL && !sweep_is_due(outbox);
    if (has_many && give_to_slab(block, entry, false)) {
      outbox->sent_since_sweep++;
      return true;
    }
    place = outbox_open(heap, owner);
    if (place == NULL)
      return false;
    envelope = *place;
  }
  size_t bytes = class_bytes(entry_class(entry));
  outbox->last = envelope;
  envelope->blocks[envelope->count++] = block;
  envelope->bytes += bytes;
  add_as_owner(&outbox->open_bytes, bytes);
  if (envelope->count < ENVELOPE_SLOTS && envelope->bytes < ENVELOPE_BYTES_MAX &&
      load_relaxed(&outbox->open_bytes) < outbox->bytes_max)
    return true;
  envelope_close(outbox, place, false);
  *is_sent = true;
  return true;
}

bool outbox_put(struct heap *heap, void *block, uint32_t entry) {
  bool is_sent = false;
  if (UNLIKELY(!outbox_try(heap, block, entry, &is_sent))) {
    block_deliver(block, entry);
    return true;
  }
  return is_sent;
}

bool outbox_put_locked(struct heap *heap, void *block, uint32_t entry) {
  bool is_sent;
  return LIKELY(outbox_try(heap, block, entry, &is_sent)) || give_to_slab(block, entry, false);
}

COLD void outbox_count_each(struct heap *heap) {
  const struct outbox *outbox = &heap->outbox;
  for (uint32_t i = 0; outbox->open && i < OUTBOX_PLACES; i++)
    if (outbox->open[i])
      outbox->open[i]->direct_max = 0;
}

/* Returns the next received envelope, NULL if there is none. Takes the inbox once: what comes meanwhile may wait. */
static struct envelope *received_next(struct pool *pool, bool *is_taken) {
  struct envelope *envelope = load_relaxed(&pool->received);
  if (envelope == NULL && !*is_taken) {
    envelope = atomic_exchange_explicit(&pool->inbox, NULL, memory_order_seq_cst);
    *is_taken = true;
  }
  if (envelope != NULL)
    store_relaxed(&pool->received, envelope->next);
  return envelope;
}

void inbox_drain(struct pool *pool, struct heap *heap, unsigned wanted_cls, envelope_put *put, uint32_t most) {
  struct envelope *first = NULL, *last = NULL, *envelope;
  size_t bytes = 0, blocks = 0;
  uint32_t envelopes = 0;
  bool is_enough = false, is_taken = false;
  while (!is_enough && envelopes < most && (envelope = received_next(pool, &is_taken)) != NULL) {
    bytes += envelope->bytes;
    blocks += envelope->count;
    envelopes++;
    envelope->next = first;
    first = envelope;
    last = last != NULL ? last : envelope;
    if (is_void(envelope))
      continue;
    if (put)
      is_enough = put(heap, wanted_cls, envelope->blocks, envelope->count);
    else
      slab_set_give_mixed(&pool->slabs, envelope->blocks, envelope->count);
  }
  if (first == NULL)
    return;
  pool->counters.inbox_drains++;
  pool->counters.inbox_blocks += blocks;
  atomic_fetch_sub_explicit(&pool->inbox_bytes, bytes, memory_order_relaxed);
  atomic_fetch_sub_explicit(&pool->inbox_envelopes, envelopes, memory_order_relaxed);
  envelopes_keep(pool, first, last, envelopes);
}
