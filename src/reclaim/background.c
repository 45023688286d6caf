#include "reclaim/background.h"

#include "base/observers.h"
#include "base/options.h"
#include "budget/usage.h"
#include "heap/pool.h"
#include "heap/slow_path.h"
#include "large/stash.h"
#include "os/caller.h"
#include "os/cgroup.h"
#include "os/filter.h"
#include "os/os.h"
#include "pages/collapse.h"
#include "policy/keep_policy.h"
#include "reclaim/delay.h"
#include "reclaim/due.h"
#include "reclaim/reclaim.h"
#include "threads/private.h"
#include "threads/registry.h"

#define PERIOD_MS_MIN 50u
#define PERIOD_MS_MAX 5000u
#define IDLE_PERIODS 4u    /* after this many periods without a slow path the program is idle */
#define IDLE_MS_MAX 20000u /* memory that is still free in an idle program then cannot go back (locked pages) */
#define LOOK_MS_MAX 1000u  /* between two checks of the main thread */
#define STOP_MS_MAX 1000u  /* the longest wait for the thread's end */
#define KEPT_BYTES_MIN ((size_t)16 << 20) /* by bins: then the thread waits for the end of their threads */
#define LOOKS_OF_END 100u
#define STOP_ASK_MS 20u /* between two requests that it ends */

enum awake { ASLEEP, AWAKE, SHALL_END };
enum background_state { BACKGROUND_NONE, BACKGROUND_STARTING, BACKGROUND_RUNS };

_Atomic bool background_is_due, background_is_told;
static _Atomic uint32_t own_awake;

/* There is one thread at most.
 *   B1  Who changes `state` from NONE to STARTING owns what is marked * until it is NONE again.
 *   B2  The started thread sets NONE only after is_joinable is set: the starting thread has written `thread` then.
 *   B3  While a request for no thread is pending (is_ending), none is started, and a running one ends soon.
 * Lies in .data, as the gate does: a fork writes both, and then one page is copied. */
static struct {
  _Atomic uint32_t state;            /* enum background_state */
  _Atomic uint32_t holds;            /* requests for no thread: none is started, and a running one ends */
  _Atomic uint32_t forks;            /* forks under way: likewise, but a thread that others may wake stays */
  _Atomic(_Atomic uint32_t *) awake; /* enum awake; the thread sleeps on this word */
  void (*_Atomic look)(void);        /* * or NULL; all threads read whether it is */
  _Atomic bool ending;               /* the main thread has ended: no thread from now on */
  _Atomic bool stopped_for_good;     /* likewise, also in children */
  _Atomic int pid;                   /* the process that may have a thread; others share or copied its memory */
  _Atomic int thread_id;             /* of the last thread; 0: the kernel does not count it any more */
  pthread_t thread;                  /* * the last thread */
  _Atomic uint32_t is_joinable;      /* * `thread` is written, and the C library keeps its stack */
  _Atomic bool has_been;
  bool is_prepared; /* background_prepare was called */
  bool from_frees;  /* const: addresses tell the callers of free apart, so a free may start the thread */
} background = {.awake = &own_awake};

static _Atomic uint32_t *awake_word(void) { return atomic_load_explicit(&background.awake, memory_order_acquire); }

static bool background_runs(void) {
  return atomic_load_explicit(&background.state, memory_order_acquire) == BACKGROUND_RUNS;
}

static uint64_t period_ms(void) { return min_size(max_size(delay_full_ms() / 2, PERIOD_MS_MIN), PERIOD_MS_MAX); }

/* Returns after how many rounds without a find the work is done. By then unchanged slabs were seen so for the delay
 * in force. */
static unsigned idle_rounds(void) { return 2 + (unsigned)((delay_full_ms() + period_ms() - 1) / period_ms()); }

/* Tells whether others may wake the thread. */
static bool has_look(void) { return load_relaxed(&background.look) != NULL; }

