#include "budget/usage.h"

#include "base/counters.h"
#include "base/options.h"
#include "base/probe.h"
#include "budget/decay.h"
#include "os/cgroup.h"
#include "os/filter.h"
#include "os/os.h"
#include "policy/limit_policy.h"

_Alignas(CACHE_LINE) _Atomic size_t usage_at[USAGE_PLACES];

static struct {
  _Atomic size_t taken_peak;
  _Atomic size_t limit, high, keep_max;
  _Atomic bool limit_of_resident;
  _Atomic size_t granted, granted_before; /* in this window and the one before it */
  _Atomic uint64_t granted_since_ms;
  _Atomic size_t leaving;       /* in system calls that give pages back */
  _Atomic uint32_t asked_group; /* enum asked */
  _Atomic size_t resident;      /* of the process, when usage_look read it last */
  _Atomic uint64_t resident_ms; /* when that was */
  _Atomic uint64_t refused_ms;  /* when memory ran out, 0: never */
  _Alignas(CACHE_LINE) _Atomic size_t freed;
  _Alignas(CACHE_LINE) _Atomic size_t moves_begun, moves_ended;
} usage = {.limit = SIZE_MAX, .high = SIZE_MAX, .keep_max = SIZE_MAX};

#define GROUP_BYTES_MIN ((size_t)16 << 20)
#define GRANTED_MS 100u /* memory counts as untouched for this long to twice as long after it was given out */
#define RESIDENT_MS 10u /* validity of a reading of the resident bytes; much shorter, so that later grants count too */
_Static_assert(RESIDENT_MS < GRANTED_MS, "what was given out since the reading is remembered");

enum asked { NOT_ASKED, BEING_ASKED, ASKED }; /* whether the cgroup was read; ASKED too if a filter forbids reading */

static struct {
  _Atomic uint32_t begun, done;  /* how often limits_apply was */
  struct os_memory_limits group; /* constant from ASKED on */
} limits;

#define NO_LIMITS ((struct os_memory_limits){.max_bytes = SIZE_MAX, .high_bytes = SIZE_MAX})

static void figure_add(_Atomic size_t *figure, size_t bytes) {
  atomic_fetch_add_explicit(figure, bytes, memory_order_relaxed);
}

/* Subtracts, down to 0: the child of a fork begins anew with some figures (usage_in_child), also where a signal handler
 * that forks has interrupted one who will subtract. */
static void figure_take_back(_Atomic size_t *figure, size_t bytes) {
  size_t before = load_relaxed(figure);
  while (!atomic_compare_exchange_weak_explicit(figure, &before, sub_sat(before, bytes), memory_order_relaxed,
                                                memory_order_relaxed))
    ;
}

/* The cached bytes are read last, so that what was freed meanwhile is not taken for live. */
size_t usage_taken_large(void) {
  size_t bytes = atomic_load_explicit(&usage_at[USAGE_LARGE], memory_order_acquire);
  return sub_sat(bytes, decay_total(&big_cache_decay));
}
size_t usage_held(void) {
  return usage_slabs() + load_relaxed(&usage_at[USAGE_LARGE]) + load_relaxed(&usage_at[USAGE_FREE]);
}
size_t usage_taken(void) { return usage_slabs() + usage_taken_large(); }
size_t usage_taken_peak(void) { return load_relaxed(&usage.taken_peak); }
size_t usage_free(void) { return load_relaxed(&usage_at[USAGE_FREE]) + decay_total(&big_cache_decay); }
size_t usage_learned(void) { return decay_bytes(&big_cache_decay, BY_ENGINE) + decay_bytes(&extents_decay, BY_ENGINE); }
void usage_freed_add(size_t bytes) { figure_add(&usage.freed, bytes); }
size_t usage_freed(void) { return load_relaxed(&usage.freed); }

/* Writes only what differs. */
COLD void usage_in_child(void) {
  if (atomic_load(&usage.asked_group) == BEING_ASKED) /* by a thread that does not exist in the child */
    atomic_store(&usage.asked_group, NOT_ASKED);
  if (load_relaxed(&usage.leaving) != 0) /* threads that freed without a slow path are not in the child */
    store_relaxed(&usage.leaving, 0);
  if (load_relaxed(&usage.resident_ms) != 0) /* the parent's */
    store_relaxed(&usage.resident_ms, 0);
  uint32_t begun = atomic_load(&limits.begun);
  if (atomic_load(&limits.done) != begun) { /* by hak_option_set, outside of slow paths: that thread is not here */
    atomic_store(&limits.done, begun);
    usage_limits_apply();
  }
}

