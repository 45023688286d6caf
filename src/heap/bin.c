/* One bin (a thread cache of one class): a refill fills half of the slots from the slabs, an overflow may double the
 * bin, an idle bin shrinks. Blocks of other pools come by free, and leave in envelopes (docs/decisions/0064).
 *
 * A bin needs more slots than REFILL_BLOCKS_MAX and FLUSH_BLOCKS_MAX for one purpose: to hold what is freed now and
 * allocated again soon. So it doubles once for each turn from allocating to freeing. A program that only frees fills no
 * more than it did before, and its last blocks pin few slabs.
 *
 * A long row of frees drains a bin: at each overflow it gives back more than it got, and `end` comes down, so that few
 * slots are in force until the next refill (docs/decisions/0071). */
#include "heap/bin.h"

#include "base/options.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "heap/envelope.h"
#include "heap/queue.h"
#include "os/fault.h"
#include "pages/metadata.h"
#include "policy/bin_policy.h"

#include <string.h>

_Static_assert(BIN_SLOTS_MAX * sizeof(void *) <= (size_t)1 << METADATA_ORDER_MAX, "the biggest bin has an array");

#define REFILLS_TO_GROW 16 /* after this many refills without a flush the bin is too small */
#define REFILLS_TO_FILL 3  /* after this many refills in a row nothing is freed, so a refill fills all slots */
/* A young bin grows the first time that it is empty again or full; if the thread only frees blocks of the class the
 * fourth time, in a crowded pool the eighth (docs/decisions/0081). */
#define LOOKS_TO_GROW_FREED_ONLY 4u
#define LOOKS_TO_GROW_CROWDED 8u
/* Blocks that one slow path takes out of the slabs, or puts back, for one class; and those of a longer bin that stay
 * above what it puts back, so that as many pointers move. */
#define REFILL_BLOCKS_MAX 128u
#define FLUSH_BLOCKS_MAX 128u
#define FLUSH_KEPT_MAX 512u
#define DRAINED_SLOTS 64u /* in force at least */
#define STREAK_MAX (1 << 20)
#define SLOTS_MAX_OF_REFILLS (2 * REFILL_BLOCKS_MAX) /* a longer bin makes refills no rarer */
/* A refill takes envelopes out of the inbox until this fraction of the bin is full. */
#define RECEIVED_SHARE 2u
#define RECEIVED_MAX 16u   /* envelopes */
#define POOLS_ASKED_MAX 4u /* for their free blocks, before a slab is opened */
#define FIRST_BLOCKS 2u
#define FIRST_BYTES_MAX 2048u
#define FIRST_HEAP_MAX ((size_t)32 << 10)
#define STEADY_TURNS 8u /* to know that a set of blocks is steady */
/* A bin whose owner only frees others' blocks needs no more slots than make its flushes rare. */
#define SLOTS_MAX_FREED_ONLY 128u

static unsigned array_order(const struct bin_state *state, size_t slots) {
  return metadata_order(max_size(slots, state->slots_initial) * sizeof(void *));
}

static bool is_young(const struct bin_state *state) { return state->slots < state->slots_initial; }

static void bin_set_end(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  bin_of(heap, cls)->end = state->base + state->slots - 1;
}

size_t bin_granted_slots(const struct bin_state *state, size_t slots) { return sub_sat(slots, state->slots_initial); }

static _Atomic size_t granted_bytes; /* the sum of all heaps' granted_bytes */

size_t bins_granted_bytes(void) { return load_relaxed(&granted_bytes); }

/* Call before a bin's slots change to this number. */
static void grant_slots(struct heap *heap, unsigned cls, size_t slots) {
  const struct bin_state *state = &heap->bin_state[cls];
  size_t before = bin_granted_slots(state, state->slots);
  size_t bytes = (bin_granted_slots(state, slots) - before) * class_bytes(cls); /* fewer: the difference wraps around */
  heap->granted_bytes += bytes;
  atomic_fetch_add_explicit(&granted_bytes, bytes, memory_order_relaxed);
}

