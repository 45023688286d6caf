/* pool.h: a pool, the slabs that the threads attached to it allocate from.
 *
 *   slabs     touched by any holder of the lock
 *   inbox     envelopes (batches of remote frees) from threads of other pools: pushed without a lock, drained under the
 *             lock
 *
 * A process has about one pool for each CPU that it may use, so the memory in partly filled slabs does not depend on
 * the number of threads (docs/decisions/0030). A starting thread attaches to the pool of its NUMA node with the fewest
 * heaps. The first thread is alone in the first pool until others outnumber the pools.
 *   P1  a page-map entry names the pool that owns the slab. Pools are never freed, so a pool's id stays valid
 *   P2  only a holder of the lock reads or writes slabs and takes envelopes out
 *   P3  a thread that holds one pool's lock may try another pool's lock, but does not wait for it
 *   P4  `heaps` is the number of attached heaps. While it is 0, a thread that pushes an envelope drains the inbox
 *       (tests/model/park.pml)
 */
#pragma once

#include "base/counters.h"
#include "base/words.h"
#include "os/lock.h"
#include "os/nodes.h"
#include "pages/page_map.h"
#include "slab/slab.h"

struct envelope;
struct heap;

#define POOL_COUNTERS(DO) DO(inbox_drains) DO(inbox_blocks) DO(frees_by_hand)
struct pool_counters {
  POOL_COUNTERS(COUNTER_FIELD)
};

struct pool {
  struct slab_set slabs;
  _Alignas(CACHE_LINE) struct lock lock;
  uint32_t id;                           /* const */
  bool is_shared;                        /* const: no heap is ever attached; the slabs are used under the lock */
  uint8_t node;                          /* const: of the threads that attach to it (os/nodes.h) */
  _Atomic bool holes_are_due;            /* slow paths are to go on with a walk over holes */
  uint64_t holes_ms;                     /* when the last walk over the holes began */
  uint8_t packed_first[HAK_CLASS_COUNT]; /* requests packed while the class had no slab; 0 in private pools */
  bool is_purging;                       /* holes of its slabs are being purged */
  struct pool_counters counters;
  _Atomic(struct envelope *) received; /* taken out of the inbox, not drained yet; changes under the lock */
  /* Of a private pool (threads/private.h), under the lock: */
  struct heap *attached; /* V3 */
  struct large *objects; /* V5; their bytes are slabs.other_bytes */
  size_t object_count;

  _Alignas(CACHE_LINE) _Atomic(struct envelope *) inbox;
  _Atomic size_t inbox_bytes; /* of the blocks in it */
  _Atomic uint32_t inbox_envelopes;
  _Atomic uint32_t heaps;
  _Atomic bool is_stuck; /* a thread waited for the lock in vain */
  /* Which life this is of a private pool, from 1 on; it changes under the lock. 0 in other pools. */
  _Atomic uint64_t life;
  struct pool *next_unused; /* private pools that were given back, under the table's lock */

  struct {
    _Alignas(CACHE_LINE) struct lock lock;
    _Atomic uint32_t count; /* changes under the lock */
    struct envelope *first;
  } emptied; /* envelopes for the next senders */
};

/* All pools, by their ids, which are 1 .. pool_count, and from PRIVATE_FIRST on for private pools. Reading takes no
 * lock. */
#define POOLS_MAX 1024u
#define SHARED_MAX 16u /* more without threads */
#define PRIVATE_FIRST (POOLS_MAX + SHARED_MAX + 1)
#define PRIVATE_MAX 16384u
uint32_t pool_count(void);
struct pool *pool_by_id(uint32_t id);
/* Returns the pool behind this one, or the first behind NULL; NULL behind the last. */
struct pool *pool_next(const struct pool *pool);

static inline bool pool_is_private(const struct pool *pool) { return UNLIKELY(pool->id >= PRIVATE_FIRST); }
static inline uint64_t pool_life(const struct pool *pool) { return load_relaxed(&pool->life); }