void usage_note_peak(void) {
  size_t now = usage_taken(), peak = load_relaxed(&usage.taken_peak);
  while (now > peak && !atomic_compare_exchange_weak_explicit(&usage.taken_peak, &peak, now, memory_order_relaxed,
                                                              memory_order_relaxed))
    ;
}

/* The memory orders ensure that a reader who sees a counter changed sees the move begun, and that a reader who sees the
 * move ended sees both counters changed. */
void usage_move_begin(size_t bytes) { atomic_fetch_add_explicit(&usage.moves_begun, bytes, memory_order_acq_rel); }
void usage_move_end(size_t bytes) { atomic_fetch_add_explicit(&usage.moves_ended, bytes, memory_order_acq_rel); }
size_t usage_moves_begun(void) { return atomic_load_explicit(&usage.moves_begun, memory_order_acquire); }
size_t usage_moves_ended(void) { return atomic_load_explicit(&usage.moves_ended, memory_order_acquire); }

size_t usage_limit(void) { return load_relaxed(&usage.limit); }
size_t usage_high(void) { return load_relaxed(&usage.high); }

static void limits_apply(void) {
  bool is_known = atomic_load_explicit(&usage.asked_group, memory_order_acquire) == ASKED;
  struct os_memory_limits group = is_known ? limits.group : NO_LIMITS;
  size_t option_bytes = (size_t)option_value(OPTION_LIMIT_MB) << 20;
  size_t hard = limit_hard(option_bytes, group.max_bytes, group.swap_bytes);
  store_relaxed(&usage.limit_of_resident, hard < limit_hard(option_bytes, SIZE_MAX, 0));
  usage_keep_cap(SIZE_MAX); /* the next check of the limits lowers it again */
  store_relaxed(&usage.limit, hard);
  store_relaxed(&usage.high, min_size(hard, group.high_bytes));
}

/* Signal handlers come here, too. A thread that has stored begins again if another one began meanwhile. So what holds
 * then is stored last, and if all have done, that is in force. */
COLD void usage_limits_apply(void) {
  uint32_t begun;
  atomic_fetch_add(&limits.begun, 1);
  do {
    begun = atomic_load(&limits.begun);
    limits_apply();
  } while (atomic_load(&limits.begun) != begun);
  atomic_fetch_add(&limits.done, 1);
}

/* Other threads go on meanwhile as if there were no group. False: another thread reads it, or has read it. */
COLD static bool read_group(void) {
  uint32_t not_asked = NOT_ASKED;
  if (!atomic_compare_exchange_strong(&usage.asked_group, &not_asked, BEING_ASKED))
    return false;
  limits.group = NO_LIMITS;
  if (option_value(OPTION_CGROUP) == CGROUP_ON && os_may_read_files())
    os_memory_limits_read(&limits.group);
  atomic_store_explicit(&usage.asked_group, ASKED, memory_order_release);
  usage_limits_apply();
  return true;
}

/* Memory that was given out recently may not be touched yet. It counts in addition to the resident bytes, for one to
 * two windows. */
static void granted_move_on(void) {
  uint64_t now_ms = os_milliseconds();
  uint64_t since_ms = load_relaxed(&usage.granted_since_ms);
  if (now_ms - since_ms > GRANTED_MS &&
      atomic_compare_exchange_strong_explicit(&usage.granted_since_ms, &since_ms, now_ms, memory_order_relaxed,
                                              memory_order_relaxed)) {
    size_t granted = load_relaxed(&usage.granted); /* in the first GRANTED_MS since since_ms */
    store_relaxed(&usage.granted_before, now_ms - since_ms > 2 * (uint64_t)GRANTED_MS ? 0 : granted);
    figure_take_back(&usage.granted, granted); /* what others add meanwhile stays */
  }
}

/* Returns the resident bytes that usage_look read; more than any limit if the reading is too old. */
static size_t resident_known(void) {
  bool is_recent = os_milliseconds() - atomic_load_explicit(&usage.resident_ms, memory_order_acquire) <= RESIDENT_MS;
  return is_recent ? load_relaxed(&usage.resident) : SIZE_MAX / 2;
}

