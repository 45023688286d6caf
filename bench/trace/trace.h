/* trace.h: reads a trace that the recorder wrote, or anything that is said to be one: the file is not trusted.
 *
 * trace_open checks every byte of it. What stands before the first damage is kept, and `facts.damage` says what is
 * wrong and where; reading cannot fail after that. The library is libhaktrace.so; lab/store/trace.py is its front.
 */
#pragma once

#include "format.h"

enum { TRACE_SENTENCE = 256 };

/* What happened, in the program's order. Blocks are objects, numbered from 0 as they are made; a realloc keeps the
 * number. Threads are numbered from 0 by their first events. */
struct trace_event {
  uint64_t size;    /* of the block; free: of the one freed */
  int64_t delta;    /* change of the live bytes */
  uint64_t time_us; /* since the start; never falls */
  uint32_t object;
  uint32_t thread;
  uint32_t site; /* from TRACE_SITE_SIZE bytes on; TRACE_NO_SITE else */
  uint8_t kind;  /* enum trace_action */
  uint8_t alignment_log2;
  uint16_t flags;
};
_Static_assert(sizeof(struct trace_event) == 40, "lab/store/trace.py has the same layout");

enum trace_action { TRACE_DO_MALLOC, TRACE_DO_CALLOC, TRACE_DO_ALIGNED, TRACE_DO_FREE, TRACE_DO_REALLOC };
enum trace_flag {
  TRACE_IMPLIED = 1, /* a free that is not in the trace: its address was given out again, or an exec ended the heap */
  TRACE_REMOTE = 2,  /* a free or realloc by another thread than the one that made the block or last resized it */
  TRACE_STRAY = 4,   /* made by a realloc of a block that is not in the trace */
};
#define TRACE_NO_SITE UINT32_MAX

struct trace_site_row {
  uint64_t offset; /* of the return address in the module; the address itself if the module is unknown */
  uint32_t module; /* row of the modules; UINT32_MAX: unknown */
  uint32_t padding;
};

struct trace_facts {
  uint64_t file_bytes;
  uint64_t damage_offset;  /* bytes that are good; file_bytes if all are */
  uint64_t raw_events;     /* as recorded: a realloc is two */
  uint64_t unknown_frees;  /* of blocks from before the recording, or made in a signal handler; once all is read */
  uint64_t lost;           /* calls that the recorder could not record */
  uint64_t unix_s;         /* when the recording began */
  uint64_t duration_us;    /* from the first chunk to the last */
  uint64_t end_detail;     /* as in struct trace_end */
  uint32_t end_reason;     /* enum trace_end_reason; 0: no end mark */
  uint32_t images;         /* 1, and the number of execs */
  uint32_t modules, sites; /* sites: once all is read */
  uint32_t pid;
  char program[TRACE_NAME_BYTES];
  char damage[TRACE_SENTENCE]; /* empty if there is none */
};

struct trace;
/* NULL if nothing of it can be read; `problem` then says why in one sentence. */
struct trace *trace_open(const char *path, char problem[TRACE_SENTENCE]);
void trace_close(struct trace *trace);
void trace_facts_of(const struct trace *trace, struct trace_facts *facts);

/* The next events, at most `room`; 0 at the end. */
size_t trace_read(struct trace *trace, struct trace_event *events, size_t room);
bool trace_rewind(struct trace *trace);
bool trace_is_short_of_memory(const struct trace *trace); /* the reading ended early */

const struct trace_module *trace_module_of(const struct trace *trace, uint32_t row);
const struct trace_site_row *trace_sites(const struct trace *trace);

/* Writes the plan by which bin/replay works (plan.h); false: `problem` says why. */
bool trace_plan(struct trace *trace, const char *path, char problem[TRACE_SENTENCE]);
