/* queue.h: heaps of threads that work as queues: they replace the oldest block of a large set, over and over.
 *
 * A bin is a stack: malloc takes what was freed last. The number of live blocks of a class goes up and down by chance,
 * so the bin gives out older blocks now and then, and the set loses its order in memory. The program reads its blocks
 * in that order, and waits for ever more cache lines (docs/decisions/0080). So the heap of such a thread is split
 * (heap/split.h), and malloc takes the block of a bin that was freed first.
 *   Q1  While heap->is_queue, the blocks of a class lie from the top of malloc's bin up to the top of free's bin. The
 *       slot in front of them is NULL, so malloc's fast path finds an empty bin
 *   Q2  an owner that ends in malloc may leave a NULL as the first block. bin_bottom passes over it. The next owner's
 *       heap begins whole
 *   Q3  a heap that is split to count is no queue, nor is a heap of a hak_heap
 */
#pragma once

#include "heap/bin.h"
#include "heap/slow_path.h"

/* Call queue_note_overflow when a bin with at least QUEUE_LOOKS blocks is full, before room is made, and
 * queue_note_refill when a bin of a queue's heap is empty. The heap becomes a queue when such full bins are in the
 * order of addresses, while the number of live bytes is steady. It is made whole again when that ends. */
#define QUEUE_LOOKS 80u
void queue_note_overflow(struct heap *heap, unsigned cls);
void queue_note_refill(struct heap *heap);
/* Makes the heap whole again, if it is a queue. */
void queue_end(struct heap *heap);
/* Call when a bin of a queue's heap is full: moves the blocks down, if enough slots below them are free, and sorts the
 * newest ones by address. Tells whether there is room then. */
bool queue_make_room(struct heap *heap, unsigned cls);
/* Turns the blocks of a bin around. */
void queue_reverse(struct heap *heap, unsigned cls);

/* With fewer slots between the oldest block and the array's end malloc takes the newest block, as elsewhere. So short
 * bins are stacks, and so is the bin of a program that works no more as a queue: its blocks stay where they are, and
 * need no slow calls to move down. */
#define QUEUE_SLOTS_MIN 16
static inline bool queue_is_stack(const struct hak_bin *bin) { return bin[HAK_SPLIT].end - bin->top < QUEUE_SLOTS_MIN; }

/* Takes a block of a class. bin: malloc's. NULL: there is none. In a slow path. */
static ALWAYS_INLINE void *queue_take_oldest(struct hak_bin *bin) {
  void **oldest = bin->top;
  if (UNLIKELY(oldest == bin[HAK_SPLIT].top))
    return NULL;
  void *block = *oldest;
  __atomic_store_n(oldest, NULL, __ATOMIC_RELAXED); /* first: the fast path in a handler finds an empty bin */
  atomic_signal_fence(memory_order_seq_cst);
  top_store(bin, oldest + 1);
  return block;
}
static inline void *queue_take(struct hak_bin *bin) {
  return queue_is_stack(bin) ? hak_bin_pop(bin + HAK_SPLIT) : queue_take_oldest(bin);
}

/* As hak_bin_pop, in a step of the owner: a handler may push blocks meanwhile. It takes none, because the thread is
 * busy. */
static ALWAYS_INLINE void *queue_take_newest(struct hak_bin *bin) {
  void **top = __atomic_load_n(&bin->top, __ATOMIC_RELAXED), *block;
  do
    block = top[-1];
  while (block != NULL &&
         !__atomic_compare_exchange_n(&bin->top, &top, top - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return block;
}

/* Takes a block outside of slow paths. NULL, too, if the thread's heap is no queue, or if the thread is busy.
 * is_missed: split_try got nothing from the bin, so its count is taken back. All is done in a step of the owner. A
 * handler before it may have made the heap whole: then this is no queue any more, and the bin has no count. */
static ALWAYS_INLINE void *queue_pop(struct hak_bin *bin, bool is_missed) {
  bool is_busy = thread_is_busy(); /* a handler in a step of the owner */
  void *block = NULL;
  owner_step_begin();
  struct hak_front *front = hak_self;
  if (LIKELY(front->split) && LIKELY((size_t)(bin - front->bins) < HAK_SPLIT)) {
    if (is_missed)
      split_missed(bin);
    if (LIKELY(!is_busy) && ((struct heap *)front)->is_queue)
      block = queue_is_stack(bin) ? queue_take_newest(bin + HAK_SPLIT) : queue_take_oldest(bin);
  }
  if (LIKELY(!is_busy))
    owner_step_end();
  return block;
}
