#include "guard/guard.h"

#include "base/options.h"
#include "budget/usage.h"
#include "checked/checked.h"
#include "count/tally.h"
#include "guard/report.h"
#include "guard/slots.h"
#include "hakmem/hakmem.h"
#include "heap/slow_path.h"
#include "inspect/access.h"
#include "inspect/module.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/say.h"
#include "profile/profile.h"
#include "profile/unwind.h"
#include "reclaim/background.h"
#include "threads/watch.h"

#include <errno.h>
#include <stdlib.h>

#define INTERVAL_DEFAULT ((uint64_t)4 << 20)
#define WINDOWS_FROM ((uint64_t)1 << 20)
#define WINDOW_MS 50u
#define WINDOW_SHARE 10u /* of the time, one part is a window */
#define PERIOD_MS ((uint64_t)WINDOW_MS * WINDOW_SHARE)
#define WINDOW_SAMPLES 16u /* more would cost more than a hundredth of the time */

enum window { WINDOW_REST, WINDOW_OPEN, WINDOW_CLOSED }; /* REST: open for long, with the whole interval */

static struct {
  struct lock start_lock; /* before any other lock */
  _Atomic uint32_t window;
  _Atomic uint32_t window_samples; /* left in this window */
  _Atomic uint64_t next_ms;        /* the window changes then */
  _Atomic uint64_t random;
} guard;

_Atomic uint64_t guard_interval;

static uint64_t wanted_interval(void) { return load_relaxed(&guard_interval); }
static bool has_windows(void) { return wanted_interval() >= WINDOWS_FROM; }

/* --- windows --- */

/* What is wanted may change meanwhile, as by hak_guard_stop: the thread that sets it last sets what holds. */
static void set_window(enum window window) {
  uint64_t wait_ms = window == WINDOW_CLOSED ? PERIOD_MS - WINDOW_MS : WINDOW_MS, interval;
  store_relaxed(&guard.window, window);
  store_relaxed(&guard.window_samples, WINDOW_SAMPLES);
  store_relaxed(&guard.next_ms, os_milliseconds() + wait_ms);
  do {
    interval = atomic_load(&guard_interval);
    tally_sample(TALLY_GUARD, window == WINDOW_CLOSED ? 0 : window == WINDOW_OPEN ? interval / WINDOW_SHARE : interval);
  } while (atomic_load(&guard_interval) != interval);
}

uint64_t guard_clock_ms(void) { return has_windows() ? load_relaxed(&guard.next_ms) : 0; }

void guard_clock(bool is_resting) {
  enum window now = (enum window)load_relaxed(&guard.window);
  if (!has_windows() || (is_resting && now == WINDOW_REST))
    return;
  set_window(is_resting ? WINDOW_REST : now == WINDOW_CLOSED ? WINDOW_OPEN : WINDOW_CLOSED);
  tally_broadcast();
}

void guard_look_after_clock(void) {
  if (!has_windows() || background_is_awake())
    return;
  background_wish();
  if (load_relaxed(&guard.window) != WINDOW_REST)
    guard_clock(true);
}

void guard_in_child(void) {
  slots_in_child();
  if (wanted_interval() != 0)
    set_window(WINDOW_REST);
}

/* --- the end of the program --- */

static void look_at_access(const struct os_access *access) {
  const struct slot *slot = slot_of(access->address);
  if (slot)
    report_misuse(MISUSE_ACCESS, slot, access->address, access);
}

static _Noreturn void end_program(enum misuse misuse, const struct slot *slot, uintptr_t address) {
  report_misuse(misuse, slot, address, NULL);
  abort();
}

/* --- start and stop --- */

/* While memory is short there are no samples, so the slots wait for the first one. */
static bool start_samples(uint64_t interval) {
  HOLD_LOCK(&guard.start_lock); /* the handler and the report are prepared by one thread */
  if ((!usage_is_short() && !slots_make()) || !os_access_watch(look_at_access))
    return false;
  uint64_t random;
  os_random(&random, sizeof random);
  store_relaxed(&guard.random, random);
  os_module_program_find();
  atomic_store(&guard_interval, min_size(interval, TALLY_INTERVAL_MAX));
  set_window(WINDOW_REST);
  tally_broadcast();
  if (has_windows())
    background_wish();
  return true;
}

int hak_guard_start(size_t interval_bytes) {
  KEEP_ERRNO;
  if (!slow_path_begin_patiently())
    return EBUSY;
  bool is_started = start_samples(interval_bytes ? interval_bytes : INTERVAL_DEFAULT);
  slow_path_end();
  return is_started ? 0 : ENOMEM;
}

int hak_guard_stop(void) {
  KEEP_ERRNO;
  if (!slow_path_begin_patiently())
    return EBUSY;
  atomic_store(&guard_interval, 0);
  tally_sample(TALLY_GUARD, 0);
  slow_path_end();
  return 0;
}

void guard_begin(void) {
  long interval = option_value(OPTION_GUARD);
  if (interval == 0 || !slow_path_begin())
    return;
  struct heap *heap = heap_current();
  bool is_started = start_samples((uint64_t)interval);
  if (is_started && heap)
    heap_follow_at_once(heap); /* this thread is in no malloc */
  slow_path_end();
  if (!is_started)
    os_say("hakmem: HAKMEM_GUARD does nothing: no memory for guarded blocks, or the system refuses the handler\n");
  else if (usage_is_short())
    os_say("hakmem: HAKMEM_GUARD has no samples while memory is short: a limit of the process (ulimit) is low\n");
}

