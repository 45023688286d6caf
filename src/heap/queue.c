#include "heap/queue.h"

#define QUEUE_BYTES_MIN ((size_t)4 << 20) /* outside the pool's slabs; smaller sets stay in the processor's caches */
#define CHANGED_SHARE 4u                  /* a set whose bytes change by this fraction is built or dropped */
#define NEEDED_FIRST 2u                   /* the score that makes a queue, at first */
#define NEEDED_GROWTH 4u /* of it at each end of a queue: each class of a set that is dropped in order may score */
#define NEEDED_MAX 192u
#define KEPT_MAX 8u /* the score, of bins in no order, that ends it */
/* A bin is in order if most of its newest blocks lie behind those that were freed so much earlier. What a refill
 * brought lies in the other order, in which it is to be taken. */
#define PAIR_DISTANCE 16u
#define PAIRS (QUEUE_LOOKS - PAIR_DISTANCE)
#define PAIRS_TO_BEGIN 42u /* of 64; in any order once in 200 bins */
#define PAIRS_TO_STAY 37u  /* once in 8 */
#define ROOM_SHARE 4u      /* blocks are moved down if this part of the slots gets free */
/* Then so many of the newest are put in the order of addresses, if more than this fraction of them lies in front of the
 * one before. So the order comes back that was lost before the queue was known. */
#define SORTED_MAX 256u
#define FALLS_SHARE 32u

static unsigned pairs_in_order(void *const *top, unsigned count) {
  unsigned pairs = 0;
  for (void *const *block = top - count; block < top; block++)
    pairs += (uintptr_t)block[0] > (uintptr_t)block[-(ptrdiff_t)PAIR_DISTANCE];
  return pairs;
}

/* Looks at a quarter first. */
static bool is_in_order(void *const *top, unsigned pairs_min) {
  return pairs_in_order(top, PAIRS / 4) >= pairs_min / 4 && pairs_in_order(top, PAIRS) >= pairs_min;
}

static size_t set_bytes(const struct heap *heap) { return slab_set_taken_bytes(&heap_pool(heap)->slabs); }

static bool may_be_queue(const struct heap *heap, size_t bytes) {
  const struct queue *queue = &heap->queue;
  return bytes >= QUEUE_BYTES_MIN && bytes >= queue->bytes - queue->bytes / CHANGED_SHARE && heap_life(heap) == 0 &&
         !heap_is_counted(heap) && load_relaxed(&split_wanted) % 2 == 0;
}

static void queue_begin(struct heap *heap) {
  heap->queue.needed = heap->queue.in_order;
  heap->queue.in_order = KEPT_MAX;
  heap->is_queue = true;
  heap_split(heap, true);
}

void queue_end(struct heap *heap) {
  heap->queue.in_order = 0;
  if (!heap->is_queue)
    return;
  heap->queue.needed = (uint8_t)min_size((size_t)NEEDED_GROWTH * heap->queue.needed, NEEDED_MAX);
  heap_split(heap, false);
}

void queue_note_refill(struct heap *heap) {
  if (set_bytes(heap) > heap->queue.bytes + heap->queue.bytes / CHANGED_SHARE)
    queue_end(heap);
}

void queue_note_overflow(struct heap *heap, unsigned cls) {
  struct queue *queue = &heap->queue;
  if (heap->bin_state[cls].streak < 0) /* of a row of overflows the first one counts */
    return;
  size_t bytes = set_bytes(heap);
  if (!may_be_queue(heap, bytes)) {
    queue_end(heap);
    queue->bytes = bytes;
    return;
  }
  if (!is_in_order(bin_of(heap, cls)->top, heap->is_queue ? PAIRS_TO_STAY : PAIRS_TO_BEGIN))
    queue->in_order -= queue->in_order > 0;
  else
    queue->in_order += queue->in_order < (heap->is_queue ? KEPT_MAX : NEEDED_MAX);
  queue->bytes = max_size(queue->bytes, bytes);
  if (heap->is_queue && queue->in_order == 0)
    queue_end(heap);
  else if (!heap->is_queue && queue->in_order >= max_size(queue->needed, NEEDED_FIRST))
    queue_begin(heap);
}

/* Sorts blocks by address (D. L. Shell's sort, with M. Ciura's gaps), unless they almost are sorted. */
static void blocks_sort(void **blocks, size_t count) {
  static const uint8_t gaps[] = {132, 57, 23, 10, 4, 1};
  size_t falls = 0;
  for (size_t i = 1; i < count; i++)
    falls += (uintptr_t)blocks[i - 1] > (uintptr_t)blocks[i];
  for (size_t step = 0; step < sizeof gaps && falls > count / FALLS_SHARE; step++)
    for (size_t gap = gaps[step], i = gap; i < count; i++) {
      void *block = blocks[i];
      size_t at = i;
      for (; at >= gap && (uintptr_t)blocks[at - gap] > (uintptr_t)block; at -= gap)
        blocks[at] = blocks[at - gap];
      blocks[at] = block;
    }
}

bool queue_make_room(struct heap *heap, unsigned cls) {
  const struct bin_state *state = &heap->bin_state[cls];
  if (state->base == NULL || (size_t)(bin_bottom(heap, cls) - state->base) < state->slots / ROOM_SHARE)
    return false;
  bin_settle(heap, cls);
  size_t count = bin_count(heap, cls), newest = min_size(count, SORTED_MAX);
  if (bin_of(heap, cls)->top == bin_of(heap, cls)->end) /* queue_note_overflow looks at their order */
    return false;
  blocks_sort(bin_bottom(heap, cls) + count - newest, newest);
  return true;
}

void queue_reverse(struct heap *heap, unsigned cls) {
  void **first = bin_bottom(heap, cls);
  for (void **last = bin_of(heap, cls)->top - 1; first < last; first++, last--) {
    void *block = *first;
    *first = *last;
    *last = block;
  }
}
