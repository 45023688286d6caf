#include "pages/huge.h"

#include "budget/usage.h"
#include "os/filter.h"
#include "os/lock.h"
#include "os/os.h"
#include "policy/huge_policy.h"

#define UNFILLED_SHARE 8
#define SLABS_SHARE 4
#define SMALL_PAGE_BYTES 4096u
#define NOTED_BYTES_MAX ((size_t)16 << 20) /* of a mapping, because asking what is resident takes time */

static struct {
  struct lock lock; /* guards state. Try-lock: a missed note is acceptable */
  struct huge_state state;
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

enum extent_bank huge_bank_for_superslab(void) {
  return huge_is_wanted(SUPERSLAB_BYTES, false) ? EXTENT_HUGE : EXTENT_PLAIN;
}

enum extent_bank huge_bank_for_large(void) {
  return huge_is_wanted(SUPERSLAB_BYTES, true) ? EXTENT_HUGE : EXTENT_PLAIN;
}

bool huge_for_mapping(size_t bytes) {
  return atomic_load_explicit(&huge.dense, memory_order_relaxed) && huge_is_wanted(bytes, true);
}

void huge_probe(char *base) {
  uint64_t start_ns = os_nanoseconds();
  *(volatile char *)base = 0;
  uint64_t elapsed_ns = os_nanoseconds() - start_ns;
  if (lock_try(&huge.lock)) {
    huge_note_stall(&huge.state, SUPERSLAB_BYTES, elapsed_ns, os_milliseconds());
    lock_give(&huge.lock);
  }
}

void huge_note_mapping(const char *base, size_t bytes) {
  if (!os_may_call())
    return;
  bytes = min_size(bytes, NOTED_BYTES_MAX);
  size_t resident = os_resident_bytes(base, bytes);
  atomic_store_explicit(&huge.dense, resident >= bytes - bytes / UNFILLED_SHARE, memory_order_relaxed);
  if (lock_try(&huge.lock)) {
    huge_note_sparse(&huge.state, resident, bytes, os_milliseconds());
    lock_give(&huge.lock);
  }
}
