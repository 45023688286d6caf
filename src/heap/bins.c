/* Bins: filled from the slabs half at a time, grown when they overflow, shrunk when they idle. */
#include "heap/heap.h"

#include "base/options.h"
#include "map/metadata.h"
#include "os/fault.h"
#include "policy/purge_policy.h"

#include <string.h>

_Static_assert(BIN_SLOTS_MAX * sizeof(void *) <= (size_t)1 << METADATA_ORDER_MAX, "the biggest bin has an array");

#define REFILLS_TO_GROW 16  /* refills in a row, without a flush: the bin is too small */
#define REFILLS_TO_FILL 3   /* in a row: nothing comes back, so half of the slots need not stay free for it */
#define TICK_SLOW_CALLS 256 /* slow calls between two looks at all bins */
#define LOOKS_TO_SHRINK 8   /* looks between two decisions */

static struct bin_limits limits(void) {
  return (struct bin_limits){
      .slots_initial = (size_t)option_value(OPTION_BIN_SLOTS),
      .bin_bytes_max = (size_t)option_value(OPTION_BIN_KB_MAX) << 10,
      .heap_bytes_max = (size_t)option_value(OPTION_HEAP_KB_MAX) << 10,
  };
}

static unsigned array_order(size_t slots) {
  unsigned order = (unsigned)__builtin_ctzl(slots) + 3;
  return order < METADATA_ORDER_MIN ? METADATA_ORDER_MIN : order;
}

static size_t bin_count(const struct heap *heap, unsigned cls) {
  void **base = heap->bin_state[cls].base;
  return base ? (size_t)(__atomic_load_n(&heap->front.bins[cls].top, __ATOMIC_RELAXED) - base) : 0;
}

static void bin_set_top(struct heap *heap, unsigned cls, void **top) {
  __atomic_store_n(&heap->front.bins[cls].top, top, __ATOMIC_RELAXED);
}

/* Moves the bin's blocks into an array of `slots` slots. False when memory is out. */
static bool bin_set_slots(struct heap *heap, unsigned cls, size_t slots) {
  struct bin_state *state = &heap->bin_state[cls];
  size_t count = bin_count(heap, cls);
  hak_assert(count < slots);
  void **array = metadata_take(array_order(slots));
  if (array == NULL)
    return false;
  array[0] = NULL;
  if (state->base) {
    memcpy(array + 1, state->base, count * sizeof(void *));
    metadata_give(state->base - 1, array_order(state->slots));
  }
  state->base = array + 1;
  state->slots = (uint32_t)slots;
  bin_set_top(heap, cls, state->base + count);
  heap->front.bins[cls].end = state->base + slots - 1;
  return true;
}

static bool bin_open(struct heap *heap, unsigned cls) {
  struct bin_limits all = limits();
  size_t slots = bin_slots_initial(&all, class_bytes(cls));
  heap->bin_state[cls].slots_initial = (uint32_t)slots;
  return bin_set_slots(heap, cls, slots);
}

static bool bin_grow(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  struct bin_limits all = limits();
  size_t bytes = class_bytes(cls);
  size_t slots = state->slots;
  if (!bin_may_double(&all, slots, bytes, heap->granted_bytes, slab_set_taken_bytes(&heap->slabs)) ||
      !bin_set_slots(heap, cls, slots * 2))
    return false;
  heap->granted_bytes += slots * bytes;
  heap->counters.bin_growths++;
  return true;
}

/* Gives the `count` oldest blocks of a bin to the slabs. */
static void bin_flush(struct heap *heap, unsigned cls, size_t count) {
  void **base = heap->bin_state[cls].base;
  size_t rest = bin_count(heap, cls) - count;
  slab_set_give(&heap->slabs, cls, base, count);
  memmove(base, base + count, rest * sizeof(void *));
  bin_set_top(heap, cls, base + rest);
  heap->counters.flushes++;
  heap->counters.flushed_blocks += count;
}

/* Fills up to `wanted` slots of an empty bin from the slabs. False when memory is out. */
static bool bin_fill(struct heap *heap, unsigned cls, size_t wanted) {
  struct bin_state *state = &heap->bin_state[cls];
  /* The array's upper end is free: take into it downwards, then the bin's top is the lowest block. */
  void **slots_end = state->base + wanted;
  size_t taken = slab_set_take(&heap->slabs, cls, slots_end, wanted);
  if (taken == 0)
    return false;
  if (taken < wanted)
    memmove(state->base, slots_end - taken, taken * sizeof(void *));
  heap->counters.refilled_blocks += taken;
  bin_set_top(heap, cls, state->base + taken);
  return true;
}