static bool is_ending(void) {
  return atomic_load(&background.holds) > 0 || (!has_look() && atomic_load(&background.forks) > 0) ||
         load_relaxed(&background.ending) || load_relaxed(&background.stopped_for_good);
}
static bool is_wanted(void) { return option_value(OPTION_BACKGROUND) == BACKGROUND_ON && !is_ending(); }

static bool awake_is(enum awake state) { return atomic_load(awake_word()) == state; }

/* --- what it does --- */

static void wait_or_look(enum awake state, uint64_t timeout_ms) {
  if (os_futex_wait_shared(awake_word(), state, timeout_ms) && awake_is(state) && has_look() && slow_path_begin()) {
    load_relaxed (&background.look)();
    slow_path_end();
  }
}

/* The thread must not keep the process alive after the main thread has ended. */
static bool main_thread_is_gone(void) {
  if (os_main_thread_is_gone())
    atomic_store(&background.ending, true);
  return load_relaxed(&background.ending);
}

/* Nothing tells of a thread's end (docs/decisions/0001-no-thread-exit-code.md). If all others sleep then, only this
 * thread finds what it left. */
static bool threads_ended(void) {
  if (!slow_path_begin())
    return false;
  bool swept = heaps_sweep_all(false);
  slow_path_end();
  return swept;
}

/* Blocks in bins count with what is free in the slabs that they keep open. */
static bool threads_keep_much(void) {
  if (pools_heaps() <= 1 || !slow_path_begin())
    return false;
  size_t open_bytes = sub_sat(usage_held(), usage_taken_large() + pools_live_bytes()), bin_bytes = heaps_kept_bytes();
  slow_path_end();
  return open_bytes + bin_bytes >= KEPT_BYTES_MIN;
}

/* A slow path sets background_is_told, then reads awake. This thread sets awake, then reads background_is_told. All
 * four accesses are sequentially consistent, so one of the two sees the other. */
static void sleep_until_woken(void) {
  uint32_t asleep = ASLEEP;
  atomic_store(awake_word(), ASLEEP);
  if (atomic_load(&background_is_told) || is_ending())
    store_relaxed(awake_word(), AWAKE);
  while (awake_is(ASLEEP) && !is_ending() && !main_thread_is_gone()) {
    wait_or_look(ASLEEP, LOOK_MS_MAX);
    if (awake_is(ASLEEP) && threads_ended())
      atomic_compare_exchange_strong(awake_word(), &asleep, AWAKE);
  }
}

static uint64_t clock_ms(void) { return observers.clock_ms != NULL ? observers.clock_ms() : 0; }

/* Call before the thread sleeps or ends (is_resting), and at times while it works. */
static void tell_clock(bool is_resting) {
  uint64_t due_ms = clock_ms();
  if (LIKELY(due_ms == 0) || (!is_resting && os_milliseconds() < due_ms) || !slow_path_begin())
    return;
  observers.clock(is_resting);
  slow_path_end();
}

/* Returns half the delay in force, or less if it gets shorter, or if something is due sooner. */
static uint64_t wait_ms(void) {
  uint64_t now_ms = os_milliseconds(), half_ms = min_size(period_ms(), delay_in_force_ms() / 2);
  uint64_t next_ms = keep_earlier_ms(reclaim_due_ms(), clock_ms()), full_ms = delay_full_until_ms();
  if (full_ms > now_ms)
    next_ms = keep_earlier_ms(next_ms, full_ms);
  return max_size(next_ms != 0 ? min_size(half_ms, sub_sat(next_ms, now_ms)) : half_ms, PERIOD_MS_MIN);
}

/* Waits a period. True if the system became short of memory meanwhile. */
static bool wait_period(void) {
  if (!awake_is(AWAKE) && !is_ending()) /* another process that can write the word changed it (raw clone, Linux 5.0) */
    atomic_store(awake_word(), AWAKE);
  uint64_t now_ms = os_milliseconds(), until_ms = now_ms + wait_ms();
  for (; now_ms < until_ms && awake_is(AWAKE) && !is_ending() && !main_thread_is_gone(); now_ms = os_milliseconds())
    wait_or_look(AWAKE, min_size(until_ms - now_ms, LOOK_MS_MAX));
  return !is_ending() && os_pressure_came();
}

