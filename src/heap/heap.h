/* heap.h: a heap, the state of one thread: a cache of ready blocks in front of a pool (heap/pool.h).
 *
 *   front     bins (thread caches): touched by the owning thread only, without a lock (hakmem/inline.h)
 *   bin_state arrays behind the bins: written by the owner under the pool's lock, read under that lock
 *   outbox    envelopes being filled for other pools: touched by the owner only
 *
 * The owner is the thread that holds the lifeline (os/os.h). Nothing runs at thread exit, so a heap outlives its owner.
 * A thread that takes the lifeline of a dead thread's heap adopts the heap, or sweeps it: empties it, detaches it from
 * its pool and drops the lifeline again (docs/decisions/0023).
 *   H1  a block is in exactly one place: the program, one bin, one envelope, one bitmap
 *   H2  only the owner reads or writes bins and outbox (statistics read tops; the child of a fork drops both, and the
 *       end of a hak_heap drops the bins)
 *   H3  the blocks in a heap's bins are of its pool or, in an ordinary heap, of pools of the same kind. They leave the
 *       bins into the slabs of its pool, or into envelopes. The pool changes only while the bins are empty, under the
 *       lock of the pool that the heap leaves
 *   H4  for a refill or an overflow the owner takes the pool's lock once. Periodic work may take it again
 *   H5  heaps are never freed, so a heap id stays valid
 * A thread has one ordinary heap, its home, and one more for each private pool that it uses (threads/private.h).
 * heap_is_valid checks the bins' part of H1, the bins' budget and the pool's slabs.
 */
#pragma once

#include "base/counters.h"
#include "base/observers.h"
#include "base/words.h"
#include "heap/pool.h"
#include "heap/split.h"
#include "os/os.h"

struct checked_cache;
struct stash;

struct bin_state {
  void **base;            /* first slot; NULL until the class is used */
  uint32_t slots;         /* power of two; one of them is the NULL before the first block */
  uint32_t slots_initial; /* the array has at least these; a bin with fewer is young */
  uint32_t low, high;     /* fewest and most blocks seen since the last decision to shrink. low starts again when the
                             bin was trimmed because the slabs grew or fell */
  int32_t streak;         /* refills since the last overflow, or as a negative number flushes since the last refill;
                             young bins do not count */
  bool is_taken_from;     /* there was a refill since the last decision to shrink */
  uint8_t looks;          /* how often the young bin was found empty or full, or gave a first block, modulo 256 */
  uint8_t turns;          /* how often it was full after refills since it followed the slabs, up to STEADY_TURNS */
};

/* How far the periodic work on the bins has come (heap/bins.c). */
struct bins_work {
  uint64_t filled[CLASS_WORDS]; /* classes whose bin may have blocks: a slow call of the class came since it was found
                                   empty, or a look found some */
  uint32_t looks;               /* bins looked at so far; the next one is this number modulo their number */
  uint32_t look_left;           /* blocks that the bin is to give back before the next look */
  uint32_t follow_left;         /* likewise, of the bin that follows the slabs now */
  uint8_t follows;              /* class of that bin; 0: none follows */
  uint8_t reason;               /* why it follows: enum bins_follow */
};

/* clang-format off */
#define HEAP_COUNTERS(DO) \
  DO(refills) DO(refilled_blocks) DO(refills_from_inbox) DO(slow_calls_filled) \
  DO(flushes) DO(flushed_blocks) DO(bin_overflows) DO(bin_growths) DO(bin_shrinks)
/* clang-format on */
struct heap_counters {
  HEAP_COUNTERS(COUNTER_FIELD)
};

/* Open envelopes by pool id. The bytes of blocks in all of them together are bounded, because only this thread can send
 * them. */
#define OUTBOX_PLACES 128u /* a power of two */

struct outbox {
  struct envelope **open; /* OUTBOX_PLACES; NULL until the first remote free */
  struct envelope *last;  /* an open one, the last that was filled; NULL: none is known */
  uint32_t sent_since_sweep;
  size_t bytes_max; /* bound on open_bytes */
  /* The owner writes these, any thread may read them: */
  _Atomic size_t open_bytes; /* of the blocks in open envelopes */
  _Atomic uint64_t envelopes_sent, remote_frees;
};

