/* plan.h: what bin/replay does, prepared from a trace: for each thread a row of steps.
 *
 * A block has a slot, and the slot a turn: the number of steps that were done on it. A step waits until its slot's
 * turn is its own, so a block that another thread frees is there first, and a slot that is used again is empty.
 *
 * Threads keep together: the trace's steps have positions in the recorded order, which rise by 1 a step and by 1 more
 * for each `unit_bytes` that the step asks for. A thread publishes the position of its next step now and then
 * (PLAN_SYNC) and, if a thread is more than PLAN_WINDOW positions behind, waits until it is half of that.
 *
 * No deadlock. Suppose all threads wait. Of the steps that are not done, let s be the first in the recorded order, at
 * position p, and t its thread.
 *   1. A thread begins at a PLAN_SPAWN, which stands in another thread's row right behind the step before the new
 *      thread's first one; spawns are done in the order of the threads. So if t does not run, a spawn before s is not
 *      done, and the thread that has it waits at something before s: take that for s, its position is not above p.
 *   2. s does not wait for its turn: all steps on its slot before it are done.
 *   3. So t waits at a sync right before s, with position p, for a thread u whose published position is below
 *      p - PLAN_WINDOW / 2. u is published as at its last sync (or at its first step, if it has not begun), and
 *      syncs stand less than PLAN_STRIDE positions before every step (P1). u's next step is not before s, so its last
 *      sync was above p - PLAN_STRIDE. As PLAN_STRIDE < PLAN_WINDOW / 2, t does not wait for u.
 * So some thread does not wait.
 *
 *   P1  a step's position is less than PLAN_STRIDE above that of the last PLAN_SYNC, or of the first step, of its row
 *   P2  thread 0 begins by itself; each other thread has one PLAN_SPAWN, in the recorded order
 */
#pragma once

#include <stdint.h>

#define PLAN_MARK 0x6e616c706b6168ull /* "hakplan" */
enum {
  PLAN_VERSION = 1,
  PLAN_WINDOW = 4096,
  PLAN_STRIDE = 512,
  PLAN_DRIFT_SHARE = 32, /* the window is at most this part of the live peak, in bytes ... */
  PLAN_UNIT_MIN = 256,   /* ... but for small heaps, and huge ones */
  PLAN_UNIT_MAX = 4096,
  PLAN_SAMPLES = 200,
  PLAN_SAMPLE_STEPS = 500, /* steps between samples, at least */
};

struct plan_head {
  uint64_t mark;
  uint32_t version, threads;
  uint64_t records; /* of all threads */
  uint64_t steps;   /* of the trace */
  uint32_t slots, samples;
  uint64_t live_peak, live_end; /* bytes, in the recorded order */
  uint64_t unit_bytes;
};
/* Then the threads, then the records, thread after thread. */
struct plan_thread {
  uint64_t records;
  uint64_t begin; /* position of the first step */
};
struct plan_record {
  uint64_t what; /* PLAN_ARGUMENT: size, or as said below; PLAN_KIND; PLAN_ALIGNMENT */
  uint32_t slot;
  uint32_t turn;
};
enum plan_kind {
  PLAN_MALLOC,
  PLAN_CALLOC,
  PLAN_ALIGNED,
  PLAN_FREE,
  PLAN_REALLOC,
  PLAN_SYNC,   /* argument: position of the next step */
  PLAN_SAMPLE, /* argument: number of the sample */
  PLAN_SPAWN,  /* argument: number of the thread */
  PLAN_KINDS
};
enum { PLAN_ARGUMENT_BITS = 48, PLAN_ALIGNMENT_SHIFT = 56 };

static inline uint64_t plan_argument(uint64_t what) { return what & (((uint64_t)1 << PLAN_ARGUMENT_BITS) - 1); }
static inline unsigned plan_kind(uint64_t what) { return (unsigned)(what >> PLAN_ARGUMENT_BITS) & 0xff; }
static inline unsigned plan_alignment_log2(uint64_t what) { return (unsigned)(what >> PLAN_ALIGNMENT_SHIFT); }