static bool may_go_on(void) { return !is_ending(); }

/* Tells whether the thread sleeps instead of ending, because nothing else could restart it. */
static bool thread_stays(bool idle) {
  return has_look() || !background.from_frees || clock_ms() != 0 || due_has_many_threads() ||
         (idle && threads_keep_much());
}

static void work_until_idle(void) {
  uint64_t active_ms = os_milliseconds(), freed_ms = active_ms;
  unsigned rests = 0;
  while (is_wanted()) {
    bool pressed = wait_period();
    if (is_ending())
      return;
    tell_clock(false);
    uint64_t now_ms = os_milliseconds(), idle_ms = IDLE_PERIODS * period_ms();
    if (atomic_exchange_explicit(&background_is_told, false, memory_order_relaxed) || stashes_are(STASHES_USED))
      active_ms = now_ms;
    if (due_has_freed_much()) {
      due_note_freed();
      freed_ms = now_ms;
    }
    bool idle = now_ms - active_ms >= idle_ms;
    bool more = reclaim_round(pressed ? RECLAIM_PRESSED : idle ? RECLAIM_IDLE : RECLAIM_AGED, may_go_on);
    rests = more ? 0 : rests + 1;
    /* An active program that frees nothing will have nothing to give back later, once nothing is free. */
    bool is_done =
        (idle || (now_ms - freed_ms >= idle_ms && usage_free() < BACKGROUND_FREED_BYTES)) && rests >= idle_rounds();
    uint64_t stuck_ms = idle_ms + 2 * delay_full_ms() + IDLE_MS_MAX;
    if (!is_done && now_ms - active_ms < stuck_ms)
      continue;
    stash_close(); /* no thread checks them while this one is away */
    if (stash_bytes() > 0)
      continue;
    due_set_undone(false);
    if (!thread_stays(idle))
      return;
    if (idle) {
      tell_clock(true);
      sleep_until_woken();
      due_set_undone(awake_is(AWAKE));
      active_ms = freed_ms = os_milliseconds(); /* what woke it made memory free just now */
      rests = 0;
    }
  }
}

static bool state_take(void) {
  uint32_t none = BACKGROUND_NONE;
  return atomic_compare_exchange_strong(&background.state, &none, BACKGROUND_STARTING);
}
/* After this another thread may start the next thread, or unload the library. */
static void state_give(void) {
  atomic_store(&background.state, BACKGROUND_NONE);
  os_futex_wake(&background.state);
}

static void *thread_run(void *unused) {
  (void)unused;
  store_relaxed(&background.thread_id, os_thread_shown());
  due_set_undone(true);
  atomic_store(&background.state, BACKGROUND_RUNS);
  os_thread_name("hakmem");
  work_until_idle();
  stash_close();
  tell_clock(true);
  usage_keep_cap(SIZE_MAX); /* no other thread would lift the cap */
  while (atomic_load_explicit(&background.is_joinable, memory_order_acquire) == 0)
    os_futex_wait_for(&background.is_joinable, 0, 1);
  due_note_end();
  state_give();
  return NULL;
}

/* --- when there is none --- */

static void set_due(bool due) {
  if (UNLIKELY(due != load_relaxed(&background_is_due)))
    store_relaxed(&background_is_due, due);
}

void background_tick(void) {
  if (!atomic_load_explicit(&background_is_told, memory_order_acquire)) /* a wish before it is seen below */
    atomic_store(&background_is_told, true);
  if (LIKELY(!background_runs())) {
    set_due(due_look());
    return;
  }
  set_due(false);
  uint32_t asleep = ASLEEP;
  if (UNLIKELY(awake_is(ASLEEP)) && atomic_compare_exchange_strong(awake_word(), &asleep, AWAKE))
    os_futex_wake_shared(awake_word());
}