bool bin_set_slots(struct heap *heap, unsigned cls, size_t slots) {
  struct bin_state *state = &heap->bin_state[cls];
  bin_settle(heap, cls);
  size_t count = bin_count(heap, cls);
  hak_assert(count < slots);
  unsigned order = array_order(state, slots), order_before = array_order(state, state->slots);
  if (state->base == NULL || order != order_before) {
    void **array = metadata_take(order);
    if (array == NULL)
      return false;
    array[0] = NULL;
    if (state->base) {
      memcpy(array + 1, state->base, count * sizeof(void *));
      metadata_give(state->base - 1, order_before);
    }
    state->base = array + 1;
    bin_set_bottom(heap, cls, state->base);
    top_store(bin_of(heap, cls), state->base + count); /* as many as before */
  }
  grant_slots(heap, cls, slots);
  state->slots = (uint32_t)slots;
  bin_set_end(heap, cls);
  return true;
}

bool bin_open(struct heap *heap, unsigned cls) {
  size_t slots = bin_slots_initial((size_t)option_value(OPTION_BIN_SLOTS), class_bytes(cls));
  heap->bin_state[cls].slots_initial = (uint32_t)slots;
  heap->bin_state[cls].looks = 0;
  return bin_set_slots(heap, cls, bin_slots_first(slots, class_bytes(cls)));
}

void bin_close(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  void **array = state->base - 1;
  unsigned order = array_order(state, state->slots);
  grant_slots(heap, cls, 0);
  *bin_of(heap, cls) = hak_heap_none.bins[cls];
  bin_set_bottom(heap, cls, hak_heap_none.bins[cls].top);
  *state = (struct bin_state){0};
  metadata_give(array, order);
}

/* Call when a young bin is found empty or full. */
static bool young_may_grow(const struct heap *heap, struct bin_state *state) {
  unsigned looks = pool_is_crowded(heap_pool(heap)) ? LOOKS_TO_GROW_CROWDED
                   : state->is_taken_from           ? 1
                                                    : LOOKS_TO_GROW_FREED_ONLY;
  return ++state->looks % looks == 0;
}

/* Tells whether the heap's bins may have more than its own budget. What lies in bins cannot be had by other threads
 * where memory runs out. */
static bool may_have_more(const struct heap *heap) {
  return heap_pool(heap)->slabs.limit_bytes == 0 && !usage_is_filling() && !usage_fills_limit();
}

/* Tells whether a budget has room for a bin's next doubling: the heap's own, or that of all bins of steady sets. */
static bool has_budget(const struct heap *heap, unsigned cls) {
  struct pool *pool = heap_pool(heap);
  struct bin_limits limits = {
      .bin_bytes_max = (size_t)option_value(OPTION_BIN_KB_MAX) << 10,
      .heap_bytes_max = (size_t)option_value(OPTION_HEAP_KB_MAX) << 10,
  };
  const struct bin_state *state = &heap->bin_state[cls];
  size_t bytes = class_bytes(cls), taken_bytes = slab_set_taken_bytes(&pool->slabs);
  size_t share = taken_bytes / max_size(pool_heaps(pool), 1);
  return bin_may_double(&limits, state->slots, bytes, heap->granted_bytes, share, pools_heaps()) ||
         (state->turns >= STEADY_TURNS &&
          bin_may_double_steadily(&limits, state->slots, bytes, heap->granted_bytes, bins_granted_bytes(),
                                  taken_bytes) &&
          may_have_more(heap));
}

static bool bin_grow(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  size_t slots = state->slots;
  if (is_young(state))
    return bin_set_slots(heap, cls, slots * 2);
  if ((slots >= SLOTS_MAX_FREED_ONLY && !state->is_taken_from) || !has_budget(heap, cls) ||
      !bin_set_slots(heap, cls, slots * 2))
    return false;
  slab_set_check(&heap_pool(heap)->slabs, cls, state->base, bin_count(heap, cls)); /* once for each doubling */
  heap->counters.bin_growths++;
  return true;
}

