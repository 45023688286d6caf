#include "count/tally.h"

#include "base/observers.h"
#include "base/options.h"
#include "checked/checked.h"
#include "os/os.h"
#include "pages/metadata.h"
#include "threads/watch.h"

#define NO_SAMPLE (INT64_MAX / 2)

_Atomic bool tally_broadcast_pending;
static _Atomic uint64_t intervals[TALLY_USERS];

uint64_t tally_interval(enum tally_user user) { return load_relaxed(&intervals[user]); }

static uint64_t interval_wanted(void) {
  uint64_t first = tally_interval(TALLY_PROFILE), second = tally_interval(TALLY_GUARD);
  return first == 0 || (second != 0 && second < first) ? second : first;
}

bool tally_is_on(void) { return atomic_load_explicit(&split_wanted, memory_order_acquire) % 2 != 0; }

static bool is_counting(void) { return option_value(OPTION_COUNTING) == SWITCH_ON || interval_wanted() != 0; }

/* Two threads may change at once what is wanted, and a signal handler may interrupt this. The one that changes
 * split_wanted last looks again, so that what holds then is in force. */
static void count_change(void) {
  do {
    uint32_t wanted = load_relaxed(&split_wanted);
    while (!atomic_compare_exchange_weak(&split_wanted, &wanted, wanted + (is_counting() == wanted % 2 ? 2 : 1)))
      ;
    atomic_store_explicit(&tally_broadcast_pending, true, memory_order_release);
  } while (is_counting() != tally_is_on());
  heap_split_ask();
}

void tally_apply(void) {
  if (is_counting() != tally_is_on())
    count_change();
}

/* Where blocks are checked, the core asks for samples by the flag for large objects. */
static bool are_large_wanted(void) {
  return tally_interval(TALLY_PROFILE) != 0 || (tally_interval(TALLY_GUARD) != 0 && checked_is_on());
}

/* The thread that stores last stores what holds. */
void tally_sample(enum tally_user user, uint64_t interval) {
  uint64_t before = interval_wanted();
  atomic_store(&intervals[user], interval);
  bool are_wanted;
  do
    atomic_store(&observers_large_made, are_wanted = are_large_wanted());
  while (are_wanted != are_large_wanted());
  if (interval_wanted() != before)
    count_change();
}

void tally_broadcast(void) {
  if (atomic_exchange_explicit(&tally_broadcast_pending, false, memory_order_acquire))
    heaps_split_ask();
}

/* --- samples --- */

static uint64_t random_below(struct tally *tally, uint64_t below) {
  return (uint64_t)((unsigned __int128)mix_bits(tally->random += MIX_STEP) * below >> 64);
}

static int64_t until_unit(unsigned cls) { return cls ? (int64_t)class_bytes(cls) : 1; }

static void set_until_bytes(struct heap *heap, unsigned cls, int64_t bytes) {
  tally_set_until(heap, cls, bytes / until_unit(cls));
  heap_tally(heap)->classes[cls].until_rest = bytes % until_unit(cls);
}

static void samples_begin(struct heap *heap, uint64_t interval) {
  struct tally *tally = heap_tally(heap);
  tally->interval = interval;
  for (unsigned cls = 0; cls < HAK_CLASS_COUNT; cls++) {
    int64_t until = interval ? (int64_t)random_below(tally, interval) : NO_SAMPLE;
    set_until_bytes(heap, cls, until);
    tally->classes[cls].until_stratum = interval ? (int64_t)interval - until : 0;
  }
}

uint32_t tally_picks(struct heap *heap, unsigned cls, size_t bytes) {
  struct tally *tally = heap_tally(heap);
  if (tally == NULL || tally->interval == 0)
    return 0;
  if (bytes >= tally->interval)
    return 1;
  struct class_tally *class = &tally->classes[cls];
  int64_t until = tally_until(heap, cls) * until_unit(cls) + class->until_rest;
  uint32_t picks = 0;
  for (; until < (int64_t)bytes; picks++) {
    int64_t drawn = (int64_t)random_below(tally, tally->interval);
    until += class->until_stratum + drawn;
    class->until_stratum = (int64_t)tally->interval - drawn;
  }
  if (picks > 0 || cls == 0) /* the others are counted when they are popped */
    set_until_bytes(heap, cls, until - (int64_t)bytes);
  return picks;
}

/* --- a heap --- */

static struct tally *tally_make(uint32_t heap_id) {
  struct tally *tally = metadata_take_forever(sizeof *tally);
  if (tally)
    tally->random = os_nanoseconds() ^ (uint64_t)heap_id << 32;
  return tally;
}

/* A sample outlives its hak_heap, so blocks of such a heap are only counted. */
void tally_follow(struct heap *heap) {
  if (heap_split_follow(heap, tally_make))
    samples_begin(heap, heap_is_private(heap) ? 0 : interval_wanted());
}