/* False where a filter may kill for starting a thread. A filter from before the program may forbid threads, unless the
 * program has some or the option asks for one. */
static bool may_start(void) {
  return os_may_start_thread() || (os_may_read_files() && option_is_set(OPTION_BACKGROUND));
}

int background_process(void) { return load_relaxed(&background.pid); }
static bool is_own_process(void) { return os_process_id() == background_process(); }

/* The state is STARTING, and all signals are blocked. */
static bool make_thread(void) {
  atomic_store(awake_word(), AWAKE);
  if (load_relaxed(&background.is_joinable) != 0)
    os_thread_join(background.thread);
  store_relaxed(&background.is_joinable, 0);
  if (main_thread_is_gone() || is_ending() || atomic_load(&background.forks) > 0)
    return false;
  /* Also if no thread can start: the next slow path would try again in vain. */
  due_wish(false);
  os_pressure_watch();
  collapse_prepare();
  if (!os_thread_start(thread_run, &background.thread))
    return false;
  atomic_store_explicit(&background.is_joinable, 1, memory_order_release);
  store_relaxed(&background.has_been, true);
  return true;
}

/* Only this function starts the thread. Signals are blocked, because a handler on this thread could not wait for the
 * end of the start. */
static void thread_start(void) {
  sigset_t before;
  os_signals_block(&before);
  struct heap *heap = heap_current(); /* what the C library allocates for the thread belongs to no hak_heap */
  bool switches = heap != NULL && heap_life(heap) != 0;
  if (switches)
    private_switch(private_home());
  if (state_take() && !make_thread()) {
    /* As after a thread's end: the next one is due when more was freed. */
    due_note_freed();
    due_note_end();
    state_give();
  }
  if (switches)
    private_switch(heap);
  os_signals_restore(&before);
}

static bool may_start_for(uintptr_t site, enum background_caller caller) {
  if (!background.from_frees)
    return caller == BACKGROUND_ALLOCATES;
  return !os_is_c_library(site);
}

COLD void background_start(uintptr_t site, enum background_caller caller) {
  if (load_relaxed(&background.state) != BACKGROUND_NONE || !background.is_prepared || !is_wanted() || !may_start() ||
      !may_start_for(site, caller) || !is_own_process())
    return;
  store_relaxed(&background_is_due, false);
  if (due_in_small_program() || due_is_big())
    thread_start();
}

bool background_has_been(void) { return load_relaxed(&background.has_been); }

/* --- stopping it --- */

/* Waits for the thread's end. A request for no thread is pending. */
static void wait_for_end(void) {
  uint64_t until_ms = os_milliseconds() + STOP_MS_MAX;
  uint32_t state;
  while ((state = atomic_load(&background.state)) != BACKGROUND_NONE) {
    atomic_store(awake_word(), SHALL_END);
    os_futex_wake_shared(awake_word());
    if (thread_is_busy())
      return;
    if (os_milliseconds() >= until_ms) { /* it may have been killed alone, as by a filter that kills threads */
      if (state == BACKGROUND_RUNS && !os_thread_exists(load_relaxed(&background.thread_id)))
        atomic_compare_exchange_strong(&background.state, &state, BACKGROUND_NONE);
      return;
    }
    os_futex_wait_for(&background.state, state, STOP_ASK_MS);
  }
  /* The thread is in its last steps in the C library, then in the kernel. Another thread can get its id only much
   * later. */
  int thread_id = load_relaxed(&background.thread_id);
  until_ms = due_last_end_ms() + STOP_MS_MAX;
  for (unsigned looks = 0; thread_id != 0 && os_milliseconds() < until_ms && os_thread_exists(thread_id); looks++) {
    if (looks < LOOKS_OF_END)
      os_yield();
    else /* a yield would not let a thread of lower priority run */
      os_futex_wait_for(&background.state, BACKGROUND_NONE, 1);
  }
  if (thread_id != 0)
    atomic_compare_exchange_strong_explicit(&background.thread_id, &thread_id, 0, memory_order_relaxed,
                                            memory_order_relaxed);
}

