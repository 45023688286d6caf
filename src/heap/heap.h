/* heap.h: what one thread allocates from.
 *
 *   front     bins: touched by the owning thread only, without a lock (hakmem/inline.h)
 *   bin_state arrays behind the bins: written by the owner under the lock, read under the lock
 *   slabs     under the lock, by anybody who holds it
 *   inbox     envelopes from other threads: pushed without a lock, drained under the lock
 *   outbox    envelopes being filled for other heaps: touched by the owner only
 *
 * The owner is the thread that holds the lifeline. A heap outlives its owner: nothing runs at thread
 * exit. Whoever takes the lifeline of a dead thread's heap owns it, bins and all: a starting thread
 * adopts it; a passer-by sweeps it (bins to slabs, envelopes sent) and drops the lifeline again.
 *   H1  a block is in exactly one place: the program, one bin, one envelope, one bitmap
 *   H2  only the owner reads or writes bins and outbox (statistics read tops, the child of a fork
 *       drops both); only a holder of the lock reads or writes slabs and takes envelopes out
 *   H3  the owner's slow path takes the lock once; a holder of one heap's lock only tries another's
 *   H4  heaps are never freed, so a heap id stays valid for ever
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

/* Open envelopes, by owner id; the table doubles when two owners meet in a place. The blocks in all of
 * them together stay under a bound, as only this thread can send them. */
#define OUTBOX_PLACES_MIN 8u
#define OUTBOX_PLACES_MAX 128u

struct outbox {
  struct envelope **open; /* NULL until the first remote free */
  uint32_t places;        /* power of two */
  uint32_t sent_since_sweep;
  /* Written by the owner, read by anybody: */
  _Atomic size_t open_bytes; /* of the blocks in open envelopes */
  _Atomic uint64_t envelopes_sent, remote_frees;
};

#define HEAP_STACK_NOTES 4u

struct heap {
  struct hak_front front;
  struct bin_state bin_state[HAK_CLASS_COUNT];
  struct slab_set slabs; /* up to here nothing is stored in a parked heap without slabs, but the keys and counters */
  struct outbox outbox;

  _Alignas(CACHE_LINE) struct lock lock;
  _Atomic uint32_t inside;  /* the owner is in a slow path (heap/slow_path.h) */
  uint32_t id;              /* const */
  uintptr_t callback_frame; /* owner only: where the stack was when the limit's callback was called, 0: it is not */
  uint32_t slow_calls, ticks;
  uint32_t holes_class;                  /* owner only: where the next step of purging holes goes on, 0: none is due; */
  uint64_t holes_ms;                     /* when the last walk over the holes began */
  size_t granted_bytes;                  /* of bins, beyond their initial slots */
  uint8_t packed_first[HAK_CLASS_COUNT]; /* owner only: requests that were packed while the class had no slab */
  uint32_t split;                        /* HAK_SPLIT or 0 (heap/split.h) */
  uint32_t split_seen;                   /* of split_wanted */
  struct tally *tally;                   /* NULL until the heap is split for the first time */
  struct heap_counters counters;
  struct lifeline lifeline;
  _Atomic bool is_resting; /* written by the holder of the lifeline: the pages of bins and slabs may be gone */
  uintptr_t stack_notes
      [HEAP_STACK_NOTES]; /* owner only, an observer's: what it knows about the owner's stack; zeros: nothing */
  bool is_shared;         /* const: nobody owns it, and nobody is to */

  _Alignas(CACHE_LINE) _Atomic(struct envelope *) inbox;
  _Atomic size_t inbox_bytes; /* of the blocks in it */
  _Atomic uint32_t inbox_envelopes;
  _Atomic bool parked;       /* swept, and nobody owns it */
  _Atomic int thread_id;     /* of the last owner, where somebody may look (option `live`); 0: not known */
  _Atomic bool lost;         /* its owner stays inside a slow path for good */
  _Atomic bool flush_wanted; /* somebody trims: the owner empties its bins at its next slow path */
};

/* split: HAK_SPLIT or 0. Lock held; the owner may read the key all the while. */
static inline void heap_set_key(struct heap *heap, uint32_t split) {
  __atomic_store_n(&heap->front.key, heap->slabs.key ^ split << HAK_ENTRY_CLASS_SHIFT, __ATOMIC_RELAXED);
}

/* Called by the owner's slow paths before they look at a bin, lock held. */
static inline void heap_follow_tally(struct heap *heap) {
  if (UNLIKELY(heap->split_seen != atomic_load_explicit(&split_wanted, memory_order_relaxed)))
    observers.heap_follow(heap);
}

/* The heap that threads without a heap point at: empty bins, a key no entry matches. */
extern const struct hak_front hak_heap_none;

/* The calling thread's heap, NULL if it has none yet; in the low bits what the thread is doing (heap/slow_path.h). */
#define THREAD_BUSY 1u         /* it is in a slow path, or in a step that a handler must not repeat */
#define THREAD_WITHOUT_HEAP 2u /* it had none when it entered the slow path */
#define THREAD_FORKS 4u
#define THREAD_FORKS_ALONE 8u /* and nobody else was in a slow path when it shut the gate */
#define THREAD_IN_FORK 16u    /* the program called fork, which has not returned yet */
#define THREAD_FLAGS 31u
_Static_assert(THREAD_FLAGS < CACHE_LINE, "heaps are aligned to cache lines, so the flags fit below the address");
extern HAK_HIDDEN __thread uintptr_t hak_thread HAK_TLS_MODEL;

static inline struct heap *heap_current(void) { return (struct heap *)(hak_thread & ~(uintptr_t)THREAD_FLAGS); }