/* What tells whether the heap's thread works as a queue (heap/queue.h). */
struct queue {
  size_t bytes;     /* most that were outside the pool's slabs since the set was dropped last */
  uint8_t in_order; /* score: 1 more for each full bin in the order of addresses, 1 less for each other one */
  uint8_t needed;   /* the score at which the heap becomes a queue; 0: NEEDED_FIRST */
};

_Static_assert(CACHE_LINE == 2 * sizeof(struct bin_state), "a line holds two states");

#define OVERFLOWS_OF_REFILL 8 /* that a refill makes up for (overflow_balance) */
#define HEAP_STACK_NOTES 4u
#define SLOW_CALLS_PERIOD 16u /* what is not urgent is asked for once in so many slow calls of a heap */

struct heap {
  struct hak_front front;
  _Alignas(CACHE_LINE / 2) struct bin_state bin_state[HAK_CLASS_COUNT]; /* so none straddles two lines */
  /* In a parked heap nothing up to here means anything, except the key. */
  struct outbox outbox;

  _Alignas(CACHE_LINE) _Atomic uint32_t inside; /* the owner is in a slow path (heap/slow_path.h) */
  uint32_t id;                                  /* const */
  _Atomic(struct pool *) pool;                  /* H3 */
  uintptr_t callback_frame; /* of a home, owner only: stack address of the running limit callback; 0: none runs */
  uint32_t slow_calls;
  uint32_t ticks;           /* since the last look at the bins (bins_tick) */
  uint32_t inherited_calls; /* slow calls until inherited_step does something; 0: never (threads/inherited.h) */
  uint8_t looks_away;       /* in a row at a thread on another node (heap_follow_node) */
  uint8_t moves;            /* to the pools of other nodes, up to a bound */
  int64_t overflow_balance; /* overflows less OVERFLOWS_OF_REFILL times the refills (heap_leave_contended) */
  size_t granted_bytes;     /* of bins, beyond their initial slots */
  size_t slab_bytes_seen;   /* of the pool, when its slabs had grown or fallen so far that the bins followed */
  size_t slab_free_seen;    /* bytes free in slabs when bins_after_large looked in vain, or less since; else 0 */
  struct bins_work bins_work;
  uint32_t split_seen; /* of split_wanted */
  bool is_queue;       /* it is split to keep the order of blocks, not to count */
  struct queue queue;
  struct tally *tally;                     /* NULL until the heap is split to count for the first time */
  _Atomic(struct checked_cache *) checked; /* NULL without the option `checked`, and until the first block */
  struct stash *stash; /* large/stash.h; owner only; NULL until the thread asks for one length again and again */
  struct heap_counters counters;
  struct lifeline lifeline;
  uintptr_t stack_notes[HEAP_STACK_NOTES]; /* owner only: an observer's notes about the owner's stack; zeros: none */

  /* threads/private.h. The owner writes these, `life` under the pool's lock; next_attached belongs to the pool. */
  _Atomic uint64_t life; /* of the private pool when the heap was attached to it; 0: an ordinary heap */
  struct heap *home;     /* of a heap for a private pool */
  struct heap *privates; /* of a home: the thread's heaps for private pools, by next_private */
  struct heap *next_private, *previous_private;
  struct heap *next_attached;
  struct heap *entered;    /* the heap by which the thread entered the slow path that uses this one */
  _Atomic bool is_default; /* malloc uses it */

  _Atomic bool is_resting;   /* written by the holder of the lifeline: the pages of the bins may have been given back */
  _Atomic int thread_id;     /* of the last owner, for the option `live`; 0: not known */
  _Atomic bool lost;         /* its owner stays inside a slow path for good */
  _Atomic bool flush_wanted; /* a trim asks the owner to empty its bins at its next slow path */
};

