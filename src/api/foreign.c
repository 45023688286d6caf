#include "api/foreign.h"

#include "base/counters.h"
#include "base/options.h"
#include "large/range.h"
#include "os/fault.h"

#define REPORTS_MAX 10u

static _Atomic bool malloc_is_ours;
static _Atomic unsigned reports;

void foreign_malloc_is_ours(void) { store_relaxed(&malloc_is_ours, true); }

COLD void foreign_free(void *block) {
  counter_note(foreign_frees);
  long mode = option_value(OPTION_FOREIGN);
  bool is_alone = load_relaxed(&malloc_is_ours) &&
                  option_value(OPTION_DEEPBIND) == DEEPBIND_DROP; /* else libc's malloc may serve a library */
  if (!is_alone && !option_is_set(OPTION_FOREIGN))
    mode = FOREIGN_IGNORE;
  if (mode == FOREIGN_IGNORE)
    return;
  if (mode == FOREIGN_ABORT && range_was_unmapped(block))
    fault_double_free(block);
  if (mode == FOREIGN_ABORT)
    fault_foreign(block);
  if (atomic_fetch_add_explicit(&reports, 1, memory_order_relaxed) < REPORTS_MAX)
    fault_foreign_reported(block);
}