/* Returns the pool of the thread's node with the fewest heaps, maybe a new one, and counts one more there. Any pool if
 * there is no memory for one. NULL when memory is out. */
struct pool *pool_attach(void);
/* The same for a heap that leaves its pool, of up to PARTS times as many pools. NULL if there is none, or if the option
 * `pools` says how many there are. */
#define PARTS 2u
struct pool *pool_attach_apart(const struct pool *left);
/* Tells whether threads that run where the calling thread does attach to such a pool. */
bool pool_is_far_away(const struct pool *pool);
static ALWAYS_INLINE bool pool_is_far(const struct pool *pool) { return os_has_nodes() && pool_is_far_away(pool); }
/* Inherited pools (threads/inherited.h): pool_attach takes one only if there is no memory for another.
 * pools_inherit(true): all pools of this moment are; false: none is. pools_inherited_freed: more than 1/share of what
 * they had given out at that moment came back. pools_generation: how often pools were inherited. */
void pools_inherit(bool are_inherited);
uint32_t pools_generation(void);
bool pool_is_inherited(const struct pool *pool);
bool pools_inherited_freed(unsigned share);
/* Counts one heap less. Returns true if that was the last one: then the caller must serve the inbox
 * (heap/envelope.h). */
bool pool_detach(struct pool *pool);
/* The pool's lock is held, or this is the only thread. */
void pool_set_heaps(struct pool *pool, uint32_t count);
/* Takes the pool's lock. False after a second of waiting, or less if it was waited for in vain before. The lock's
 * holder may have ended, or left a slow path by longjmp, and will never give the lock then. So malloc and free, what
 * they call for other threads, and observers lock pools this way. */
bool pool_wait(struct pool *pool);
static ALWAYS_INLINE bool pool_lock(struct pool *pool) { return LIKELY(lock_try(&pool->lock)) || pool_wait(pool); }
static inline void pool_unlock(struct pool *pool) { lock_give(&pool->lock); }
/* pool_list: adds a heap to the list of its private pool. pool_unlist: takes it out. Returns true if it was the last
 * one; false, too, if it was not in the list, because the pool's life is over. The pool's lock is held. */
void pool_list(struct pool *pool, struct heap *heap);
bool pool_unlist(struct pool *pool, struct heap *heap);
#define STUCK_MS 1000u /* what another thread holds for this long it may hold for good: it may have ended */
/* Tells whether the pool's lock was waited for in vain, and is still held. */
bool pool_is_stuck(struct pool *pool);
/* In a pool with more heaps than this, each heap keeps less. */
#define HEAPS_OF_CROWD 16u
static inline uint32_t pool_heaps(const struct pool *pool) { return load_relaxed(&pool->heaps); }
static inline bool pool_is_crowded(const struct pool *pool) { return pool_heaps(pool) > HEAPS_OF_CROWD; }
/* Returns the attached heaps of all pools. Takes no lock, and no walk over the pools. */
size_t pools_heaps(void);
/* Call in the child of a fork: one heap is left, in this ordinary pool, or none if it is NULL. */
void pools_in_child(struct pool *left);

/* Makes a pool without threads. NULL when memory is out. */
struct pool *pool_make_shared(void);
/* Makes a private pool, or takes one that was given back. It has no slab, and no other thread uses it. NULL when
 * memory is out. */
struct pool *pool_take_private(void);
void pool_give_private(struct pool *pool);
/* Returns the private pool with this id, NULL if there is none. */
struct pool *pool_private_by_id(uint32_t id);
/* The id of the pool of samples, set by its maker; 0: there is none. */
extern HAK_HIDDEN _Atomic uint32_t pool_shared_id;
static inline bool entry_is_shared(uint32_t entry) {
  uint32_t id = load_relaxed(&pool_shared_id);
  return id != 0 && entry_pool_id(entry) == id;
}

/* Returns the bytes of blocks that slabs have given out, those in bins included. Takes no lock. */
size_t pools_live_bytes(void);
