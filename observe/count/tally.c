#include "count/tally.h"

#include "base/options.h"
#include "heap/bins.h"
#include "heap/ids.h"
#include "heap/slow_path.h"
#include "os/os.h"
#include "pages/metadata.h"

#define NO_SAMPLE (INT64_MAX / 2)

_Atomic bool tally_broadcast_pending;
static _Atomic uint64_t interval_wanted;

bool tally_is_on(void) { return atomic_load_explicit(&split_wanted, memory_order_acquire) % 2 != 0; }

static bool is_counting(void) {
  return option_value(OPTION_COUNTING) == COUNTING_ON ||
         atomic_load_explicit(&interval_wanted, memory_order_relaxed) != 0;
}

static void count_change(void) {
  uint32_t wanted = atomic_load_explicit(&split_wanted, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&split_wanted, &wanted, wanted + (is_counting() == wanted % 2 ? 2 : 1),
                                                memory_order_release, memory_order_relaxed))
    ;
  atomic_store_explicit(&tally_broadcast_pending, true, memory_order_release);
  struct heap *heap = heap_current();
  if (heap && !thread_is_busy() && is_counting())
    heap_set_key(heap, HAK_SPLIT);
}

void tally_apply(void) {
  if (is_counting() != tally_is_on())
    count_change();
}

void tally_sample(uint64_t interval) {
  if (atomic_exchange_explicit(&interval_wanted, interval, memory_order_relaxed) != interval)
    count_change();
}

void tally_broadcast(void) {
  if (!atomic_exchange_explicit(&tally_broadcast_pending, false, memory_order_acquire) || !tally_is_on())
    return;
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap)) {
    lock_take(&heap->lock);
    if (heap->split_seen != atomic_load_explicit(&split_wanted, memory_order_relaxed) && tally_is_on())
      heap_set_key(heap, HAK_SPLIT);
    lock_give(&heap->lock);
  }
}

/* --- samples --- */

/* Marsaglia, Xorshift RNGs, 2003. */
static uint64_t random_below(struct tally *tally, uint64_t below) {
  uint64_t x = tally->random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  tally->random = x;
  return (uint64_t)((unsigned __int128)x * below >> 64);
}

static void samples_begin(struct tally *tally, uint64_t interval) {
  tally->interval = interval;
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++) {
    struct class_tally *class = &tally->classes[cls];
    class->until = interval ? (int64_t)random_below(tally, interval) : NO_SAMPLE;
    class->until_stratum = interval ? (int64_t)interval : NO_SAMPLE;
  }
}

uint32_t tally_picks(struct heap *heap, unsigned cls, size_t bytes) {
  struct tally *tally = heap->tally;
  if (heap->split == 0 || tally->interval == 0)
    return 0;
  if (bytes >= tally->interval)
    return 1;
  struct class_tally *class = &tally->classes[cls];
  uint32_t picks = 0;
  while (class->until < (int64_t)bytes) {
    class->until = class->until_stratum + (int64_t)random_below(tally, tally->interval);
    class->until_stratum += (int64_t)tally->interval;
    picks++;
  }
  if (picks > 0 || cls == 0) { /* other blocks go through the hand, which counts them */
    class->until -= (int64_t)bytes;
    class->until_stratum -= (int64_t)bytes;
  }
  return picks;
}

/* --- a heap --- */

static struct tally *tally_make(const struct heap *heap) {
  struct tally *tally = metadata_take_forever(sizeof *tally);
  if (tally)
    tally->random = (os_nanoseconds() ^ (uint64_t)heap->id << 32) | 1;
  return tally;
}

void tally_follow(struct heap *heap) {
  heap->split_seen = atomic_load_explicit(&split_wanted, memory_order_acquire);
  bool is_split = heap->split_seen % 2 != 0;
  if (is_split && heap->tally == NULL)
    heap->tally = tally_make(heap);
  is_split = is_split && heap->tally != NULL; /* without memory nothing is counted here */
  if (is_split == (heap->split != 0) && is_split)
    bins_split(heap, false); /* the blocks in the hands are no samples */
  if (is_split != (heap->split != 0))
    bins_split(heap, is_split);
  else
    heap_set_key(heap, heap->split); /* the request is done already */
  if (is_split)
    samples_begin(heap->tally, atomic_load_explicit(&interval_wanted, memory_order_relaxed));
}

void tally_counts(struct class_counts out[HAK_CLASS_COUNT]) {
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++)
    out[cls] = (struct class_counts){0};
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap)) {
    lock_take(&heap->lock);
    for (unsigned cls = 0; heap->tally && cls < HAK_CLASS_COUNT; cls++) {
      struct class_counts counts = bin_counts(heap, cls);
      out[cls].allocated += counts.allocated;
      out[cls].freed += counts.freed;
    }
    lock_give(&heap->lock);
  }
}
