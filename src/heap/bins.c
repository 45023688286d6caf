/* Bins (thread caches): a refill fills half of the slots from the slabs, an overflow may double the bin, an idle bin
 * shrinks. */
#include "heap/bins.h"
#include "heap/envelope.h"
#include "heap/heap.h"

#include "base/options.h"
#include "base/probe.h"
#include "budget/usage.h"
#include "os/fault.h"
#include "pages/metadata.h"

#include <string.h>

_Static_assert(BIN_SLOTS_MAX * sizeof(void *) <= (size_t)1 << METADATA_ORDER_MAX, "the biggest bin has an array");

#define REFILLS_TO_GROW 16   /* after this many refills without a flush the bin is too small */
#define REFILLS_TO_FILL 3    /* after this many refills in a row nothing is freed, so a refill fills all slots */
#define TICK_SLOW_CALLS 256  /* slow calls between two checks of all bins, */
#define FOLLOW_SLOW_CALLS 16 /* and at least between two times that they follow the slabs */
#define LOOKS_TO_SHRINK 8    /* checks between two decisions to shrink */
/* A young bin grows the first time that it is empty again or full; if the thread only frees blocks of the class the
 * fourth time, in a crowded pool the eighth. */
#define LOOKS_TO_GROW_FREED_ONLY 4u
#define LOOKS_TO_GROW_CROWDED 8u
#define HAND_BYTES ((size_t)32 << 10)
/* A bin whose owner only frees others' blocks needs no more slots than make its flushes rare. */
#define SLOTS_MAX_FREED_ONLY 128u

static struct bin_limits bin_limits_read(void) {
  return (struct bin_limits){
      .slots_initial = (size_t)option_value(OPTION_BIN_SLOTS),
      .bin_bytes_max = (size_t)option_value(OPTION_BIN_KB_MAX) << 10,
      .heap_bytes_max = (size_t)option_value(OPTION_HEAP_KB_MAX) << 10,
  };
}

static unsigned array_order(const struct bin_state *state, size_t slots) {
  unsigned order = (unsigned)__builtin_ctzl(max_size(slots, state->slots_initial)) + 3;
  return order < METADATA_ORDER_MIN ? METADATA_ORDER_MIN : order;
}

/* In a split heap malloc pops from another array, the hand (heap/split.h). */
static struct hak_bin *bin_of(struct heap *heap, unsigned cls) { return &heap->front.bins[cls ^ heap->split]; }

static size_t bin_count(const struct heap *heap, unsigned cls) {
  void **base = heap->bin_state[cls].base;
  return base ? (size_t)(__atomic_load_n(&heap->front.bins[cls ^ heap->split].top, __ATOMIC_RELAXED) - base) : 0;
}

static void set_top(struct hak_bin *bin, void **top) { __atomic_store_n(&bin->top, top, __ATOMIC_RELAXED); }

/* T2: what was pushed since the slow path's last change was freed. Call before the slow path moves top. */
static void tally_pushes(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  uint32_t level = (uint32_t)bin_count(heap, cls);
  hak_assert(level >= class->level);
  class->freed += level - class->level;
  class->level = level;
}
/* Call after the slow path moved top. */
static void tally_level(struct heap *heap, unsigned cls) {
  heap->tally->classes[cls].level = (uint32_t)bin_count(heap, cls);
}

static void bin_set_top(struct heap *heap, unsigned cls, void **top) {
  if (UNLIKELY(heap->split))
    tally_pushes(heap, cls);
  set_top(bin_of(heap, cls), top);
  if (UNLIKELY(heap->split))
    tally_level(heap, cls);
}

/* T3: tells whether the bin has no room for a block. */
static bool bin_is_shut(const struct heap *heap, unsigned cls) { return heap->split && cls == HAK_CLASS_COUNT - 1; }

static bool is_young(const struct bin_state *state) { return state->slots < state->slots_initial; }

/* Sets how many blocks a hand gets: few, so that recently freed blocks are used next, enough to make the slow path
 * rare, and no more than a bin holds, or half of a young bin. */
static void hand_set_size(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  const struct bin_state *state = &heap->bin_state[cls];
  size_t most = min_size(is_young(state) ? (state->slots + 1) / 2 : state->slots, HAND_MAX);
  class->hand_blocks = (uint32_t)max_size(min_size(HAND_BYTES / class_bytes(cls), most), 1);
  class->hand_bytes = (int64_t)(class->hand_blocks * class_bytes(cls));
}

static void bin_set_end(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  bin_of(heap, cls)->end = state->base + (bin_is_shut(heap, cls) ? 0 : state->slots - 1);
  if (UNLIKELY(heap->split))
    hand_set_size(heap, cls);
}

