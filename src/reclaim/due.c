#include "reclaim/due.h"

#include "budget/usage.h"
#include "heap/pool.h"
#include "large/stash.h"
#include "os/os.h"
#include "pages/collapse.h"
#include "reclaim/background.h"
#include "reclaim/reclaim.h"

#define START_BYTES ((size_t)16 << 20)
#define START_STEP ((size_t)4 << 20)
#define LEARNED_BYTES ((size_t)4 << 20) /* this much kept by the policy engine is worth a thread */
#define DENSE_BYTES ((size_t)64 << 20) /* of slabs: so many may be worth moves to huge pages, though nothing is freed */
#define HEAPS_MANY 64u    /* so many threads may leave much in their bins, though none of them frees into a slab */
#define REST_MS_MIN 1000u /* between a thread's end and the next start for which nothing was freed */

/* In .data: a fork writes it, as it writes its neighbours there. */
static struct {
  bool from_frees; /* const */
  _Atomic bool wished, undone;
  _Atomic size_t freed_seen;       /* usage_freed, as the last thread saw it */
  _Atomic size_t start_bytes;      /* a thread may start from these held bytes on; the child of a fork sets them */
  _Atomic size_t start_free_bytes; /* or from these free bytes on */
  _Atomic size_t restart_bytes;    /* held bytes; 0 before the first stop (starts_before_frees) */
  _Atomic size_t dense_bytes;      /* or from so many bytes of slabs on (has_grown_dense) */
  _Atomic uint64_t end_ms;         /* when the last thread ended */
} due = {.start_bytes = START_BYTES, .start_free_bytes = START_BYTES, .dense_bytes = DENSE_BYTES};

void due_prepare(bool from_frees) { due.from_frees = from_frees; }

void due_wish(bool is_wished) { store_relaxed(&due.wished, is_wished); }
void due_set_undone(bool is_undone) { store_relaxed(&due.undone, is_undone); }
bool due_is_undone(void) { return load_relaxed(&due.undone); }

void due_note_freed(void) { store_relaxed(&due.freed_seen, usage_freed()); }
bool due_has_freed_much(void) { return usage_freed() - load_relaxed(&due.freed_seen) >= BACKGROUND_FREED_BYTES; }

bool due_holds_much(void) {
  return usage_held() >= load_relaxed(&due.start_bytes) || usage_free() >= load_relaxed(&due.start_free_bytes);
}

/* Each of so many threads may free into its bins only, and end, and no slow path would tell. */
bool due_has_many_threads(void) { return pools_heaps() >= HEAPS_MANY; }

/* Memory with a learned decay time must go back on time, also while the program sleeps, if it is worth a thread. */
static bool learned_is_due(void) { return UNLIKELY(usage_learned() >= LEARNED_BYTES) && reclaim_due_ms() != 0; }

static bool has_rested(void) { return os_milliseconds() - load_relaxed(&due.end_ms) >= REST_MS_MIN; }

/* A program that built a heap may only read it from then on. A thread of its first 64 MiB, and of each doubling, moves
 * what is dense to huge pages (pages/collapse.h). */
static bool has_grown_dense(void) { return usage_slabs() >= load_relaxed(&due.dense_bytes) && collapse_is_possible(); }
static void note_slabs(void) { store_relaxed(&due.dense_bytes, max_size(2 * usage_slabs(), DENSE_BYTES)); }

static bool starts_before_frees(void) { return !due.from_frees && usage_held() >= load_relaxed(&due.restart_bytes); }

bool due_in_small_program(void) {
  return UNLIKELY(load_relaxed(&due.wished)) || learned_is_due() || (UNLIKELY(due_is_undone()) && has_rested());
}

bool due_look(void) {
  bool has_much = due_holds_much();
  if (has_much) /* stashes do not count frees */
    stash_close();
  bool has_freed = due_has_freed_much();
  if (has_freed && !has_much) /* a small program will reuse what it freed */
    due_note_freed();
  return (has_much && (has_freed || starts_before_frees() || UNLIKELY(has_grown_dense()) ||
                       (UNLIKELY(due_has_many_threads()) && has_rested()))) ||
         due_in_small_program();
}

static void start_above(size_t held_bytes, size_t free_bytes) {
  store_relaxed(&due.start_bytes, held_bytes);
  store_relaxed(&due.start_free_bytes, free_bytes);
}

/* Where it cannot be read, as after chroot, what is held counts alone. */
bool due_is_big(void) {
  size_t resident = os_resident_of_process();
  if (resident == 0 || resident >= START_BYTES)
    return true;
  start_above(usage_held() + START_STEP, usage_free() + START_STEP);
  return false;
}

uint64_t due_last_end_ms(void) { return load_relaxed(&due.end_ms); }
void due_note_end(void) {
  store_relaxed(&due.end_ms, os_milliseconds());
  note_slabs();
}

/* What is freed and taken from now on counts. */
void due_note_stopped(void) {
  due_note_freed();
  store_relaxed(&due.restart_bytes, usage_held() + START_STEP);
}

void due_in_child(void) {
  due_note_freed();
  start_above(usage_held() + START_BYTES, max_size(usage_free() + BACKGROUND_FREED_BYTES, START_BYTES));
  store_relaxed(&due.restart_bytes, 0);
  note_slabs();
  due_set_undone(false);
  due_wish(false);
}