void *bin_refill(struct heap *heap, unsigned cls) {
  struct bin_state *state = &heap->bin_state[cls];
  struct hak_bin *bin = &heap->front.bins[cls];
  if (state->base == NULL && !bin_open(heap, cls))
    return NULL;
  heap->counters.refills++;
  if (inbox_has_mail(heap)) {
    inbox_drain_to_bins(heap);
    void *block = hak_bin_pop(bin);
    heap->counters.refills_from_inbox += block != NULL;
    if (block)
      return block;
  }
  if (++state->streak >= REFILLS_TO_GROW && bin_grow(heap, cls))
    state->streak = 0;
  if (state->slots == 1) { /* no room for a block beside the NULL */
    void *only[1];
    heap->counters.refilled_blocks++;
    return slab_set_take(&heap->slabs, cls, only + 1, 1) ? only[0] : NULL;
  }
  size_t wanted = state->streak >= REFILLS_TO_FILL ? state->slots - 1 : (state->slots + 1) / 2;
  return bin_fill(heap, cls, wanted) ? hak_bin_pop(bin) : NULL;
}

void bins_prewarm(struct heap *heap) {
  lock_take(&heap->lock);
  for (unsigned cls = 1; cls < HAK_TINY_CLASS_COUNT; cls++)
    if (heap->bin_state[cls].base == NULL &&
        (!bin_open(heap, cls) || !bin_fill(heap, cls, heap->bin_state[cls].slots / 2)))
      break;
  lock_give(&heap->lock);
}

static void bin_push(struct heap *heap, unsigned cls, void *block) {
  void **top = heap->front.bins[cls].top;
  *top = block;
  bin_set_top(heap, cls, top + 1);
}

/* Room for one block more: there is some, or the bin is opened, or grown. */
static bool bin_make_room(struct heap *heap, unsigned cls) {
  if (heap->bin_state[cls].base == NULL)
    return bin_open(heap, cls);
  return heap->front.bins[cls].top != heap->front.bins[cls].end || bin_grow(heap, cls);
}

void bin_put(struct heap *heap, unsigned cls, void *block) {
  if (bin_make_room(heap, cls))
    bin_push(heap, cls, block);
  else
    slab_set_give(&heap->slabs, cls, &block, 1);
}

void bin_overflow(struct heap *heap, unsigned cls, void *block) {
  heap->bin_state[cls].streak = 0;
  heap->counters.bin_overflows++;
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
  size_t slots = bin_slots_after(state->slots, state->slots_initial, state->high);
  if (slots < state->slots && bin_count(heap, cls) < slots) {
    size_t bytes = (state->slots - slots) * class_bytes(cls);
    if (bin_set_slots(heap, cls, slots)) {
      hak_assert(heap->granted_bytes >= bytes);
      heap->granted_bytes -= bytes;
      heap->counters.bin_shrinks++;
    }
  }
}

/* Fill levels are seen at slow calls only, so low and high are estimates; they cost the fast path
 * nothing. */
void bins_tick(struct heap *heap) {
  if (++heap->ticks % TICK_SLOW_CALLS != 0)
    return;
  if (heap->holes_class == 0 && slabs_waste(heap->slabs.slab_bytes, slab_set_taken_bytes(&heap->slabs),
                                            (size_t)option_value(OPTION_KEEP_MB) << 20))
    heap->holes_class = 1;
  bool decide = heap->ticks % (TICK_SLOW_CALLS * LOOKS_TO_SHRINK) == 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct bin_state *state = &heap->bin_state[cls];
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
    }
  }
}

void bins_flush_all(struct heap *heap) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++)
    if (bin_count(heap, cls) > 0)
      bin_flush(heap, cls, bin_count(heap, cls));
}

void bins_drop_all(struct heap *heap) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++)
    if (heap->bin_state[cls].base)
      bin_set_top(heap, cls, heap->bin_state[cls].base);
}

size_t bin_blocks(const struct heap *heap, unsigned cls) { return bin_count(heap, cls); }

struct bins_content bins_content(const struct heap *heap) {
  struct bins_content content = {0};
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    size_t count = bin_count(heap, cls);
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
    if (!slab_holds(&heap->slabs, state->base[i], cls))
      return false;
  return true;
}

bool heap_is_valid(struct heap *heap) {
  size_t granted_bytes = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    const struct bin_state *state = &heap->bin_state[cls];
    if (!bin_is_valid(heap, cls))
      return false;
    if (state->base)
      granted_bytes += (state->slots - state->slots_initial) * class_bytes(cls);
  }
  return granted_bytes == heap->granted_bytes && slab_set_is_valid(&heap->slabs);
}
#endif
