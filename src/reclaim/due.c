#include "reclaim/due.h"

#include "budget/usage.h"
#include "heap/pool.h"
#include "large/stash.h"
#include "os/os.h"
#include "reclaim/reclaim.h"

#define START_BYTES ((size_t)16 << 20)
#define START_STEP ((size_t)4 << 20)
#define LEARNED_BYTES ((size_t)4 << 20) /* this much kept by the policy engine is worth a thread */
#define HEAPS_MANY 64u    /* so many threads may leave much in their bins, though none of them frees into a slab */
#define REST_MS_MIN 1000u /* between a thread's end and the next start for which nothing was freed */

/* Lies in .data, as the gate does: a fork writes both, and then one page is copied. */
static struct {
  _Atomic size_t freed_seen;       /* usage_freed, as the last thread saw it */
  _Atomic size_t start_bytes;      /* a thread may start from these held bytes on; the child of a fork sets them */
  _Atomic size_t start_free_bytes; /* or from these free bytes on */
  _Atomic size_t restart_bytes;    /* held bytes; 0 before the first stop (starts_before_frees) */
  _Atomic uint64_t end_ms;         /* when the last thread ended or was stopped */
  _Atomic bool wished;
  _Atomic bool undone; /* the last thread was stopped with work left */
  bool from_frees;     /* const */
} due = {.start_bytes = START_BYTES, .start_free_bytes = START_BYTES};

void due_begin(bool from_frees) { due.from_frees = from_frees; }
bool due_from_frees(void) { return due.from_frees; }

void due_wish(bool is_wished) { store_relaxed(&due.wished, is_wished); }
void due_set_undone(bool is_undone) { store_relaxed(&due.undone, is_undone); }
bool due_has_undone(void) { return load_relaxed(&due.undone); }
void due_note_end(void) { store_relaxed(&due.end_ms, os_milliseconds()); }
uint64_t due_end_ms(void) { return load_relaxed(&due.end_ms); }

bool due_freed_much(void) { return usage_freed() - load_relaxed(&due.freed_seen) >= DUE_FREED_BYTES; }

void due_note_freed(void) { store_relaxed(&due.freed_seen, usage_freed()); }

bool due_threads_are_many(void) { return pools_heaps() >= HEAPS_MANY; }

/* Memory with a learned decay time must go back on time, also while the program sleeps, if it is worth a thread. */
static bool learned_is_due(void) { return UNLIKELY(usage_learned() >= LEARNED_BYTES) && reclaim_due_ms() != 0; }

static bool has_rested(void) { return os_milliseconds() - due_end_ms() >= REST_MS_MIN; }
static bool undone_is_due(void) { return UNLIKELY(due_has_undone()) && has_rested(); }
static bool threads_are_due(void) { return UNLIKELY(due_threads_are_many()) && has_rested(); }

bool due_in_small_program(void) { return UNLIKELY(load_relaxed(&due.wished)) || learned_is_due() || undone_is_due(); }

static bool starts_before_frees(void) { return !due.from_frees && usage_held() >= load_relaxed(&due.restart_bytes); }

bool due_holds_much(void) {
  return usage_held() >= load_relaxed(&due.start_bytes) || usage_free() >= load_relaxed(&due.start_free_bytes);
}

bool due_is_now(void) {
  bool holds_much = due_holds_much();
  if (holds_much) /* frees are to be counted until there is a thread */
    stash_close();
  bool has_freed = due_freed_much();
  if (has_freed && !holds_much) /* a small program will reuse what it freed */
    due_note_freed();
  return (holds_much && (has_freed || starts_before_frees() || threads_are_due())) || due_in_small_program();
}

static void start_above(size_t held_bytes, size_t free_bytes) {
  store_relaxed(&due.start_bytes, held_bytes);
  store_relaxed(&due.start_free_bytes, free_bytes);
}

/* Slabs that are open and hardly used count as held, but do not make a program big. So the resident bytes decide. */
bool due_is_big(void) {
  if (os_resident_of_process() >= START_BYTES)
    return true;
  start_above(usage_held() + START_STEP, usage_free() + START_STEP);
  return false;
}

void due_note_stop(void) {
  due_note_freed();
  store_relaxed(&due.restart_bytes, usage_held() + START_STEP);
}

COLD void due_in_child(void) {
  due_note_freed();
  start_above(usage_held() + START_BYTES, max_size(usage_free() + DUE_FREED_BYTES, START_BYTES));
  store_relaxed(&due.restart_bytes, 0);
  due_set_undone(false);
  due_wish(false);
}