/* The thread was stopped with work left. A program that forks and then sleeps makes no slow path that could restart it.
 * So this gives free memory back now. The child has less to copy then. */
static void work_off(void) {
  if (!due_is_undone() || background_runs() || !slow_path_begin())
    return;
  due_set_undone(false);
  reclaim_trim(0);
  slow_path_end();
}

/* Adds a request for no thread to a counter: holds or forks. */
static void hold_thread(_Atomic uint32_t *count) {
  KEEP_ERRNO;
  atomic_fetch_add(count, 1);
  if (is_ending() && (atomic_load(&background.state) != BACKGROUND_NONE || load_relaxed(&background.thread_id) != 0) &&
      is_own_process())
    wait_for_end();
  work_off();
}

static void let_go(_Atomic uint32_t *count) {
  due_note_stopped();
  set_due(false);
  /* It is 0 in the child of a handler's fork that interrupted this one's call. */
  for (uint32_t holds = atomic_load(count); holds > 0;)
    if (atomic_compare_exchange_weak(count, &holds, holds - 1))
      break;
}

/* A process that shares our memory changes nothing, because the request would stay if it ended here. */
void background_stop(void) {
  if (!is_own_process())
    return;
  hold_thread(&background.holds);
  let_go(&background.holds);
}

void background_stop_for_good(void) {
  atomic_store(&background.stopped_for_good, true);
  background_stop();
}

void background_resume(void) { atomic_store(&background.stopped_for_good, false); }

void background_apply(void) {
  stash_close(); /* the next large malloc opens them again, if the options allow it */
  if (background.is_prepared && option_value(OPTION_BACKGROUND) != BACKGROUND_ON)
    background_stop();
}

static void main_thread_ends(void *unused) {
  (void)unused;
  atomic_store(&background.ending, true);
  background_stop();
}

COLD void background_prepare(void) {
  os_thread_prepare();
  background.from_frees = os_callers_can_be_told();
  due_prepare(background.from_frees);
  store_relaxed(&background.pid, os_process_id_at_start());
  if (os_is_main_thread()) /* in other cases the thread finds out by itself */
    os_at_thread_end(main_thread_ends);
  background.is_prepared = true;
}

bool background_watch(_Atomic uint32_t *word, void (*look)(void)) {
  if (!state_take())
    return false;
  store_relaxed(&background.look, look);
  atomic_store_explicit(&background.awake, word, memory_order_release);
  state_give();
  return true;
}

bool background_wish(void) {
  if (!background.is_prepared || !is_wanted())
    return false;
  due_wish(true);
  atomic_store_explicit(&background_is_told, false, memory_order_release);
  return true;
}

bool background_is_awake(void) { return background_runs() && awake_is(AWAKE); }
bool background_is_missed(void) { return !background_is_awake() && due_holds_much(); }

bool background_watches(void) { return background_runs() && has_look(); }

void background_before_fork(void) { hold_thread(&background.forks); }
void background_in_parent(void) { let_go(&background.forks); }

COLD void background_in_child(int process_id) {
  stash_close();
  os_pressure_in_child();
  if (background.is_prepared)
    os_at_thread_end(main_thread_ends); /* the forking thread is the child's main thread */
  store_relaxed(&background.ending, false);
  store_relaxed(&background.holds, 0);
  store_relaxed(&background.forks, 0);
  store_relaxed(&background.pid, process_id);
  store_relaxed(&background.thread_id, 0);
  store_relaxed(&background.is_joinable, 0);
  due_in_child();
  set_due(false);
  store_relaxed(&background.look, NULL);
  store_relaxed(&background.awake, &own_awake);
  store_relaxed(&background.state, BACKGROUND_NONE);
}
