#include "pages/huge.h"

#include "budget/usage.h"
#include "os/filter.h"
#include "os/lock.h"
#include "os/os.h"
#include "policy/huge_policy.h"

#include <string.h>

#define SLABS_SHARE 4

#define WATCHED_COUNT 8u
#define SAMPLES 4u /* of a range */
#define SAMPLE_BYTES UNIT_BYTES

struct watched {
  const char *base; /* NULL: none */
  size_t bytes;
};

static struct {
  struct lock lock; /* guards state, watched and next_watched. Try-lock: a missed note is acceptable */
  struct huge_state state;
  struct watched watched[WATCHED_COUNT]; /* the last extents of large objects on small pages */
  unsigned next_watched;
  _Atomic bool dense; /* the last judged mapping was mostly resident */
} huge;

static bool huge_is_wanted(size_t bytes, bool is_large) {
  enum huge_mode mode = (enum huge_mode)option_value(OPTION_HUGE);
  if (os_page_bytes() != SMALL_PAGE_BYTES) /* with other page sizes a huge page is not 2 MiB */
    return false;
  /* Slabs fill a huge page slowly, so only a heap that is four times as big gains by huge pages. */
  size_t heap_bytes = is_large ? usage_taken_large() : usage_held() / SLABS_SHARE;
  if (mode == HUGE_OFF || heap_bytes < HUGE_HEAP_BYTES_MIN || !lock_try(&huge.lock))
    return false;
  bool yes = huge_wanted(&huge.state, mode, is_large, heap_bytes, bytes, os_milliseconds());
  lock_give(&huge.lock);
  return yes;
}

enum extent_bank huge_bank(bool is_large) { return huge_is_wanted(ROW_BYTES, is_large) ? EXTENT_HUGE : EXTENT_PLAIN; }

void huge_watch(const char *base, size_t bytes) {
  if (option_value(OPTION_HUGE) == HUGE_OFF || !lock_try(&huge.lock))
    return;
  huge.watched[huge.next_watched++ % WATCHED_COUNT] = (struct watched){.base = base, .bytes = bytes};
  lock_give(&huge.lock);
}

/* Returns how much of a range was never touched; all of it where the system may not be asked. Of a range that is longer
 * than the samples, by these. None is from its end, which the object may not reach. */
static size_t untouched_bytes(const char *base, size_t bytes) {
  if (bytes <= SAMPLES * SAMPLE_BYTES)
    return bytes - os_resident_bytes(base, bytes);
  size_t resident = 0, step = round_down(bytes / (SAMPLES + 1), UNIT_BYTES);
  for (unsigned i = 0; i < SAMPLES; i++)
    resident += os_resident_bytes(base + i * step, SAMPLE_BYTES);
  return bytes - bytes / UNIT_BYTES * resident / SAMPLES;
}

bool huge_is_dense(const char *base, size_t bytes) {
  return untouched_bytes(base, bytes) <= bytes / HUGE_UNFILLED_SHARE;
}

/* Judges the watched ranges together: one may be just about to be written. The lock is held. */
static void judge_watched(size_t heap_bytes) {
  size_t bytes = 0, untouched = 0;
  for (unsigned i = 0; i < WATCHED_COUNT; i++)
    bytes += huge.watched[i].bytes;
  for (unsigned i = 0; i < WATCHED_COUNT && untouched <= bytes / HUGE_UNFILLED_SHARE; i++)
    if (huge.watched[i].base != NULL)
      untouched += untouched_bytes(huge.watched[i].base, huge.watched[i].bytes);
  if (huge_note_written(&huge.state, sub_sat(bytes, untouched), bytes, heap_bytes))
    memset(huge.watched, 0, sizeof huge.watched);
}

bool huge_is_earned(size_t bytes) {
  if (!lock_try(&huge.lock))
    return false;
  bool is_earned = huge_spend(&huge.state, bytes);
  if (!is_earned && os_may_call()) {
    judge_watched(usage_taken_large());
    is_earned = huge_spend(&huge.state, bytes);
  }
  lock_give(&huge.lock);
  return is_earned;
}

bool huge_for_mapping(size_t bytes) { return load_relaxed(&huge.dense) && huge_is_wanted(bytes, true); }

static void note_touch(uint64_t start_ns) {
  uint64_t elapsed_ns = os_nanoseconds() - start_ns;
  if (lock_try(&huge.lock)) {
    huge_note_stall(&huge.state, elapsed_ns, os_milliseconds());
    lock_give(&huge.lock);
  }
}

void huge_probe(char *base, size_t bytes) {
  size_t offset = -(uintptr_t)base & (ROW_BYTES - 1);
  if (offset >= bytes) /* the object before it touched this page */
    return;
  uint64_t start_ns = os_nanoseconds();
  *(volatile char *)(base + offset) = 0;
  note_touch(start_ns);
}

bool huge_for_slabs(size_t slab_bytes, size_t dense_bytes) {
  enum huge_mode mode = (enum huge_mode)option_value(OPTION_HUGE);
  if (os_page_bytes() != SMALL_PAGE_BYTES || !os_may_call() || !lock_try(&huge.lock))
    return false;
  bool yes = huge_wanted_for_slabs(&huge.state, mode, slab_bytes, dense_bytes, os_milliseconds());
  lock_give(&huge.lock);
  return yes;
}

void huge_fill(char *base) {
  uint64_t start_ns = os_nanoseconds();
  os_populate_huge(base, ROW_BYTES);
  note_touch(start_ns);
}

void huge_note_mapping(const char *base, size_t bytes) {
  if (os_may_call())
    store_relaxed(&huge.dense, huge_is_dense(base, bytes));
}
