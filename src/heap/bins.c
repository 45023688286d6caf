/* All bins of a heap. */
#include "heap/bins.h"

#include "base/bits.h"
#include "budget/usage.h"
#include "heap/bin.h"
#include "policy/bin_policy.h"

#define CLASSES (HAK_CLASS_COUNT - 1)
#define LOOKS_OF_STEP 8
#define LOOKS_TO_SHRINK 8 /* looks at a bin between two decisions to shrink */

COLD void bins_prewarm(struct heap *heap) {
  struct pool *pool = heap_pool(heap);
  if (!pool_lock(pool))
    return;
  for (unsigned cls = 1; cls < HAK_TINY_CLASS_COUNT; cls++)
    if (heap->bin_state[cls].base == NULL &&
        (!bin_open(heap, cls) || !bin_set_slots(heap, cls, heap->bin_state[cls].slots_initial) ||
         !bin_fill(heap, cls, heap->bin_state[cls].slots / 2)))
      break;
  pool_unlock(pool);
}

/* Bins are trimmed in steps, one in each slow call. The budget of a step is STEP_BLOCKS flushed blocks. A class that it
 * visits counts as VISIT_BLOCKS of them, a slab that closes as CLOSE_BLOCKS: they take as long. */
#define STEP_BLOCKS 32u
#define VISIT_BLOCKS 2u
#define CLOSE_BLOCKS 8u
/* Where blocks are long, the memory at stake is more, and the program's own page faults take longer than the step. */
#define STEP_SHARE 512u
#define EMPTY_LOOKS_MAX 32u /* slabs of a class that a step looks at for empty ones */

/* What a step has done, in blocks. */
struct step {
  const struct slab_set *slabs;
  uint64_t closed; /* slabs_closed at its begin */
  size_t blocks;   /* without the slabs that closed since */
};

static struct step step_begin(const struct heap *heap) {
  const struct slab_set *slabs = &heap_pool(heap)->slabs;
  return (struct step){.slabs = slabs, .closed = slabs->counters.slabs_closed};
}
static size_t step_left(const struct step *step, size_t budget) {
  return sub_sat(budget, step->blocks + CLOSE_BLOCKS * (size_t)(step->slabs->counters.slabs_closed - step->closed));
}

/* Gives back a part of *left blocks of a bin. Returns how many. */
static size_t give_back(struct heap *heap, unsigned cls, uint32_t *left, size_t most, bool are_freed) {
  if (*left == 0)
    return 0;
  size_t part = min_size(min_size(*left, bin_count(heap, cls)), most);
  *left = part == most ? *left - (uint32_t)part : 0;
  if (part > 0)
    bin_flush(heap, cls, part, are_freed);
  return part;
}

/* Returns the next class to follow: one whose bin may have blocks, or, unless it is a fall, one that may keep an empty
 * slab. */
static unsigned next_to_follow(const struct heap *heap, unsigned from, bool is_fall) {
  size_t filled = bit_find(heap->bins_work.filled, from, HAK_CLASS_COUNT, true);
  return (unsigned)(is_fall ? filled : bit_find(heap_pool(heap)->slabs.kept, from, filled, true));
}

/* The bins follow the slabs (enum bins_follow). Where the slabs have grown it does not count as freed, except for those
 * that close: a program that only grows needs no background thread. A step goes on where the last one stopped. */
static void follow_step(struct heap *heap, size_t budget) {
  struct slab_set *slabs = &heap_pool(heap)->slabs;
  struct bins_work *work = &heap->bins_work;
  struct step step = step_begin(heap);
  bool is_fall = work->reason == FOLLOW_FALL;
  size_t slab_bytes = slabs->slab_bytes;
  unsigned cls = work->follows;
  for (size_t most; (most = step_left(&step, budget)) > 0; cls++) {
    cls = next_to_follow(heap, cls, is_fall);
    if (cls == HAK_CLASS_COUNT)
      break;
    struct bin_state *state = &heap->bin_state[cls];
    if (work->follow_left == 0) {
      size_t unneeded = min_size(state->low, bin_count(heap, cls));
      work->follow_left = (uint32_t)(is_fall ? bin_surplus(unneeded) : unneeded);
    }
    state->turns = 0;
    step.blocks += VISIT_BLOCKS + give_back(heap, cls, &work->follow_left, most, is_fall);
    if (work->follow_left > 0)
      break;
    state->low = (uint32_t)bin_count(heap, cls);
    bit_set(work->filled, cls, state->low > 0);
    if (!is_fall)
      slab_set_close_empty_of(slabs, cls, EMPTY_LOOKS_MAX);
  }
  work->follows = (uint8_t)(cls < HAK_CLASS_COUNT ? cls : 0);
  if (!is_fall)
    usage_freed_add(sub_sat(slab_bytes, slabs->slab_bytes));
}

/* What the slabs have now is what they are compared with next: slabs that close as the bins follow, and are opened
 * again, are no growth, unless they were so many that it was a fall. */
static void follow_if_due(struct heap *heap) {
  size_t slab_bytes = heap_pool(heap)->slabs.slab_bytes;
  struct bins_work *work = &heap->bins_work;
  enum bins_follow follow = bins_follow(heap->slab_bytes_seen, slab_bytes);
  if (LIKELY(follow == FOLLOW_NOTHING))
    return;
  work->reason = (uint8_t)follow;
  work->follows = 1;
  work->follow_left = 0;
  heap->slab_bytes_seen = slab_bytes;
}

#define UNPIN_BLOCKS 32u             /* the budget of a step where slabs were opened or closed */
#define UNPIN_BLOCKS_MAX_LARGE 4096u /* likewise after a large object, at most */
#define UNPIN_SHARE 512u /* bytes of a large object for each block: eight a page take about as long as its page fault */

