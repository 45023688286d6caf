#include "pages/huge.h"

#include "budget/usage.h"
#include "os/filter.h"
#include "os/lock.h"
#include "os/os.h"
#include "policy/huge_policy.h"

#define UNFILLED_SHARE 8
#define SLABS_SHARE 4
#define SMALL_PAGE_BYTES 4096u
#define JUDGED_BYTES_MAX ((size_t)16 << 20) /* of a mapping: what is asked after takes time */

static struct {
  struct lock lock; /* of state; only tried: what is missed is one note of many */
  struct huge_state state;
  _Atomic bool dense; /* a mapping was seen that was used for the most part */
} huge;

static bool wanted(size_t bytes, bool is_large) {
  enum huge_mode mode = (enum huge_mode)option_value(OPTION_HUGE);
  if (os_page_bytes() != SMALL_PAGE_BYTES) /* with longer ones a huge page is no longer 2 MiB */
    return false;
  /* Slabs fill a huge page slowly, and a page's worth of each class at a time: only a heap four times as big
   * gains by them. */
  size_t heap_bytes = is_large ? usage_taken_large() : usage_held() / SLABS_SHARE;
  if (mode == HUGE_OFF || heap_bytes < HUGE_HEAP_BYTES_MIN || !lock_try(&huge.lock))
    return false;
  bool yes = huge_wanted(&huge.state, mode, is_large, heap_bytes, bytes, os_milliseconds());
  lock_give(&huge.lock);
  return yes;
}

enum extent_pool huge_pool_for_superslab(void) { return wanted(SUPERSLAB_BYTES, false) ? EXTENT_HUGE : EXTENT_PLAIN; }

enum extent_pool huge_pool_for_large(void) { return wanted(SUPERSLAB_BYTES, true) ? EXTENT_HUGE : EXTENT_PLAIN; }

bool huge_for_mapping(size_t bytes) {
  return atomic_load_explicit(&huge.dense, memory_order_relaxed) && wanted(bytes, true);
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

void huge_judge_mapping(const char *base, size_t bytes) {
  if (!os_may_call())
    return;
  bytes = min_size(bytes, JUDGED_BYTES_MAX);
  size_t resident = os_resident_bytes(base, bytes);
  atomic_store_explicit(&huge.dense, resident >= bytes - bytes / UNFILLED_SHARE, memory_order_relaxed);
  if (lock_try(&huge.lock)) {
    huge_note_sparse(&huge.state, resident, bytes, os_milliseconds());
    lock_give(&huge.lock);
  }
}