/* Slots beyond the initial ones, which count against the heap's budget. */
static size_t granted_slots(const struct bin_state *state, size_t slots) { return less(slots, state->slots_initial); }

/* Moves the bin's blocks into an array of `slots` slots. False when memory is out. */
static bool bin_set_slots(struct heap *heap, unsigned cls, size_t slots) {
  struct bin_state *state = &heap->bin_state[cls];
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
    set_top(bin_of(heap, cls), state->base + count); /* as many as before */
  }
  heap->granted_bytes += (granted_slots(state, slots) - granted_slots(state, state->slots)) * class_bytes(cls);
  state->slots = (uint32_t)slots;
  bin_set_end(heap, cls);
  return true;
}

static bool bin_open(struct heap *heap, unsigned cls) {
  struct bin_limits all = bin_limits_read();
  size_t slots = bin_slots_initial(&all, class_bytes(cls));
  heap->bin_state[cls].slots_initial = (uint32_t)slots;
  return bin_set_slots(heap, cls, bin_slots_first(slots, class_bytes(cls)));
}

/* Gives the array of an empty bin back. */
static void bin_close(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  void **array = state->base - 1;
  unsigned order = array_order(state, state->slots);
  heap->granted_bytes -= granted_slots(state, state->slots) * class_bytes(cls);
  *bin_of(heap, cls) = hak_heap_none.bins[cls];
  *state = (struct bin_state){0};
  metadata_give(array, order);
}

/* Returns the heap's share of the blocks that its pool's slabs have given out. */
static size_t taken_bytes(const struct heap *heap) {
  struct pool *pool = heap_pool(heap);
  return slab_set_taken_bytes(&pool->slabs) / max_size(pool_heaps(pool), 1);
}

/* Call when a young bin is found empty or full. */
static bool young_may_grow(const struct heap *heap, struct bin_state *state) {
  unsigned looks = pool_is_crowded(heap_pool(heap)) ? LOOKS_TO_GROW_CROWDED
                   : state->is_taken_from           ? 1
                                                    : LOOKS_TO_GROW_FREED_ONLY;
  return ++state->looks % looks == 0;
}

static bool bin_grow(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  if (is_young(state))
    return bin_set_slots(heap, cls, state->slots * (size_t)2);
  struct bin_limits all = bin_limits_read();
  size_t bytes = class_bytes(cls);
  size_t slots = state->slots;
  if (bin_is_shut(heap, cls) || (slots >= SLOTS_MAX_FREED_ONLY && !state->is_taken_from) ||
      !bin_may_double(&all, slots, bytes, heap->granted_bytes, taken_bytes(heap)) ||
      !bin_set_slots(heap, cls, slots * 2))
    return false;
  slab_set_check(&heap_pool(heap)->slabs, cls, state->base, bin_count(heap, cls)); /* once for each doubling */
  heap->counters.bin_growths++;
  return true;
}

/* Gives the `count` oldest blocks of a bin to the slabs. */
static void bin_flush(struct heap *heap, unsigned cls, size_t count) {
  void **base = heap->bin_state[cls].base;
  size_t rest = bin_count(heap, cls) - count;
  slab_set_give(&heap_pool(heap)->slabs, cls, base, count);
  memmove(base, base + count, rest * sizeof(void *));
  bin_set_top(heap, cls, base + rest);
  heap->counters.flushes++;
  heap->counters.flushed_blocks += count;
  HAK_PROBE(flush, heap->id, class_bytes(cls), count);
}

/* Fills up to `wanted` slots of an empty bin from the slabs. False when memory is out. */
static bool bin_fill(struct heap *heap, unsigned cls, size_t wanted) {
  struct bin_state *state = &heap->bin_state[cls];
  /* The array's upper end is free: take into it downwards, then the bin's top is the lowest block. */
  void **slots_end = state->base + wanted;
  size_t taken = slab_set_take(&heap_pool(heap)->slabs, cls, slots_end, wanted);
  if (taken == 0)
    return false;
  if (taken < wanted)
    memmove(state->base, slots_end - taken, taken * sizeof(void *));
  heap->counters.refilled_blocks += taken;
  bin_set_top(heap, cls, state->base + taken);
  HAK_PROBE(refill, heap->id, class_bytes(cls), taken);
  return true;
}

/* Counts a refill if it brought a block. */
static void *count_refill(struct heap *heap, void *block) {
  heap->counters.refills += block != NULL;
  return block;
}