/* Adds bytes to a sum that counts against a limit, if they fit together with `counted`. Bytes that do not fit are never
 * added, not even for a moment, because other threads' requests would be refused for them. */
static bool add_if_admitted(_Atomic size_t *sum, size_t bytes, size_t limit, size_t (*counted)(void)) {
  for (;;) {
    size_t before = load_relaxed(sum);
    if (before + bytes < bytes || !limit_admits(limit, counted(), before + bytes))
      return false;
    if (!atomic_compare_exchange_weak_explicit(sum, &before, before + bytes, memory_order_relaxed,
                                               memory_order_relaxed))
      continue;
    if (limit_admits(limit, counted(), load_relaxed(sum))) /* what others were promised may have been counted since */
      return true;
    figure_take_back(sum, bytes);
  }
}

/* Pages on their way to the system are not resident any more, but the group is charged for them until the call ends. */
static size_t resident_and_before(void) {
  return resident_known() + load_relaxed(&usage.granted_before) + load_relaxed(&usage.leaving);
}

COLD static bool fits_resident(size_t limit, size_t bytes) {
  granted_move_on();
  return add_if_admitted(&usage.granted, bytes, limit, resident_and_before);
}

/* A limit of the program's own counts what is held. What was swapped out is not known: all swap counts as used. */
COLD size_t usage_charged(void) {
  size_t resident = option_value(OPTION_LIMIT_MB) == 0 ? os_resident_of_process() : 0;
  return resident != 0 ? resident + limits.group.swap_bytes : SIZE_MAX;
}

static size_t held_and_tables(void) { return usage_held() + usage_tables(); }

bool usage_is_unread(void) { return load_relaxed(&usage.asked_group) == NOT_ASKED; }

static bool asks_group(size_t bytes) {
  return UNLIKELY(usage_is_unread()) && !limit_admits(GROUP_BYTES_MIN, usage_held(), bytes);
}

bool usage_look(void) {
  if (read_group() || load_relaxed(&usage.asked_group) == BEING_ASKED)
    return true; /* while another thread reads the group, a request is refused only because of that: it tries again */
  if (!load_relaxed(&usage.limit_of_resident) || !os_may_read_files())
    return false;
  size_t resident = os_resident_of_process();
  if (resident == 0) /* it cannot be read */
    return false;
  store_relaxed(&usage.resident, resident);
  atomic_store_explicit(&usage.resident_ms, os_milliseconds(), memory_order_release);
  return true;
}

bool usage_reserve(size_t bytes) {
  if (asks_group(bytes))
    return false;
  size_t limit = usage_limit();
  bool of_resident = load_relaxed(&usage.limit_of_resident);
  /* A promise counts from the moment it is made, so two threads never get the same bytes. */
  if (LIKELY(add_if_admitted(&usage_at[USAGE_PROMISED], bytes, limit, held_and_tables))) {
    if (UNLIKELY(of_resident)) {
      granted_move_on();
      figure_add(&usage.granted, bytes);
    }
    return true;
  }
  if (!of_resident || !fits_resident(limit, bytes)) {
    HAK_PROBE(limit_reached, bytes, usage_held(), limit);
    return false;
  }
  usage_move(USAGE_NOWHERE, USAGE_PROMISED, bytes);
  return true;
}

#define SHORT_LIMIT_BYTES ((size_t)768 << 20)
#define SHORT_SHARE 4
#define TIGHT_SHARE 3
#define FILLING_SHARE 16
#define OWN_SHARE 2
#define SHORT_MS 10000u
#define NEAR_BYTES ((size_t)4 << 30) /* while more is left than this, a limit is not near */

/* Tells whether more than a part of a limit is used, and little is left. */
static bool limit_is_near(size_t limit, size_t share, size_t used_bytes) {
  return used_bytes > limit / share && sub_sat(limit, used_bytes) < NEAR_BYTES;
}

static bool limit_is_short(size_t limit) {
  return limit < SHORT_LIMIT_BYTES || limit_is_near(limit, SHORT_SHARE, usage_held());
}

/* The system has less than this beside what is held. A request that is long beside that says nothing about others. */
void usage_note_refusal(size_t bytes) {
  if (limit_is_short(usage_held() + bytes))
    store_relaxed(&usage.refused_ms, os_milliseconds());
}