/* registry.c */

/* Gives the calling thread a heap: a dead thread's or a new one. NULL when memory is out. */
struct heap *heap_attach(void);
/* Makes a heap that no thread will own: its slabs are used under its lock, its bins not at all. NULL when memory is out. */
struct heap *heap_make_shared(void);
/* Its id, once it is in use; set by whoever made it. 0: there is none. */
extern _Atomic uint32_t heap_shared_id;
static inline bool entry_is_shared(uint32_t entry) {
  uint32_t id = atomic_load_explicit(&heap_shared_id, memory_order_relaxed);
  return id != 0 && entry_heap_id(entry) == id;
}
struct heap *heap_by_id(uint32_t id);
/* The calling thread owns it: noted, if the option `live` says that somebody may look. */
void heap_note_thread(struct heap *heap);
uint32_t heap_count(void);
/* The first heap from an id on that some thread owns, or that none does; NULL if there is none. */
struct heap *heap_from(uint32_t id, bool owned);
/* Sweeps up to `heaps_max` heaps of dead threads, looking round from where the last call stopped. */
void heaps_sweep(uint32_t heaps_max);
/* Sweeps them all; if thoroughly, also those whose lifelines the kernel left as they were. True if there was one. */
bool heaps_sweep_all(bool thoroughly);
/* Gives the pages of heaps back in which nothing is: no owner, no slab. Returns the bytes. */
size_t heaps_rest(void);
/* How often heaps of dead threads were adopted and swept. */
struct heaps_counters {
  uint64_t adopted, swept;
};
void heaps_counters(struct heaps_counters *out);
/* Bytes of blocks outside the slabs, those in bins included. Takes no lock. */
size_t heaps_live_bytes(void);
/* Asks the owners of all heaps but `self` (or NULL) to empty theirs. A thread that sleeps does not hear
 * of it: nobody else can tell that it is not in the midst of a malloc. */
void heaps_ask_to_flush(const struct heap *self);
/* Empties bins and outbox into slabs and inboxes, and gives up their arrays; the caller owns the heap and does not hold
 * its lock. */
void heap_flush_all(struct heap *heap);

/* The gate is shut (heap/slow_path.h): before a fork, and after it in the parent. */
void heaps_before_fork(void);
void heaps_in_parent(void);
/* In the child of a fork the other threads are gone, and what they did outside of slow paths was copied page by page
 * while they ran: their bins and their outboxes cannot be trusted and are dropped. */
void heaps_in_child(void);

/* bins.c: called by the owner, lock held */

/* Fills the bin of a class from inbox or slabs and pops a block. NULL when memory is out. */
void *bin_refill(struct heap *heap, unsigned cls);
/* The same for a split heap's empty hand, where that is quickly done: the bin has a handful, none of them a sample. Else
 * NULL. */
void *hand_deal(struct heap *heap, unsigned cls);
/* Pushes into a full bin: makes room first, by growing it or by giving its older half to the slabs. */
void bin_overflow(struct heap *heap, unsigned cls, void *block);
/* Pushes into a bin or, if it is full, puts into the slab. */
void bin_put(struct heap *heap, unsigned cls, void *block);
/* Half fills the bins of the tiny classes that were not used yet; takes the lock itself. */
void bins_prewarm(struct heap *heap);
/* Once in a while: idle bins give blocks back and shrink. */
void bins_tick(struct heap *heap);
/* Gives up what the bins hold, and their arrays. */
void bins_flush_all(struct heap *heap);
/* Gives the heap hands, or takes what is in them back into the bins (heap/split.h); any memory that takes is there. */
void bins_split(struct heap *heap, bool is_split);
/* What the heap has a tally of. */
struct class_counts bin_counts(const struct heap *heap, unsigned cls);
/* Forgets what the bins hold. */
void bins_drop_all(struct heap *heap);
/* What is ready in the bins; any holder of the lock may ask, the owner may be popping. */
struct bins_content {
  size_t blocks, bytes;
};
struct bins_content bins_content(const struct heap *heap);
size_t bin_blocks(const struct heap *heap, unsigned cls);

/* envelope.c */

/* A block of another heap, freed by the owner of `heap`, goes into the open envelope for its owner. False if there is none,
 * or if it would be full: nothing is done. Takes no lock. entry: the block's. */
bool outbox_put_ready(struct heap *heap, void *block, uint32_t entry);
/* The same in any case; no lock is held. True if an envelope was sent. */
bool outbox_put(struct heap *heap, void *block, uint32_t entry);
/* Without memory for a heap or an envelope, a block goes home by hand: into its slab, under the lock. */
void block_deliver(void *block, uint32_t entry);
/* Sends all open envelopes; outbox_close gives up the table of them, too. */
void outbox_send_all(struct heap *heap);
void outbox_close(struct heap *heap);
void outbox_drop_all(struct heap *heap);
/* Takes what arrived into the bins (owner) or into the slabs (any holder of the lock). */
void inbox_drain_to_bins(struct heap *heap);
void inbox_drain_to_slabs(struct heap *heap);
/* Drains until nothing is left or somebody else holds the lock. Whoever serves looks again after giving
 * the lock, so of several that push to a heap nobody owns, the last one to hold the lock leaves nothing
 * behind (tests/model/park.pml). */
void inbox_serve(struct heap *heap);
static inline bool inbox_has_mail(struct heap *heap) {
  return atomic_load_explicit(&heap->inbox, memory_order_relaxed) != NULL;
}
/* Gives the envelopes that wait for their next use back to the metadata. */
void envelopes_trim(void);

#ifdef HAK_DEBUG
bool heap_is_valid(struct heap *heap);
#endif

#endif