static void *bin_fill_and_pop(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  struct hak_bin *bin = bin_of(heap, cls);
  if (state->base == NULL && !bin_open(heap, cls))
    return NULL;
  if (inbox_has_mail(heap_pool(heap))) {
    inbox_drain(heap, bin_put);
    void *block = hak_bin_pop(bin);
    heap->counters.refills_from_inbox += block != NULL;
    if (block)
      return count_refill(heap, block);
  }
  bool is_due = is_young(state) ? young_may_grow(heap, state) : ++state->streak >= REFILLS_TO_GROW;
  if (is_due && bin_grow(heap, cls))
    state->streak = 0;
  state->is_taken_from = true;
  if (state->slots == 1 || bin_is_shut(heap, cls)) { /* no room for a block beside the NULL */
    void *only[1];
    size_t taken = slab_set_take(&heap_pool(heap)->slabs, cls, only + 1, 1);
    heap->counters.refilled_blocks += taken;
    return count_refill(heap, taken ? only[0] : NULL);
  }
  size_t wanted = state->streak >= REFILLS_TO_FILL ? state->slots - 1 : (state->slots + 1) / 2;
  return count_refill(heap, bin_fill(heap, cls, wanted) ? hak_bin_pop(bin) : NULL);
}

/* --- hands --- */

static void **hand_base(const struct heap *heap, unsigned cls) { return heap->tally->hands[cls] + 1; }

static size_t hand_count(const struct heap *heap, unsigned cls) {
  if (heap->split == 0)
    return 0;
  void **top = __atomic_load_n(&heap->front.bins[cls].top, __ATOMIC_RELAXED);
  return (size_t)(top - hand_base(heap, cls));
}

static void hand_open(struct heap *heap, unsigned cls) {
  void **base = hand_base(heap, cls);
  hand_set_size(heap, cls);
  heap->front.bins[cls] = (struct hak_bin){.top = base, .end = base};
}

/* Moves the blocks of the hand back to the bin. */
static void hand_close(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  size_t count = hand_count(heap, cls);
  hand_open(heap, cls);
  class->handed -= count;
  for (size_t i = 0; i < count; i++)
    bin_put(heap, cls, hand_base(heap, cls)[i]);
}

/* Refills an empty hand from the top of the bin, and from the slabs if the bin has too few. It ends before the block
 * that is to be a sample. Returns one block; NULL when memory is out. */
static void *hand_fill(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  size_t bytes = class_bytes(cls);
  tally_pushes(heap, cls);
  void *block = bin_count(heap, cls) == 0 ? bin_fill_and_pop(heap, cls) : NULL;
  tally_level(heap, cls);
  size_t wanted = class->hand_blocks;
  if (class->until < (int64_t)(wanted * bytes))
    wanted = class->until < (int64_t)bytes ? 1 : (size_t)class->until / bytes;
  wanted -= block != NULL;
  size_t moved = min_size(wanted, bin_count(heap, cls));
  void **hand = hand_base(heap, cls), **hand_end = hand + wanted;
  struct slab_set *slabs = &heap_pool(heap)->slabs;
  bool takes_more = wanted > moved && slab_set_has_free(slabs, cls); /* opens no slab for more than the first block */
  size_t taken = takes_more ? slab_set_take(slabs, cls, hand_end - moved, wanted - moved) : 0;
  heap->counters.refilled_blocks += taken;
  if (moved > 0) {
    void **top = bin_of(heap, cls)->top;
    memcpy(hand_end - moved, top - moved, moved * sizeof(void *));
    bin_set_top(heap, cls, top - moved);
  }
  if (moved + taken < wanted)
    memmove(hand, hand_end - moved - taken, (moved + taken) * sizeof(void *));
  set_top(&heap->front.bins[cls], hand + moved + taken);
  size_t handed = moved + taken + (block != NULL);
  class->handed += handed;
  class->until -= (int64_t)(handed * bytes);
  class->until_stratum -= (int64_t)(handed * bytes);
  return block ? block : hak_bin_pop(&heap->front.bins[cls]);
}

void *sample_refill(struct heap *heap, unsigned cls) {
  struct class_tally *class = &heap->tally->classes[cls];
  struct hak_bin *bin = bin_of(heap, cls), *hand = &heap->front.bins[cls];
  void **base = heap->bin_state[cls].base, **top = bin->top, **blocks_of_hand = hand_base(heap, cls);
  size_t blocks = class->hand_blocks, count = (size_t)(top - base);
  if (base == NULL || count < blocks || class->until < class->hand_bytes || hand->top != blocks_of_hand)
    return NULL;
  top -= blocks;
  void *block = top[blocks - 1]; /* the others go to the hand */
  memcpy(blocks_of_hand, top, (blocks - 1) * sizeof(void *));
  set_top(bin, top);
  set_top(hand, blocks_of_hand + blocks - 1);
  class->freed += count - class->level;
  class->level = (uint32_t)(count - blocks);
  class->handed += blocks;
  class->until -= class->hand_bytes;
  class->until_stratum -= class->hand_bytes;
  return block;
}