static bool ran_out(void) {
  uint64_t refused_ms = load_relaxed(&usage.refused_ms);
  return UNLIKELY(refused_ms != 0) && os_milliseconds() - refused_ms < SHORT_MS;
}

bool usage_is_short(void) {
  size_t limit = os_memory_limit();
  return (limit != SIZE_MAX && limit_is_short(limit)) || ran_out();
}

bool usage_is_filling(void) { return limit_is_near(os_memory_limit(), FILLING_SHARE, usage_held()) || ran_out(); }

bool usage_fills_limit(void) { return limit_is_near(usage_limit(), FILLING_SHARE, usage_held()); }

bool usage_is_tight(void) { return limit_is_near(os_memory_limit(), TIGHT_SHARE, usage_held()) || ran_out(); }

bool usage_own_limit_is_near(void) {
  size_t limit = (size_t)option_value(OPTION_LIMIT_MB) << 20;
  return UNLIKELY(limit != 0) && limit_is_near(limit, OWN_SHARE, usage_taken());
}

size_t usage_left(void) { return sub_sat(os_memory_limit(), usage_taken()); }

#define KEEP_SHARE 8u /* this fraction of what is taken may stay as free memory */

void usage_keep_cap(size_t bytes) { store_relaxed(&usage.keep_max, bytes); }
size_t usage_keep_max(void) { return load_relaxed(&usage.keep_max); }
static size_t keep_by_preset(void) { return ((size_t)option_value(OPTION_KEEP_MB) << 20) + usage_taken() / KEEP_SHARE; }
size_t usage_keep(void) { return min_size(usage_keep_max(), keep_by_preset()); }
size_t usage_keep_learned(void) {
  return min_size(usage_keep_max(), max_size(keep_by_preset(), sub_sat(usage_taken_peak(), usage_taken())));
}

/* From this size on, a purge also undoes what the program did to the pages: that costs little beside the purge. */
#define RESTORED_BYTES_MIN ((size_t)1 << 20)

static enum purge_result purge_pages(void *address, size_t size, long mode) {
  if (mode == PURGE_OFF)
    return PURGE_REFUSED;
  if (size >= RESTORED_BYTES_MIN)
    os_restore(address, size);
  if (mode == PURGE_FREE && os_purge_lazily(address, size))
    return PURGE_GONE_LAZILY;
  return os_purge(address, size) ? PURGE_GONE : PURGE_REFUSED;
}

/* Where only a part of a huge page was given back, the kernel charges the group for all of it, until it looks for
 * memory. It may look in vain, and kill. The neighbours of the part were resident with it. */
static void split_huge_at_ends(uintptr_t begin, uintptr_t end) {
  if (LIKELY(!load_relaxed(&usage.limit_of_resident)) || option_value(OPTION_HUGE) == HUGE_OFF)
    return;
  if (begin % ROW_BYTES != 0)
    os_huge_split((void *)(begin - os_page_bytes()));
  if (end % ROW_BYTES != 0)
    os_huge_split((void *)end);
}

bool pages_unmap(void *address, size_t size) {
  figure_add(&usage.leaving, size);
  bool is_done = os_unmap(address, size);
  if (is_done)
    split_huge_at_ends((uintptr_t)address, (uintptr_t)address + size);
  figure_take_back(&usage.leaving, size);
  return is_done;
}

enum purge_result pages_purge(void *address, size_t size) {
  figure_add(&usage.leaving, size);
  enum purge_result result = purge_pages(address, size, option_value(OPTION_PURGE));
  if (result == PURGE_GONE)
    split_huge_at_ends((uintptr_t)address, (uintptr_t)address + size);
  figure_take_back(&usage.leaving, size);
  if (result == PURGE_REFUSED) {
    counter_note(purges_refused);
    return result;
  }
  counter_note(purges);
  counter_add(purged_bytes, size);
  HAK_PROBE(purge, address, size, result == PURGE_GONE_LAZILY);
  return result;
}

size_t pages_purge_inside(const void *begin, const void *end) {
  uintptr_t pages = round_up((uintptr_t)begin, os_page_bytes());
  size_t bytes = sub_sat(round_down((uintptr_t)end, os_page_bytes()), pages);
  return bytes > 0 && pages_purge((void *)pages, bytes) != PURGE_REFUSED ? bytes : 0;
}