/* Tells whether the heap's bins may hold blocks of other pools. */
static bool has_others(const struct heap *heap) { return pool_count() > 1 && heap_life(heap) == 0; }

/* Puts blocks back: those of the heap's pool into its slabs, those of others into envelopes. Returns how many stay
 * because memory is out for an envelope. They move to the front of the array. are_freed: as of slab_set_give_own. */
static size_t give_blocks(struct heap *heap, unsigned cls, void **blocks, size_t count, bool are_freed) {
  struct slab_set *slabs = &heap_pool(heap)->slabs;
  size_t stuck = 0;
  for (size_t i = 0; (i += slab_set_give_own(slabs, cls, blocks + i, count - i, are_freed)) < count; i++) {
    if (UNLIKELY(!has_others(heap))) /* freed twice: its slab was closed meanwhile, and is another pool's now */
      fault_double_free(blocks[i]);
    if (UNLIKELY(!outbox_put_locked(heap, blocks[i], map_entry(blocks[i]))))
      blocks[stuck++] = blocks[i];
  }
  return stuck;
}

void bin_flush(struct heap *heap, unsigned cls, size_t count, bool are_freed) {
  size_t kept = min_size(bin_count(heap, cls) - count, FLUSH_KEPT_MAX);
  void **first = bin_of(heap, cls)->top - kept - count;
  size_t stuck = give_blocks(heap, cls, first, count, are_freed);
  heap->counters.flushes++;
  heap->counters.flushed_blocks += count - stuck;
  if (kept > 0)
    memmove(first + stuck, first + count, kept * sizeof(void *));
  bin_set_top(heap, cls, first + stuck + kept);
  HAK_PROBE(flush, heap->id, class_bytes(cls), count - stuck);
}

static ALWAYS_INLINE void note_refill(struct heap *heap, unsigned cls, size_t count) {
  heap->counters.refilled_blocks += count;
  HAK_PROBE(refill, heap->id, class_bytes(cls), count);
}

/* Takes up to `wanted` free blocks of the pools behind the heap's to slots[-1] downwards, so that its pool need not
 * open a slab. Its lock is held, so another one is only tried (heap/pool.h, P3). */
static NOINLINE size_t take_of_others(const struct heap *heap, unsigned cls, void **slots, size_t wanted) {
  const struct pool *own = heap_pool(heap);
  uint32_t count = pool_count();
  size_t taken = 0;
  for (uint32_t i = 1; taken == 0 && i < count && i <= POOLS_ASKED_MAX; i++) {
    struct pool *pool = pool_by_id((own->id - 1 + i) % count + 1);
    if (!entries_are_alike(pool->slabs.key, own->slabs.key) || !lock_try(&pool->lock))
      continue;
    if (slab_set_has_free(&pool->slabs, cls))
      taken = slab_set_take(&pool->slabs, cls, slots, wanted);
    inbox_unlock(pool);
  }
  return taken;
}

/* Tells whether to ask other pools for a class: for long blocks, of which a slab is much memory. Short ones would go
 * back and forth between pools, and their cache lines too. Not for blocks that a fork's child inherited
 * (threads/inherited.h). */
static ALWAYS_INLINE bool asks_others(const struct heap *heap, unsigned cls) {
  return class_bytes(cls) > HAK_TINY_MAX && UNLIKELY(has_others(heap)) && heap->inherited_calls == 0 &&
         !slab_set_has_free(&heap_pool(heap)->slabs, cls);
}