void *bin_refill(struct heap *heap, unsigned cls) {
  return UNLIKELY(heap->split) ? hand_fill(heap, cls) : bin_fill_and_pop(heap, cls);
}

static void split_begin(struct heap *heap) {
  const unsigned last = HAK_CLASS_COUNT - 1;
  if (bin_count(heap, last) > 0)
    bin_flush(heap, last, bin_count(heap, last));
  heap->split = HAK_SPLIT;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    *bin_of(heap, cls) = heap->front.bins[cls];
    hand_open(heap, cls);
    tally_level(heap, cls);
  }
  if (heap->bin_state[last].base)
    bin_set_end(heap, last);
}

static void split_end(struct heap *heap) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    tally_pushes(heap, cls);
    hand_close(heap, cls);
  }
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct hak_bin *bin = bin_of(heap, cls);
    heap->front.bins[cls] = *bin;
    *bin = cls == HAK_CLASS_COUNT - 1 ? hak_heap_none.bins[0] : (struct hak_bin){0};
  }
  heap->split = 0;
  if (heap->bin_state[HAK_CLASS_COUNT - 1].base)
    bin_set_end(heap, HAK_CLASS_COUNT - 1);
}

void bins_split(struct heap *heap, bool is_split) {
  if (is_split)
    split_begin(heap);
  else
    split_end(heap);
  heap_set_key(heap, heap->split);
}

struct class_counts bin_counts(const struct heap *heap, unsigned cls) {
  const struct class_tally *class = &heap->tally->classes[cls];
  size_t pushed = heap->split && cls != 0 ? bin_count(heap, cls) - class->level : 0;
  return (struct class_counts){
      .allocated = class->handed - (cls != 0 ? hand_count(heap, cls) : 0),
      .freed = class->freed + pushed + atomic_load_explicit(&class->freed_of_others, memory_order_relaxed),
  };
}

/* --- */

void bins_prewarm(struct heap *heap) {
  lock_take(&heap_pool(heap)->lock);
  for (unsigned cls = 1; cls < HAK_TINY_CLASS_COUNT; cls++)
    if (heap->bin_state[cls].base == NULL &&
        (!bin_open(heap, cls) || !bin_set_slots(heap, cls, heap->bin_state[cls].slots_initial) ||
         !bin_fill(heap, cls, heap->bin_state[cls].slots / 2)))
      break;
  lock_give(&heap_pool(heap)->lock);
}

static void bin_push(struct heap *heap, unsigned cls, void *block) {
  void **top = bin_of(heap, cls)->top;
  *top = block;
  bin_set_top(heap, cls, top + 1);
}

/* Makes room for one more block if there is none: opens or grows the bin. The frees that fill it take no slow path, and
 * the thread may end with a full bin. So the room counts as freed. */
static bool bin_make_room(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  size_t slots = state->slots;
  if (state->base == NULL && !bin_open(heap, cls))
    return false;
  bool has_room = bin_of(heap, cls)->top != bin_of(heap, cls)->end ||
                  ((!is_young(state) || young_may_grow(heap, state)) && bin_grow(heap, cls));
  if (UNLIKELY(state->slots != slots))
    usage_freed_add((state->slots - slots) * class_bytes(cls));
  return has_room;
}

void bin_put(struct heap *heap, unsigned cls, void *block) {
  if (bin_make_room(heap, cls))
    bin_push(heap, cls, block);
  else
    slab_set_give(&heap_pool(heap)->slabs, cls, &block, 1);
}

void bin_overflow(struct heap *heap, unsigned cls, void *block) {
  heap->bin_state[cls].streak = 0;
  heap->counters.bin_overflows++;
  tally_freed(heap, cls);
  if (!bin_make_room(heap, cls) && bin_count(heap, cls) > 0)
    bin_flush(heap, cls, (heap->bin_state[cls].slots + 1) / 2);
  bin_put(heap, cls, block);
}

static void bin_shrink(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  size_t surplus = bin_surplus(state->low);
  if (surplus > bin_count(heap, cls))
    surplus = bin_count(heap, cls);
  if (surplus > 0)
    bin_flush(heap, cls, surplus);
  size_t slots = bin_slots_after(state->slots, bin_slots_first(state->slots_initial, class_bytes(cls)), state->high);
  if (slots < state->slots && bin_count(heap, cls) < slots && bin_set_slots(heap, cls, slots))
    heap->counters.bin_shrinks++;
}

