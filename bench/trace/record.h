/* record.h: the parts of the recorder, a library that is preloaded into a program and writes its allocation trace.
 *
 *     record.c           the malloc family: calls the next allocator's functions, says what happened
 *     record_cxx.c       C++'s operators, the same
 *     record_process.c   start, end, fork, exec, signals
 *     record_lane.c      events, in buffers
 *     record_module.c    which library a call site is in
 *     record_file.c      the trace
 *
 * What holds:
 *   R1  nothing here calls malloc or what may call it, but for the loader's dlsym, and pthread_atfork at the start
 *   R2  a free is given its order number before the block is freed, a malloc after the block is there, so the events
 *       of one block are in the order of their numbers, whichever threads they are of
 *   R3  system calls are made by syscall(): libc's functions are cancellation points, and a thread must not end inside
 *       malloc
 *   R4  errno is what the next allocator left
 *   R5  no lock is held while the next allocator or the loader runs. Order of locks: lane, modules, file
 */
#pragma once

#include "format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RECORD_EXPORT __attribute__((visibility("default")))
#define RECORD_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* RECORD_UNSTARTED is 0: the word lies in a page that a forked child finds zeroed. */
enum record_mode { RECORD_UNSTARTED, RECORD_ON, RECORD_OFF };
extern _Atomic uint32_t *record_mode;

struct record_thread {
  uint32_t image;   /* the image that `number` is of */
  uint32_t number;  /* from 1, in the order of the threads' first events */
  bool is_hurried;  /* the process may end at once, or the thread has interrupted itself: no long waits for locks */
  uint32_t depth;   /* above 0: inside the next allocator, whose own calls are not the program's, or the recorder */
  const void *site; /* the caller of an operator new that is running */
  void *given;      /* the last block recorded for this thread */
};
extern _Thread_local struct record_thread record_self __attribute__((tls_model("initial-exec")));

/* What the recorder adds to `depth`: a call from there is of a signal handler, and cannot be recorded. */
enum { RECORD_INSIDE = 1 << 16 };
void record_lose(uint64_t events);

/* record_process.c */
bool record_start(void); /* true: the process is recorded. Call at depth 0 */
static inline bool record_wanted(void) {
  uint32_t mode = atomic_load_explicit(record_mode, memory_order_relaxed);
  if (record_self.depth == 0)
    return mode == RECORD_ON || (mode == RECORD_UNSTARTED && record_start());
  if (RECORD_UNLIKELY(record_self.depth >= RECORD_INSIDE && mode == RECORD_ON))
    record_lose(1);
  return false;
}
extern uint32_t record_image; /* this process image, counted through forks, from 1 */

/* record_lane.c: one event each. Callers have asked record_wanted. */
void record_gave(enum trace_event_kind kind, void *block, size_t size, size_t alignment, const void *site);
void record_took(enum trace_event_kind kind, const void *block);
void record_not_taken(enum trace_event_kind kind); /* REALLOC_KEPT or _FREED */
bool record_lanes_open(void);                      /* false: no memory */
/* Writes what the lanes hold. Skips a lane that stays locked: its thread may have been stopped. */
void record_lanes_flush(void);
/* One more try at a lock is due, `tries` were made; false: too many, the holder may have been stopped for good. */
bool record_wait(unsigned tries);
extern atomic_bool record_is_ending; /* the process ends: every event is written at once */

/* record_module.c */
struct record_site {
  uint32_t module; /* 0: unknown */
  uint64_t offset;
};
struct record_site record_site_of(const void *address);
void record_modules_open(const char *program);

/* record_file.c: all are safe to call when the recording has stopped, and do nothing then. */
bool record_file_open(const char *path, uint64_t limit, uint64_t run, const char *program);
void record_file_forget(void);                        /* in a forked child */
void record_file_chunk(struct trace_chunk *chunk);    /* kind, lane, items, payload_bytes, order, time_us are set */
void record_file_end(uint32_t reason, uint64_t code); /* chunks may follow: they push the end mark on */
void record_file_resume(void);                        /* takes the end mark back */
void record_say(const char *first, const char *second, uint64_t number, const char *third); /* one line on stderr */
uint64_t record_clock_us(void);
extern _Atomic uint64_t record_order; /* the next order number */

/* record.c: the next allocator's free, for an operator delete that nobody else has. */
void record_free_next(void *block);
void *record_memalign_next(size_t alignment, size_t size);
