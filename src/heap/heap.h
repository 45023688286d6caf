/* heap.h: a heap, the state that one thread allocates from.
 *
 *   front     bins (thread caches): touched by the owning thread only, without a lock (hakmem/inline.h)
 *   bin_state arrays behind the bins: written by the owner under the lock, read under the lock
 *     slabs     touched by any holder of the lock
 *   inbox     envelopes (batches of remote frees) from other threads: pushed without a lock, drained under the lock
 *   outbox    envelopes being filled for other heaps: touched by the owner only
 *
 * The owner is the thread that holds the lifeline. Nothing runs at thread exit, so a heap outlives its owner. A thread
 * that takes the lifeline of a dead thread's heap owns the heap with its bins. A starting thread adopts it. Any other
 * thread sweeps it (bins to slabs, envelopes sent) and drops the lifeline again.
 *   H1  a block is in exactly one place: the program, one bin, one envelope, one bitmap
 *   H2  only the owner reads or writes bins and outbox (statistics read tops, the child of a fork
 *       drops both); only a holder of the lock reads or writes slabs and takes envelopes out
 *     H3  the owner's slow path takes the lock once; a holder of one heap's lock only tries another heap's
 *   H4  heaps are never freed, so a heap id stays valid
 * heap_is_valid checks the bins' part of H1, the bins' budget and the slabs.
 */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "base/observers.h"
#include "base/words.h"
#include "heap/split.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/page_map.h"
#include "policy/bin_policy.h"
#include "slab/slab.h"

struct envelope;

struct bin_state {
  void **base;    /* first slot; NULL until the class is used */
  uint32_t slots; /* power of two; one of them is the NULL before the first block */
  uint32_t slots_initial;
  uint32_t low, high; /* fewest and most blocks seen since the last decision to shrink */
  uint32_t streak;    /* refills since the last flush */
};

struct heap_counters {
  uint64_t refills, refilled_blocks;
  uint64_t flushes, flushed_blocks;
  uint64_t bin_growths, bin_shrinks;
  uint64_t refills_from_inbox, calls_filled, bin_overflows;
  uint64_t inbox_drains, inbox_blocks, blocks_by_hand;
};

/* Open envelopes by owner id. The table doubles when two owners collide in a place. The bytes of blocks in all of them
 * together are bounded, because only this thread can send them. */
#define OUTBOX_PLACES_MIN 8u
#define OUTBOX_PLACES_MAX 128u

struct outbox {
  struct envelope **open; /* NULL until the first remote free */
  uint32_t places;        /* power of two */
  uint32_t sent_since_sweep;
  /* The owner writes these, any thread may read them: */
  _Atomic size_t open_bytes; /* of the blocks in open envelopes */
  _Atomic uint64_t envelopes_sent, remote_frees;
};

#define HEAP_STACK_NOTES 4u

struct heap {
  struct hak_front front;
  struct bin_state bin_state[HAK_CLASS_COUNT];
  struct slab_set slabs; /* a parked heap without slabs has no information up to here, except keys and counters */
  struct outbox outbox;

  _Alignas(CACHE_LINE) struct lock lock;
  _Atomic uint32_t inside;  /* the owner is in a slow path (heap/slow_path.h) */
  uint32_t id;              /* const */
  uintptr_t callback_frame; /* owner only: stack address of the running limit callback; 0: none runs */
  uint32_t slow_calls, ticks;
  uint32_t holes_class;                  /* owner only: class for the next step of purging holes; 0: none is due */
  uint64_t holes_ms;                     /* owner only: when the last walk over the holes began */
  size_t granted_bytes;                  /* of bins, beyond their initial slots */
  uint8_t packed_first[HAK_CLASS_COUNT]; /* owner only: requests that were packed while the class had no slab */
  uint32_t split;                        /* HAK_SPLIT or 0 (heap/split.h) */
  uint32_t split_seen;                   /* of split_wanted */
  struct tally *tally;                   /* NULL until the heap is split for the first time */
  struct heap_counters counters;
  struct lifeline lifeline;
  _Atomic bool
      is_resting; /* written by the holder of the lifeline: the pages of bins and slabs may have been given back */
  uintptr_t stack_notes[HEAP_STACK_NOTES]; /* owner only: an observer's notes about the owner's stack; zeros: none */
  bool is_shared;                          /* const: no thread owns the heap, or ever will */

  _Alignas(CACHE_LINE) _Atomic(struct envelope *) inbox;
  _Atomic size_t inbox_bytes; /* of the blocks in it */
  _Atomic uint32_t inbox_envelopes;
  _Atomic bool parked;       /* swept, and without an owner */
  _Atomic int thread_id;     /* of the last owner, for the option `live`; 0: not known */
  _Atomic bool lost;         /* its owner stays inside a slow path for good */
  _Atomic bool flush_wanted; /* a trim asks the owner to empty its bins at its next slow path */
};

/* Sets the key. split: HAK_SPLIT or 0. The lock is held; the owner may read the key at the same time. */
static inline void heap_set_key(struct heap *heap, uint32_t split) {
  __atomic_store_n(&heap->front.key, heap->slabs.key ^ split << HAK_ENTRY_CLASS_SHIFT, __ATOMIC_RELAXED);
}