/* Tells whether the heap is split to count. */
static inline bool heap_is_counted(const struct heap *heap) { return heap->front.split != 0 && !heap->is_queue; }
static inline uint64_t heap_life(const struct heap *heap) { return load_relaxed(&heap->life); }
/* A heap may move to a pool that was made just now, which other threads then see first by this heap. */
static inline struct pool *heap_pool(const struct heap *heap) {
  return atomic_load_explicit(&heap->pool, memory_order_acquire);
}
/* Returns the stash of an ordinary heap; NULL from any other and from NULL, and while an observer watches. */
static ALWAYS_INLINE struct stash *heap_stash(const struct heap *heap, const _Atomic bool *is_watched) {
  bool has_stash = LIKELY(heap != NULL) && LIKELY(heap_life(heap) == 0) && LIKELY(!load_relaxed(is_watched));
  return has_stash ? heap->stash : NULL;
}
static inline void heap_set_pool(struct heap *heap, struct pool *pool) {
  atomic_store_explicit(&heap->pool, pool, memory_order_release);
}
/* Tells whether the life of the heap's private pool is over (threads/private.h, V2). */
static inline bool heap_is_over(const struct heap *heap) { return heap_life(heap) != pool_life(heap_pool(heap)); }

#define KEY_OF_NONE ((uint32_t)KIND_NONE << HAK_ENTRY_KIND_SHIFT)
/* Returns the key of the heaps of a pool (hakmem/inline.h, F4). */
static inline uint32_t pool_front_key(const struct pool *pool) {
  return pool_is_private(pool) ? pool->slabs.key : (uint16_t)pool->slabs.key;
}
static inline bool front_is_private(const struct hak_front *front) { return HAK_KEY(front) >> HAK_ENTRY_ID_SHIFT != 0; }
/* Tells whether the bins of a heap take the blocks with this entry. */
static inline bool front_takes(const struct hak_front *front, uint32_t entry) {
  return entry_is_of(front_is_private(front) ? entry : (uint16_t)entry, HAK_KEY(front));
}

/* Sets the key. split: HAK_SPLIT or 0. The pool's lock is held; the owner may read the key at the same time. */
static inline void heap_set_key(struct heap *heap, uint32_t split) {
  uint32_t key = pool_front_key(heap_pool(heap)) ^ split << HAK_ENTRY_CLASS_SHIFT;
  __atomic_store_n(&heap->front.key, UNLIKELY(heap_is_over(heap)) ? KEY_OF_NONE : key, __ATOMIC_RELAXED);
}

/* The owner's slow paths call it before they access a bin. The pool's lock is held. */
static ALWAYS_INLINE void heap_follow_tally(struct heap *heap) {
  if (UNLIKELY(heap->split_seen != load_relaxed(&split_wanted)))
    observers.heap_follow(heap);
}

/* The heap of threads without a heap: its bins are empty, and no entry matches its key. */
extern HAK_HIDDEN const struct hak_front hak_heap_none;
#define FRONT_OF_NONE ((struct hak_front *)(uintptr_t)&hak_heap_none) /* as hak_self takes it; nothing writes there */

/* The calling thread's heap, NULL if it has none yet; the low bits are flags (heap/slow_path.h). */
#define THREAD_BUSY 1u         /* it is in a slow path, or in a step that a handler must not repeat */
#define THREAD_WITHOUT_HEAP 2u /* it had none when it entered the slow path */
#define THREAD_FORKS 4u
#define THREAD_FORKS_ALONE 8u /* and no other thread was in a slow path when it shut the gate */
#define THREAD_IN_FORK 16u    /* the program called fork, which has not returned yet */
#define THREAD_FLAGS 31u
_Static_assert(THREAD_FLAGS < CACHE_LINE, "heaps are aligned to cache lines, so the flags fit below the address");
extern HAK_HIDDEN __thread uintptr_t hak_thread HAK_TLS_MODEL;

static inline struct heap *heap_current(void) { return (struct heap *)(hak_thread & ~(uintptr_t)THREAD_FLAGS); }
/* The heap becomes the calling thread's present one. */
static inline void thread_become(struct heap *heap) { hak_thread = (uintptr_t)heap | (hak_thread & THREAD_FLAGS); }