_Static_assert(SLABS_MANY < PINNED_SLABS_MIN + 1, "unpin looks at classes of many slabs");

/* Tells whether slabs closed. Only those count as freed. */
static bool unpin_bins(struct heap *heap, unsigned classes, size_t budget) {
  struct slab_set *slabs = &heap_pool(heap)->slabs;
  struct step step = step_begin(heap);
  size_t slab_bytes = slabs->slab_bytes;
  if (LIKELY(!slabs_are_mostly_free(slab_bytes, slab_set_taken_bytes(slabs))))
    return false;
  unsigned cls = 0;
  for (size_t most; (most = step_left(&step, budget)) > 0; cls++) {
    cls = (unsigned)bit_find(slabs->many, cls, classes, true);
    if (cls >= classes)
      break;
    uint32_t left = (uint32_t)bin_count(heap, cls);
    const struct slab_class *class = &slabs->classes[cls];
    if (left == 0 ||
        !bin_pins_slabs(left, class->taken_blocks, class_bytes(cls), class->slab_count, class_slab_bytes(cls)))
      continue;
    step.blocks += VISIT_BLOCKS + give_back(heap, cls, &left, most, false);
    slab_set_close_empty_of(slabs, cls, EMPTY_LOOKS_MAX);
  }
  usage_freed_add(sub_sat(slab_bytes, slabs->slab_bytes));
  return slabs->counters.slabs_closed != step.closed;
}

void bins_unpin(struct heap *heap) { unpin_bins(heap, HAK_CLASS_COUNT, UNPIN_BLOCKS); }

#define UNPIN_BYTES_MIN ((size_t)1 << 20) /* that became free in slabs since a look that found nothing */

void bins_after_large(struct heap *heap, size_t bytes) {
  struct pool *pool = heap_pool(heap);
  size_t free_bytes = sub_sat(usage_slabs(), slab_set_taken_bytes(&pool->slabs)); /* other pools' slabs count, too */
  heap->slab_free_seen = min_size(heap->slab_free_seen, free_bytes);
  if (LIKELY(free_bytes - heap->slab_free_seen < UNPIN_BYTES_MIN) || heap->inherited_calls > 0 ||
      !lock_try(&pool->lock))
    return;
  size_t most = min_size(bytes / UNPIN_SHARE, UNPIN_BLOCKS_MAX_LARGE);
  bool is_found = unpin_bins(heap, HAK_TINY_CLASS_COUNT, most);
  heap->slab_free_seen = is_found ? 0 : free_bytes;
  pool_unlock(pool);
}

/* Looks at one bin. At each LOOKS_TO_SHRINKth look it gives back, *most blocks at most, and shrinks. False: it has more
 * to give back. */
static bool bin_look(struct heap *heap, unsigned cls, bool decide, size_t *most) {
  struct bin_state *state = &heap->bin_state[cls];
  if (state->base == NULL)
    return true;
  uint32_t count = (uint32_t)bin_count(heap, cls);
  if (count > 0)
    bit_set(heap->bins_work.filled, cls, true);
  state->low = (uint32_t)min_size(state->low, count);
  state->high = count > state->high ? count : state->high;
  if (!decide)
    return true;
  uint32_t *left = &heap->bins_work.look_left;
  if (*left == 0)
    *left = (uint32_t)bin_surplus(state->low);
  *most -= give_back(heap, cls, left, *most, true);
  if (*left > 0)
    return false;
  bin_shrink(heap, cls);
  state->low = state->high = (uint32_t)bin_count(heap, cls);
  state->is_taken_from = false;
  return true;
}

/* Looks at the next few bins. It stays at one that has more to give back. */
static void bins_look(struct heap *heap) {
  struct bins_work *work = &heap->bins_work;
  size_t most = STEP_BLOCKS;
  for (unsigned i = 0; i < LOOKS_OF_STEP && most > 0; i++) {
    unsigned round = work->looks / CLASSES, cls = 1 + work->looks % CLASSES;
    if (!bin_look(heap, cls, round % LOOKS_TO_SHRINK == LOOKS_TO_SHRINK - 1, &most))
      return;
    work->looks++;
  }
}

/* Fill levels are read at slow calls only. So low and high are estimates, and cost the fast path nothing. */
NOINLINE void bins_step(struct heap *heap, unsigned cls) {
  if (UNLIKELY(heap->bins_work.follows != 0)) { /* the looks wait */
    follow_step(heap, STEP_BLOCKS + class_bytes(cls) / STEP_SHARE);
    return;
  }
  heap->ticks = 0;
  follow_if_due(heap);
  bins_look(heap);
}

bool bins_flush_all(struct heap *heap) {
  bool is_empty = true;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    if (heap->bin_state[cls].base == NULL)
      continue;
    if (bin_count(heap, cls) > 0)
      bin_flush(heap, cls, bin_count(heap, cls), true);
    if (LIKELY(bin_count(heap, cls) == 0))
      bin_close(heap, cls);
    else
      is_empty = false;
  }
  return is_empty;
}

COLD void bins_drop_all(struct heap *heap) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++)
    if (heap->bin_state[cls].base)
      bin_set_top(heap, cls, bin_bottom(heap, cls));
}

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
bool heap_is_valid(struct heap *heap) {
  size_t granted_bytes = 0;
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    const struct bin_state *state = &heap->bin_state[cls];
    if (!bin_is_valid(heap, cls))
      return false;
    if (state->base)
      granted_bytes += bin_granted_slots(state, state->slots) * class_bytes(cls);
  }
  return granted_bytes == heap->granted_bytes && slab_set_is_valid(&heap_pool(heap)->slabs);
}
#endif
