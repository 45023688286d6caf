#include "reclaim/background.h"

#include "base/options.h"
#include "map/usage.h"
#include "os/cgroup.h"
#include "os/os.h"
#include "os/shared.h"
#include "reclaim/reclaim.h"

#define START_BYTES ((size_t)16 << 20)
#define LEARNED_BYTES ((size_t)4 << 20) /* kept by what was learned: worth a thread */
#define START_STEP ((size_t)4 << 20)
#define PERIOD_MS_MIN 50u
#define PERIOD_MS_MAX 5000u
#define IDLE_PERIODS 4u /* periods without a slow path, then the program is idle */

enum awake { ASLEEP, AWAKE, SHALL_END };
enum background_state { BACKGROUND_NONE, BACKGROUND_STARTING, BACKGROUND_RUNS, BACKGROUND_ENDED };

static _Atomic uint32_t own_awake;

static struct {
  _Atomic uint32_t state;
  _Atomic(_Atomic uint32_t *) awake; /* enum awake; the thread sleeps on this word */
  void (*look)(void);                /* or NULL */
  _Atomic bool active;               /* a slow path passed since the thread looked */
  _Atomic bool learned_waits;        /* that was seen */
  _Atomic bool wished;
  _Atomic bool ending;             /* the main thread is gone */
  _Atomic size_t start_bytes;      /* held, */
  _Atomic size_t start_free_bytes; /* or free, which is what the child of a big process may come to */
  int pressure;                    /* descriptor of the thread's, -1: none */
  struct os_file pressure_file;
  bool prepared;
} background = {.awake = &own_awake, .start_bytes = START_BYTES, .start_free_bytes = START_BYTES, .pressure = -1};

static _Atomic uint32_t *awake(void) { return atomic_load_explicit(&background.awake, memory_order_acquire); }

static bool background_runs(void) {
  return atomic_load_explicit(&background.state, memory_order_acquire) == BACKGROUND_RUNS;
}

static uint64_t period_ms(void) {
  uint64_t half_ms = (uint64_t)option_value(OPTION_PURGE_DELAY_MS) / 2;
  return half_ms < PERIOD_MS_MIN ? PERIOD_MS_MIN : half_ms > PERIOD_MS_MAX ? PERIOD_MS_MAX : half_ms;
}

static bool is_ending(void) { return atomic_load_explicit(&background.ending, memory_order_seq_cst); }
static bool is_wanted(void) { return option_value(OPTION_BACKGROUND) == BACKGROUND_ON && !is_ending(); }

static bool is_awake(enum awake state) { return atomic_load_explicit(awake(), memory_order_seq_cst) == state; }

static void wait_or_look(enum awake state, uint64_t timeout_ms) {
  if (os_shared_wait(awake(), state, timeout_ms) && is_awake(state) && background.look != NULL)
    background.look();
}

/* A slow path sets active, then looks at awake; here awake is set, then active looked at: one of both sees
 * the other's, as all four are sequentially consistent. */
static void sleep_until_woken(void) {
  atomic_store_explicit(awake(), ASLEEP, memory_order_seq_cst);
  if (atomic_load_explicit(&background.active, memory_order_seq_cst) || is_ending())
    atomic_store_explicit(awake(), AWAKE, memory_order_relaxed);
  while (is_awake(ASLEEP))
    wait_or_look(ASLEEP, UINT64_MAX);
}

static void pressure_open(void) {
  background.pressure = option_value(OPTION_CGROUP) == CGROUP_ON ? os_pressure_open() : -1;
  background.pressure_file = os_file_identity(background.pressure);
}

/* A program that closes every descriptor gets our number for a file of its own. */
static bool pressure_is_ours(void) {
  struct os_file file = os_file_identity(background.pressure);
  return background.pressure >= 0 && file.device == background.pressure_file.device &&
         file.inode == background.pressure_file.inode;
}

static void pressure_close(void) {
  if (pressure_is_ours())
    os_pressure_close(background.pressure);
  background.pressure = -1;
}

/* Less than a period if something is to go sooner. */
static uint64_t wait_ms(void) {
  uint64_t due_ms = reclaim_due_ms(), now_ms = os_milliseconds(), most_ms = period_ms();
  if (LIKELY(due_ms == 0) || due_ms >= now_ms + most_ms)
    return most_ms;
  return due_ms < now_ms + PERIOD_MS_MIN ? PERIOD_MS_MIN : due_ms - now_ms;
}

/* Waits a period; true if the system got short of memory meanwhile. */
static bool wait_period(void) {
  if (!is_awake(AWAKE) && !is_ending()) /* by a process that shares the word (raw clone), or may write it (Linux 5.0) */
    atomic_store_explicit(awake(), AWAKE, memory_order_seq_cst);
  uint64_t now_ms = os_milliseconds(), until_ms = now_ms + wait_ms();
  for (; now_ms < until_ms && is_awake(AWAKE); now_ms = os_milliseconds())
    wait_or_look(AWAKE, until_ms - now_ms);
  if (!pressure_is_ours())
    return false;
  enum os_wait result = os_pressure_poll(background.pressure, 0);
  if (result == OS_WAIT_GONE)
    pressure_close();
  return result == OS_WAIT_PRESSURE;
}