/* The owner's slow paths call it before they access a bin. The lock is held. */
static inline void heap_follow_tally(struct heap *heap) {
  if (UNLIKELY(heap->split_seen != atomic_load_explicit(&split_wanted, memory_order_relaxed)))
    observers.heap_follow(heap);
}

/* The heap of threads without a heap: its bins are empty, and no entry matches its key. */
extern const struct hak_front hak_heap_none;

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

/* registry.c */

/* Gives the calling thread a heap: that of a dead thread, or a new one. NULL when memory is out. */
struct heap *heap_attach(void);
/* Makes a heap that no thread will own: its slabs are used under its lock, its bins not at all. NULL when memory is
 * out. */
struct heap *heap_make_shared(void);
/* The id of the shared heap in use, set by its maker; 0: there is none. */
extern _Atomic uint32_t heap_shared_id;
static inline bool entry_is_shared(uint32_t entry) {
  uint32_t id = atomic_load_explicit(&heap_shared_id, memory_order_relaxed);
  return id != 0 && entry_heap_id(entry) == id;
}
/* Notes the calling thread's id in its heap, for the option `live`. */
void heap_note_thread(struct heap *heap);
/* Sweeps up to `heaps_max` heaps of dead threads, from where the last call stopped. */
void heaps_sweep(uint32_t heaps_max);
/* Sweeps all of them; if thoroughly, also those whose lifelines the kernel did not mark. True if there was one. */
bool heaps_sweep_all(bool thoroughly);
/* Gives back the pages of heaps without an owner and without slabs. Returns the bytes. */
size_t heaps_rest(void);
/* Counters: heaps of dead threads that were adopted and swept. */
struct heaps_counters {
  uint64_t adopted, swept;
};
void heaps_counters(struct heaps_counters *out);
/* Returns the bytes of blocks that slabs have given out, those in bins included. Takes no lock. */
size_t heaps_live_bytes(void);
/* Asks the owners of all heaps but `self` (or NULL) to empty their bins at their next slow path. A sleeping thread
 * keeps its bins: another thread cannot empty them, because the owner may be in the middle of a malloc. */
void heaps_ask_to_flush(const struct heap *self);
/* Empties bins and outbox into slabs and inboxes, and gives their arrays back. The caller owns the heap and does not
 * hold its lock. */
void heap_flush_all(struct heap *heap);

/* Call before a fork, and after it in the parent, while the gate is shut (heap/slow_path.h). */
void heaps_before_fork(void);
void heaps_in_parent(void);
/* Call in the child of a fork. Memory that other threads change outside slow paths was copied page by page while they
 * ran. So their bins and outboxes may be inconsistent, and are dropped. */
void heaps_in_child(void);

/* bins.c: called by the owner, lock held */

/* Fills the bin of a class from inbox or slabs and pops a block. NULL when memory is out. */
void *bin_refill(struct heap *heap, unsigned cls);
/* Refills the empty hand of a split heap, if that is quick: the bin has enough blocks, and none is a sample. Otherwise
 * NULL. */
void *sample_refill(struct heap *heap, unsigned cls);
/* Pushes a block into a full bin. Makes room first: grows the bin, or gives its older half to the slabs. */
void bin_overflow(struct heap *heap, unsigned cls, void *block);
/* Pushes into a bin or, if it is full, puts into the slab. */
void bin_put(struct heap *heap, unsigned cls, void *block);
/* Half fills the bins of the tiny classes that were not used yet; takes the lock itself. */
void bins_prewarm(struct heap *heap);
/* Call from time to time: idle bins give blocks back and shrink. */
void bins_tick(struct heap *heap);
/* Returns all blocks of the bins to the slabs, and gives the arrays back. */
void bins_flush_all(struct heap *heap);
/* Gives the heap hands, or takes what is in them back into the bins (heap/split.h); any memory that takes is there. */
void bins_split(struct heap *heap, bool is_split);
/* Returns the counts of a class in this heap. */
struct class_counts bin_counts(const struct heap *heap, unsigned cls);
/* Drops the blocks of the bins without returning them. */
void bins_drop_all(struct heap *heap);
/* Returns what is ready in the bins. Any holder of the lock may call it, while the owner may pop. */
struct bins_content {
  size_t blocks, bytes;
};
struct bins_content bins_content(const struct heap *heap);
size_t bin_blocks(const struct heap *heap, unsigned cls);

/* envelope.c */

/* Puts another heap's block, freed by the owner of `heap`, into the open envelope for its owner. False, and no effect,
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
/* Moves received blocks to where `put` puts them. The lock is held; into the slabs, any holder of it may. */
void inbox_drain(struct heap *heap, void (*put)(struct heap *heap, unsigned cls, void *block));
void inbox_drain_to_slabs(struct heap *heap);
/* Drains the inbox until nothing is left or another thread holds the lock. It checks again after giving the lock. So of
 * several threads that push to a heap without an owner, the last holder of the lock leaves nothing behind
 * (tests/model/park.pml). */
void inbox_serve(struct heap *heap);
static inline bool inbox_has_mail(struct heap *heap) {
  return atomic_load_explicit(&heap->inbox, memory_order_relaxed) != NULL;
}
/* Gives unused envelopes back to the metadata. */
void envelopes_trim(void);

#ifdef HAK_DEBUG
bool heap_is_valid(struct heap *heap);
#endif

#endif