/* --- samples --- */

static uint64_t random_below(uint64_t below) {
  uint64_t drawn = mix_bits(atomic_fetch_add_explicit(&guard.random, MIX_STEP, memory_order_relaxed));
  return (uint64_t)((unsigned __int128)drawn * below >> 64);
}

/* A window has few samples, and a time without windows as many in a period. */
static bool may_sample(void) {
  if (!has_windows())
    return true;
  uint32_t left = load_relaxed(&guard.window_samples);
  if (left == 0) {
    if (load_relaxed(&guard.window) != WINDOW_REST || os_milliseconds() < load_relaxed(&guard.next_ms) + PERIOD_MS)
      return false;
    set_window(WINDOW_REST);
    left = WINDOW_SAMPLES;
  }
  store_relaxed(&guard.window_samples, left - 1); /* two threads may take one for another */
  return true;
}

/* Tells whether a pick of the tally is one of ours. The heap profile may pick more often. */
static bool is_ours(struct heap *heap, size_t bytes, uint32_t picks) {
  uint64_t interval = tally_interval(TALLY_GUARD);
  if (interval == 0 || bytes > SLOT_BYTES_MAX || usage_is_short())
    return false;
  uint64_t stands_for = max_size(bytes, picks * heap_tally(heap)->interval);
  if (stands_for < interval && random_below(interval) >= stands_for)
    return false;
  return may_sample();
}

static void note_stack(struct slot_stack *stack, uintptr_t site, struct unwind_stack *known) {
  stack->thread = os_thread_shown();
  stack->depth = unwind_from(site, stack->addresses, SLOT_DEPTH_MAX, known);
}

static struct slot *guarded_slot(struct heap *heap, size_t size, size_t alignment, uintptr_t site) {
  struct slot *slot = slot_take(size, alignment);
  if (slot == NULL)
    return NULL;
  note_stack(&slot->allocated, site, heap_stack_notes(heap));
  slot->is_in_profile = false;
  slot_publish(slot);
  return slot;
}

/* A request for exactly the size of a class may rely on the class's alignment. */
void *guard_small_sample(struct heap *heap, unsigned cls, size_t size, uintptr_t site, bool *is_held) {
  size_t bytes = class_bytes(cls), alignment = size == bytes ? bytes & -bytes : 16;
  uint32_t picks = tally_picks(heap, cls, bytes);
  if (picks == 0)
    return NULL;
  if (!is_ours(heap, bytes, picks))
    return profile_small_sample(heap, cls, picks, site, is_held);
  tally_allocated(heap, cls, 1);
  heap_unlock(heap);
  struct slot *slot = guarded_slot(heap, size, alignment, site);
  if (slot == NULL) {
    *is_held = heap_lock(heap);
    tally_allocated(heap, cls, -1);
    return *is_held ? profile_small_sample(heap, cls, picks, site, is_held) : NULL;
  }
  if (profile_is_on()) {
    slot->is_in_profile = true;
    profile_add(heap, slot->block, bytes, picks, site);
  }
  return slot->block;
}

/* A heap profile needs the picks of checked blocks for itself. */
void *guard_checked_sample(size_t size, size_t alignment, uintptr_t site) {
  struct heap *heap = heap_current();
  if (heap == NULL || profile_is_on() || size > SLOT_BYTES_MAX || !heap_lock(heap))
    return NULL;
  heap_follow_tally(heap);
  uint32_t picks = tally_picks(heap, 0, size);
  bool is_drawn = picks > 0 && is_ours(heap, size, picks);
  heap_unlock(heap);
  struct slot *slot = is_drawn ? guarded_slot(heap, size, alignment, site) : NULL;
  return slot ? slot->block : NULL;
}

static struct slot *live_slot(const void *block) {
  struct slot *slot = slot_of((uintptr_t)block);
  bool is_live = slot && slot->block == block && atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_LIVE;
  return is_live ? slot : NULL;
}

size_t guard_size(const void *block) {
  const struct slot *slot = live_slot(block);
  return slot ? slot->size : 0;
}

static _Noreturn void end_wrong_free(const void *block) {
  static const struct slot nowhere;
  const struct slot *slot = slot_of((uintptr_t)block);
  if (slot == NULL)
    slot = &nowhere;
  end_program(slot->block == block ? MISUSE_DOUBLE_FREE : MISUSE_FREE, slot, (uintptr_t)block);
}

void guard_free(void *block, bool is_inside) {
  struct unwind_stack unknown = {0};
  struct heap *heap = is_inside ? heap_current() : NULL;
  struct slot *slot = live_slot(block);
  if (slot == NULL || !slot_claim(slot))
    end_wrong_free(block);
  const char *written = slot_written(slot);
  if (written)
    end_program(MISUSE_WRITTEN, slot, (uintptr_t)written);
  note_stack(&slot->freed, 0, heap ? heap_stack_notes(heap) : &unknown);
  if (heap && !checked_is_on())
    tally_freed_of_other(heap, hak_class_of(slot->size));
  slot_end(slot, is_inside);
}
