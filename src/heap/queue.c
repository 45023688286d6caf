#include "heap/queue.h"

#define QUEUE_BYTES_MIN ((size_t)4 << 20) /* outside the pool's slabs; smaller sets stay in the processor's caches */
#define CHANGED_SHARE 4u                  /* a set whose bytes change by this fraction is built or dropped */
#define NEEDED_FIRST 2u                   /* the score that makes a queue, at first; each end of a queue doubles it */
#define NEEDED_MAX 192u
#define KEPT_MAX 8u /* the score, of bins in no order, that ends it */
/* A bin is in order if most of its newest blocks lie behind those that were freed so much earlier. What a refill
 * brought lies in the other order, in which it is to be taken. */
#define PAIR_DISTANCE 16u
#define PAIRS (QUEUE_LOOKS - PAIR_DISTANCE)
#define PAIRS_TO_BEGIN 42u /* of 64; in any order once in 200 bins */
#define PAIRS_TO_STAY 37u  /* once in 8 */
#define ROOM_SHARE 4u      /* blocks are moved down if this part of the slots gets free */

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
  heap->queue.needed = (uint8_t)min_size((size_t)2 * heap->queue.needed, NEEDED_MAX);
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

bool queue_make_room(struct heap *heap, unsigned cls) {
  const struct bin_state *state = &heap->bin_state[cls];
  if (state->base == NULL || (size_t)(bin_bottom(heap, cls) - state->base) < state->slots / ROOM_SHARE)
    return false;
  bin_settle(heap, cls);
  return bin_of(heap, cls)->top != bin_of(heap, cls)->end;
}

void queue_reverse(struct heap *heap, unsigned cls) {
  void **first = bin_bottom(heap, cls);
  for (void **last = bin_of(heap, cls)->top - 1; first < last; first++, last--) {
    void *block = *first;
    *first = *last;
    *last = block;
  }
}