static void *run(void *unused) {
  (void)unused;
  atomic_store_explicit(&background.state, BACKGROUND_RUNS, memory_order_release);
  os_thread_name("hakmem");
  pressure_open();
  uint64_t active_ms = os_milliseconds();
  while (is_wanted()) {
    bool pressed = wait_period();
    if (is_ending())
      break;
    bool active = atomic_exchange_explicit(&background.active, false, memory_order_relaxed);
    if (active)
      active_ms = os_milliseconds();
    bool idle = os_milliseconds() - active_ms >= IDLE_PERIODS * period_ms();
    bool more = reclaim_round(pressed ? RECLAIM_PRESSED : idle ? RECLAIM_IDLE : RECLAIM_AGED);
    if (idle && !more)
      sleep_until_woken();
  }
  pressure_close();
  usage_keep_cap(SIZE_MAX); /* nobody else would lift it */
  atomic_store_explicit(&background.state, is_ending() ? BACKGROUND_ENDED : BACKGROUND_NONE, memory_order_release);
  return NULL;
}

/* What was learned has times that somebody must keep, also while the program sleeps, if it is worth a thread. Seen when
 * something is freed; the next malloc starts the thread. */
static void note_learned(void) {
  if (UNLIKELY(usage_learned() >= LEARNED_BYTES) && reclaim_due_ms() != 0)
    atomic_store_explicit(&background.learned_waits, true, memory_order_relaxed);
}

void background_tick(void) {
  if (LIKELY(!background_runs())) {
    note_learned();
    return;
  }
  if (!atomic_load_explicit(&background.active, memory_order_relaxed))
    atomic_store_explicit(&background.active, true, memory_order_seq_cst);
  uint32_t asleep = ASLEEP;
  if (UNLIKELY(is_awake(ASLEEP)) &&
      atomic_compare_exchange_strong_explicit(awake(), &asleep, AWAKE, memory_order_seq_cst, memory_order_relaxed))
    os_shared_wake(awake());
}

/* Slabs that were opened and hardly used count as held: such a program is small all the same. */
static bool is_big(void) {
  if (os_resident_of_process() >= START_BYTES)
    return true;
  atomic_store_explicit(&background.start_bytes, usage_held() + START_STEP, memory_order_relaxed);
  atomic_store_explicit(&background.start_free_bytes, usage_free() + START_STEP, memory_order_relaxed);
  return false;
}

COLD static void start(void) {
  uint32_t none = BACKGROUND_NONE;
  if (!atomic_compare_exchange_strong_explicit(&background.state, &none, BACKGROUND_STARTING, memory_order_acq_rel,
                                               memory_order_relaxed))
    return;
  atomic_store_explicit(awake(), AWAKE, memory_order_relaxed);
  atomic_store_explicit(&background.learned_waits, false, memory_order_relaxed);
  atomic_store_explicit(&background.wished, false, memory_order_relaxed);
  if (!os_thread_start(run))
    atomic_store_explicit(&background.state, BACKGROUND_ENDED, memory_order_release);
}

void background_start_if_due(void) {
  bool due = usage_held() >= atomic_load_explicit(&background.start_bytes, memory_order_relaxed) ||
             usage_free() >= atomic_load_explicit(&background.start_free_bytes, memory_order_relaxed);
  bool waits = atomic_load_explicit(&background.learned_waits, memory_order_relaxed) ||
               atomic_load_explicit(&background.wished, memory_order_relaxed);
  if (LIKELY(!due && !waits) || atomic_load_explicit(&background.state, memory_order_relaxed) != BACKGROUND_NONE ||
      !background.prepared || !is_wanted() || (!waits && !is_big()))
    return;
  start();
}

static void main_thread_ends(void *unused) {
  (void)unused;
  atomic_store_explicit(&background.ending, true, memory_order_seq_cst);
  atomic_store_explicit(awake(), SHALL_END, memory_order_seq_cst);
  os_shared_wake(awake());
}

void background_prepare(void) {
  os_thread_prepare();
  os_at_thread_end(main_thread_ends);
  background.prepared = true;
}

bool background_watch(_Atomic uint32_t *word, void (*look)(void)) {
  uint32_t none = BACKGROUND_NONE;
  if (!atomic_compare_exchange_strong_explicit(&background.state, &none, BACKGROUND_STARTING, memory_order_acq_rel,
                                               memory_order_relaxed))
    return false;
  background.look = look;
  atomic_store_explicit(&background.awake, word, memory_order_release);
  atomic_store_explicit(&background.state, BACKGROUND_NONE, memory_order_release);
  return true;
}

bool background_wish(void) {
  if (atomic_load_explicit(&background.state, memory_order_relaxed) == BACKGROUND_ENDED || !background.prepared ||
      !is_wanted())
    return false;
  atomic_store_explicit(&background.wished, true, memory_order_relaxed);
  return true;
}

bool background_watches(void) { return background_runs() && background.look != NULL; }

void background_after_fork(bool child) {
  if (!child)
    return;
  pressure_close(); /* reports reach one of those who share it only */
  if (background.prepared)
    os_at_thread_end(main_thread_ends); /* whoever forked is the main thread here */
  atomic_store_explicit(&background.state, is_ending() ? BACKGROUND_ENDED : BACKGROUND_NONE, memory_order_relaxed);
  atomic_store_explicit(&background.start_bytes, usage_held() + START_BYTES, memory_order_relaxed);
  atomic_store_explicit(&background.learned_waits, false, memory_order_relaxed);
  atomic_store_explicit(&background.wished, false, memory_order_relaxed);
  background.look = NULL;
  atomic_store_explicit(&background.awake, &own_awake, memory_order_relaxed);
}