/* As slab_set_take. */
static size_t take_blocks(struct heap *heap, unsigned cls, void **slots, size_t wanted) {
  size_t taken = asks_others(heap, cls) ? take_of_others(heap, cls, slots, wanted) : 0;
  if (taken == 0)
    taken = slab_set_take(&heap_pool(heap)->slabs, cls, slots, wanted);
  if (LIKELY(taken != 0))
    note_refill(heap, cls, taken);
  return taken;
}

bool bin_fill(struct heap *heap, unsigned cls, size_t wanted) {
  struct bin_state *state = &heap->bin_state[cls];
  bin_settle(heap, cls);
  /* The array's upper end is free: take into it downwards, then the bin's top is the lowest block. */
  void **slots_end = state->base + wanted;
  size_t taken = take_blocks(heap, cls, slots_end, wanted);
  if (taken == 0)
    return false;
  if (taken < wanted)
    memmove(state->base, slots_end - taken, taken * sizeof(void *));
  bin_set_top(heap, cls, state->base + taken);
  if (UNLIKELY(heap->is_queue) && !queue_is_stack(&heap->front.bins[cls]))
    queue_reverse(heap, cls);
  return true;
}

/* Takes a block that needs no room in its bin. */
static void *take_one(struct heap *heap, unsigned cls) {
  void *block = NULL;
  tally_brought(heap, cls, (int64_t)take_blocks(heap, cls, &block + 1, 1));
  return block;
}

/* Counts a refill if it brought a block. */
static void *count_refill(struct heap *heap, void *block) {
  heap->counters.refills += block != NULL;
  heap->overflow_balance -= OVERFLOWS_OF_REFILL;
  return block;
}

static ALWAYS_INLINE void bin_push(struct heap *heap, unsigned cls, void *block) {
  void **top = bin_of(heap, cls)->top;
  *top = block;
  bin_set_top(heap, cls, top + 1);
}

/* Returns how many blocks the refills since the last overflow brought, at most. */
static size_t refilled_blocks(const struct bin_state *state) {
  return state->streak > 0 ? (size_t)state->streak * REFILL_BLOCKS_MAX : 0;
}

static size_t flush_blocks(size_t slots) { return min_size((slots + 1) / 2, FLUSH_BLOCKS_MAX); }

/* Returns how many blocks left the bin since its last refill, about. */
static size_t dropped_blocks(const struct bin_state *state) {
  return state->streak < 0 ? (size_t)-state->streak * flush_blocks(state->slots) : 0;
}

/* Grows a full bin. Another overflow without a refill between grows no bin but a young one. */
static bool bin_grow_full(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  if (is_young(state))
    return young_may_grow(heap, state) && bin_grow(heap, cls);
  size_t refilled = refilled_blocks(state);
  if (refilled > 0)
    state->streak = 0;
  return refilled > 0 && bin_may_be_long(2 * (size_t)state->slots, class_bytes(cls), refilled) && bin_grow(heap, cls);
}

/* Makes room for one more block if there is none: opens or grows the bin. The frees that fill it take no slow path, and
 * the thread may end with a full bin. So the room counts as freed. */
static ALWAYS_INLINE bool bin_make_room(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  size_t slots = state->slots;
  if (state->base == NULL && !bin_open(heap, cls))
    return false;
  bool has_room = bin_of(heap, cls)->top != bin_of(heap, cls)->end ||
                  (UNLIKELY(heap->is_queue) && queue_make_room(heap, cls)) || bin_grow_full(heap, cls);
  if (UNLIKELY(state->slots != slots))
    usage_freed_add((state->slots - slots) * class_bytes(cls));
  return has_room;
}

/* Pushes received blocks into their bins, and puts those that find no room into the slabs. True if the wanted class has
 * enough then. A block whose entry is not the pool's is a double free: its slab was closed since. */