/* When the slabs have grown or fallen far, the bins follow: each gives back what it has not needed since the last time.
 * Where the heap grows this is all, because the slabs that close serve other classes. */
static void bins_follow(struct heap *heap) {
  struct slab_set *slabs = &heap_pool(heap)->slabs;
  bool grew = slabs->slab_bytes > heap->slab_bytes_seen;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct bin_state *state = &heap->bin_state[cls];
    if (state->base == NULL)
      continue;
    size_t idle = min_size(state->low, bin_count(heap, cls));
    if (idle > 0)
      bin_flush(heap, cls, grew ? idle : bin_surplus(idle));
    state->low = (uint32_t)bin_count(heap, cls);
  }
  if (grew)
    slab_set_close_empty(slabs);
  heap->slab_bytes_seen = slabs->slab_bytes;
}

/* Fill levels are read at slow calls only. So low and high are estimates, and cost the fast path nothing. */
void bins_tick(struct heap *heap) {
  if (++heap->ticks % FOLLOW_SLOW_CALLS != 0)
    return;
  if (UNLIKELY(bins_should_follow(heap->slab_bytes_seen, heap_pool(heap)->slabs.slab_bytes)))
    bins_follow(heap);
  if (heap->ticks % TICK_SLOW_CALLS != 0)
    return;
  bool decide = heap->ticks % (TICK_SLOW_CALLS * LOOKS_TO_SHRINK) == 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct bin_state *state = &heap->bin_state[cls];
    if (decide && heap->split)
      hand_close(heap, cls); /* it may idle, too */
    if (state->base == NULL)
      continue;
    uint32_t count = (uint32_t)bin_count(heap, cls);
    if (count < state->low)
      state->low = count;
    if (count > state->high)
      state->high = count;
    if (decide) {
      bin_shrink(heap, cls);
      state->low = state->high = (uint32_t)bin_count(heap, cls);
      state->is_taken_from = false;
    }
  }
}

void bins_flush_all(struct heap *heap) {
  for (unsigned cls = 1; heap->split && cls < HAK_CLASS_COUNT; cls++)
    hand_close(heap, cls);
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    if (heap->bin_state[cls].base == NULL)
      continue;
    if (bin_count(heap, cls) > 0)
      bin_flush(heap, cls, bin_count(heap, cls));
    bin_close(heap, cls);
  }
}

void bins_drop_all(struct heap *heap) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    if (heap->split) {
      heap->tally->classes[cls].handed -= hand_count(heap, cls);
      hand_open(heap, cls);
    }
    if (heap->bin_state[cls].base)
      bin_set_top(heap, cls, heap->bin_state[cls].base);
  }
}

size_t bin_blocks(const struct heap *heap, unsigned cls) { return bin_count(heap, cls) + hand_count(heap, cls); }

struct bins_content bins_content(const struct heap *heap) {
  struct bins_content content = {0};
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    size_t count = bin_blocks(heap, cls);
    content.blocks += count;
    content.bytes += count * class_bytes(cls);
  }
  return content;
}

#ifdef HAK_DEBUG
static bool bin_is_valid(const struct heap *heap, unsigned cls) {
  const struct bin_state *state = &heap->bin_state[cls];
  if (state->base == NULL)
    return true;
  size_t count = bin_count(heap, cls);
  if (state->base[-1] != NULL || count >= state->slots)
    return false;
  for (size_t i = 0; i < count; i++)
    if (!slab_holds(&heap_pool(heap)->slabs, state->base[i], cls))
      return false;
  return true;
}

static bool hand_is_valid(const struct heap *heap, unsigned cls) {
  for (size_t i = 0, count = hand_count(heap, cls); i < count; i++)
    if (!slab_holds(&heap_pool(heap)->slabs, hand_base(heap, cls)[i], cls))
      return false;
  return !bin_is_shut(heap, cls) || bin_count(heap, cls) == 0;
}

bool heap_is_valid(struct heap *heap) {
  size_t granted_bytes = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    const struct bin_state *state = &heap->bin_state[cls];
    if (!bin_is_valid(heap, cls) || !hand_is_valid(heap, cls))
      return false;
    if (state->base)
      granted_bytes += granted_slots(state, state->slots) * class_bytes(cls);
  }
  return granted_bytes == heap->granted_bytes && slab_set_is_valid(&heap_pool(heap)->slabs);
}
#endif
