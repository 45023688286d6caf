/* What happens once: options from the environment, fork handlers. malloc does not wait: options apply from then on. */
#include "api/alloc.h"

#include "base/observers.h"
#include "base/options.h"
#include "base/text.h"
#include "budget/decay.h"
#include "checked/checked.h"
#include "hakmem/hakmem.h"
#include "heap/bins.h"
#include "heap/slow_path.h"
#include "large/guarded.h"
#include "large/packed.h"
#include "os/caller.h"
#include "os/fault.h"
#include "os/os.h"
#include "os/say.h"
#include "pages/fresh.h"
#include "reclaim/background.h"
#include "threads/registry.h"

#include <pthread.h>
#include <string.h>

#define PREFIX "HAKMEM_"

#define VALUE_BYTES_MAX 100 /* the shown part of a value */

/* Prints one line: the variable, its value, and what is allowed or done instead. */
static void report_bad_option(const char *assignment, size_t name_length, enum option_error error) {
  char bytes[VALUE_BYTES_MAX + 400], value[VALUE_BYTES_MAX], name[64];
  struct text text = TEXT_IN(bytes), shown = TEXT_IN(value), name_text = TEXT_IN(name);
  name_text.capacity = min_size(name_length + 1, sizeof name);
  text_visible(&name_text, assignment);
  text_visible(&shown, assignment + name_length + 1);
  if (error == OPTION_UNKNOWN) {
    text_format(&text, "hakmem: %s is no option of hakmem, ignored", name);
  } else {
    const char *cut = shown.length + 1 == sizeof value ? "..." : "";
    text_format(&text, "hakmem: %s=%s%s: bad value, allowed is ", name, value, cut);
    option_allowed(assignment, name_length, &text);
    text_string(&text, "; default kept");
  }
  text_string(&text, " (hak options lists all)\n");
  os_write(2, text.bytes, text.length);
}

static void options_read(void) {
  size_t cursor = 0;
  const char *assignment;
  bool is_any = false;
  while ((assignment = os_environment_next(PREFIX, &cursor)) != NULL) {
    size_t name_length = (size_t)(strchr(assignment, '=') - assignment);
    if (!is_any)
      os_say_remember();
    is_any = true;
    enum option_error error = options_parse(assignment, name_length, assignment + name_length + 1);
    if (error != OPTION_OK)
      report_bad_option(assignment, name_length, error);
  }
}

/* The steps that prepare the child of a fork. No thread is in a slow path then (heap/slow_path.h, W2). */
COLD static void prepare_child(bool is_noticed) {
  heaps_in_child(is_noticed);
  usage_in_child();
  fresh_in_child(background_process());
  /* Before the observers, which may unmap the thread's futex word. */
  background_in_child(is_noticed ? os_process_id() : os_process_id_in_child());
  if (observers.in_child != NULL)
    observers.in_child();
}

/* Our handlers are registered early, so they run last before a fork and first after it. Libraries that were set up
 * earlier still have handlers that run between ours and the fork; they get spare memory. */
static void before_fork(void) {
  background_before_fork();
  if (heaps_of_others() && slow_path_begin()) {
    heaps_sweep_all(false); /* saves the bins of ended threads for the child; they are consistent */
    slow_path_end();
  }
  bool is_quiet = gate_shut() && !thread_is_busy();
  fresh_before_fork(); /* not earlier: what a round that is at work moves would be shared */
  if (is_quiet)
    heaps_before_fork();
  hak_assert(!is_quiet || usage_free() == decay_total(&extents_decay) + decay_total(&big_cache_decay));
  hak_assert(!is_quiet || observers.parts_hold == NULL || observers.parts_hold());
}

COLD static void after_fork_in_parent(void) {
  heaps_in_parent();
  gate_open();
  background_in_parent();
}

/* A signal handler that interrupts this finds the thread busy. So does a handler that forked while its thread was in a
 * slow path; the thread's next slow path calls this function again. is_noticed: no handler of a fork calls, but a slow
 * path that found the child unprepared. */
COLD static void begin_in_child(bool is_noticed) {
  if (gate_child_is_prepared() || !gate_reset() || thread_is_busy())
    return;
  owner_step_begin();
  if (!gate_child_is_prepared()) { /* by a handler that came before this step */
    prepare_child(is_noticed);
    gate_admit();
  }
  owner_step_end();
}

COLD static void after_fork_in_child(void) { begin_in_child(false); }
COLD static void noticed_in_child(void) { begin_in_child(true); }

/* From here on small blocks are checked (checked/checked.h). What was allocated before stays in its slabs. */
static void checks_begin(void) {
  struct pool *pools[CHECKED_POOLS];
  if (option_value(OPTION_CHECKED) != SWITCH_ON || !slow_path_begin())
    return;
  unsigned count = 0;
  while (count < CHECKED_POOLS && (pools[count] = pool_make_shared()) != NULL)
    count++;
  if (count == CHECKED_POOLS && pools[count - 1]->id - pools[0]->id == count - 1)
    checked_begin(pools);
  else
    os_say("hakmem: no memory for checks: HAKMEM_CHECKED is off\n");
  if (heap_current() != NULL)
    heap_flush_all(heap_current());
  slow_path_end();
}

/* Under a low limit the slabs of classes that the program may never use cost too much. */
static void prewarm_bins(void) {
  if (option_value(OPTION_PREWARM) != SWITCH_ON || usage_is_short() || checked_is_on() || !slow_path_begin())
    return;
  if (heap_of_thread() != NULL)
    bins_prewarm(heap_current());
  slow_path_end();
}

__attribute__((constructor(101))) void hak_start(void) {
  gate_child_prepare = noticed_in_child;
  options_read();
  os_stay_loaded();
  background_apply(); /* other constructors may have allocated large objects, with the default options */
  if (os_malloc_is_in_program())
    foreign_malloc_is_ours();
  usage_limits_apply();
  background_prepare();
  if (option_value(OPTION_GUARD_PAGES) == SWITCH_ON)
    guarded_begin();
  checks_begin();
  if (checked_is_on() && option_value(OPTION_CANARY) == SWITCH_ON && option_value(OPTION_ZERO_FREED) == SWITCH_ON)
    packed_seal_begin();
  prewarm_bins();
  if (observers.start != NULL)
    observers.start();
  if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
    os_say("hakmem: no memory for fork handlers: a fork while other threads allocate may hang\n");
}

__attribute__((destructor(101))) static void hak_end(void) {
  if (observers.end != NULL)
    observers.end();
}