static bool bins_put_received(struct heap *heap, unsigned wanted_cls, void **blocks, size_t count) {
  struct slab_set *slabs = &heap_pool(heap)->slabs;
  const uint32_t key = slabs->key, split = heap->front.split;
  size_t left = 0;
  for (size_t i = 0; i < count; i++) {
    void *block = blocks[i];
    uint32_t entry = map_leaf_read(map_leaf(block), block);
    unsigned cls = entry_class(entry);
    if (UNLIKELY(!entry_is_of(entry, key)))
      fault_double_free(block);
    struct hak_bin *bin = &heap->front.bins[cls ^ split];
    void **top = bin->top;
    if (LIKELY(top != bin->end && split == 0)) {
      *top = block;
      top_store(bin, top + 1);
    } else if (top != bin->end || bin_make_room(heap, cls)) {
      bin_push(heap, cls, block);
    } else {
      blocks[left++] = block;
    }
  }
  slab_set_give_mixed(slabs, blocks, left);
  return bin_count(heap, wanted_cls) >= heap->bin_state[wanted_cls].slots / RECEIVED_SHARE;
}

/* Returns the class whose blocks serve the heap's next request for a class without a bin; 0: its own. A slab costs a
 * page at least, and half of a small program's classes are asked for once or twice. So the first blocks of a class are
 * of the next power of two, which has the alignment of all classes below (docs/decisions/0073). */
static unsigned class_of_first(struct heap *heap, unsigned cls) {
  size_t bytes = class_bytes(cls);
  struct bin_state *state = &heap->bin_state[cls];
  if (bytes > FIRST_BYTES_MAX || (bytes & (bytes - 1)) == 0 || state->looks >= FIRST_BLOCKS || heap->front.split ||
      slab_set_taken_bytes(&heap_pool(heap)->slabs) > FIRST_HEAP_MAX || slab_set_has_free(&heap_pool(heap)->slabs, cls))
    return 0;
  state->looks++;
  return hak_class_of((size_t)1 << (64 - __builtin_clzl(bytes)));
}

static ALWAYS_INLINE void *bin_pop(struct heap *heap, unsigned cls) {
  return UNLIKELY(heap->is_queue) ? queue_take(&heap->front.bins[cls]) : hak_bin_pop(bin_of(heap, cls));
}

static void *fill_and_pop(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  if (state->base == NULL) {
    unsigned first = class_of_first(heap, cls);
    if (first != 0) {
      void *block = hak_bin_pop(bin_of(heap, first));
      heap->counters.slow_calls_filled += block != NULL;
      return block != NULL ? block : fill_and_pop(heap, first);
    }
    if (!bin_open(heap, cls))
      return NULL;
  }
  if (UNLIKELY(heap->is_queue))
    queue_note_refill(heap);
  if (state->streak < 0) { /* it may have drained */
    state->streak = 0;
    bin_set_end(heap, cls);
  }
  if (inbox_has_mail(heap_pool(heap))) {
    inbox_drain(heap_pool(heap), heap, cls, bins_put_received, RECEIVED_MAX);
    void *block = bin_pop(heap, cls);
    heap->counters.refills_from_inbox += block != NULL;
    if (block)
      return count_refill(heap, block);
  }
  if (!is_young(state))
    state->streak += state->streak < STREAK_MAX;
  bool is_due = is_young(state) ? young_may_grow(heap, state)
                                : state->streak >= REFILLS_TO_GROW && state->slots < SLOTS_MAX_OF_REFILLS;
  if (is_due && bin_grow(heap, cls))
    state->streak = 0;
  else if (UNLIKELY(!bin_may_be_long(state->slots, class_bytes(cls), refilled_blocks(state))) &&
           bin_set_slots(heap, cls, state->slots / 2))
    heap->counters.bin_shrinks++;
  state->is_taken_from = true;
  size_t wanted = state->streak >= REFILLS_TO_FILL ? state->slots - 1 : (state->slots + 1) / 2;
  wanted = min_size(wanted, REFILL_BLOCKS_MAX);
  if (wanted <= 1)
    return count_refill(heap, take_one(heap, cls));
  return count_refill(heap, bin_fill(heap, cls, wanted) ? bin_pop(heap, cls) : NULL);
}

void *bin_refill(struct heap *heap, unsigned cls) {
  void *block = UNLIKELY(heap->front.split) ? bin_pop(heap, cls) : NULL;
  if (LIKELY(block == NULL))
    block = fill_and_pop(heap, cls);
  if (LIKELY(block != NULL))
    tally_popped(heap, cls);
  return block;
}

/* Makes room in a full bin: the older half goes, or all of DRAINED_SLOTS if it drains, but at most FLUSH_BLOCKS_MAX
 * blocks and those beyond its new end. False if there is no room after it. */
static bool bin_give_older(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  struct hak_bin *bin = bin_of(heap, cls);
  size_t count = bin_count(heap, cls), given = flush_blocks(count + 1), lowered = 0;
  if (UNLIKELY(count == 0))
    return false;
  state->streak -= !is_young(state) && state->streak > -STREAK_MAX;
  if (UNLIKELY(bin_drains(state->slots, class_bytes(cls), dropped_blocks(state)))) {
    lowered = min_size(sub_sat(count + 1, max_size(DRAINED_SLOTS, state->slots_initial)), FLUSH_BLOCKS_MAX);
    given = min_size(FLUSH_BLOCKS_MAX + lowered, count);
    state->high = state->slots; /* the thread may need them all in its next turn */
  }
  bin_flush(heap, cls, given, true);
  if (LIKELY(lowered < (size_t)(bin->end - bin->top))) /* else memory is out for envelopes */
    bin->end -= lowered;
  return LIKELY(bin->top != bin->end);
}

void bin_overflow(struct heap *heap, unsigned cls, void *block) {
  if (UNLIKELY(heap->is_queue) && queue_make_room(heap, cls)) {
    bin_push(heap, cls, block);
    return;
  }
  if (UNLIKELY(bin_count(heap, cls) >= QUEUE_LOOKS))
    queue_note_overflow(heap, cls);
  heap->counters.bin_overflows++;
  heap->overflow_balance++;
  tally_brought(heap, cls, -1); /* it was freed */
  struct bin_state *state = &heap->bin_state[cls];
  state->turns += state->streak > 0 && state->turns < STEADY_TURNS;
  if (UNLIKELY(bin_make_room(heap, cls)) || LIKELY(bin_give_older(heap, cls)))
    bin_push(heap, cls, block);
  else
    slab_set_give(&heap_pool(heap)->slabs, cls, &block, 1);
}

void bin_shrink(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  size_t slots = bin_slots_after(state->slots, bin_slots_first(state->slots_initial, class_bytes(cls)), state->high);
  if (slots < state->slots && bin_count(heap, cls) < slots && bin_set_slots(heap, cls, slots))
    heap->counters.bin_shrinks++;
}

#ifdef HAK_DEBUG
/* The bitmap of another pool's slab is not read without that pool's lock. */
static bool bin_holds(const struct heap *heap, const void *block, unsigned cls) {
  const struct slab_set *slabs = &heap_pool(heap)->slabs;
  uint32_t entry = map_entry(block), own = entry_of(slabs->key, cls);
  return entry == own || !has_others(heap) ? slab_holds(slabs, block, cls)
                                           : entries_are_alike(entry, own) && slab_is_block_start(block, cls);
}

static bool holds_all(const struct heap *heap, void *const *blocks, size_t count, unsigned cls) {
  for (size_t i = 0; i < count; i++)
    if (!bin_holds(heap, blocks[i], cls))
      return false;
  return true;
}

bool bin_is_valid(const struct heap *heap, unsigned cls) {
  const struct bin_state *state = &heap->bin_state[cls];
  size_t count = bin_count(heap, cls);
  void **bottom = bin_bottom(heap, cls);
  if (state->base != NULL && (bottom[-1] != NULL || bottom + count >= state->base + state->slots))
    return false;
  return holds_all(heap, bottom, count, cls);
}
#endif
