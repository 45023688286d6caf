/* trace_plan.c: makes the plan of a trace: reads it to know its sizes, then to write the steps. */
#include "plan.h"
#include "trace_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BATCH = 4096 };
#define POSITION_MAX (((uint64_t)1 << PLAN_ARGUMENT_BITS) - 1)

struct row {
  uint64_t records, begin, last_sync;
  struct plan_record *out; /* NULL: records are counted only */
  bool has_begun;
};

struct maker {
  struct trace *trace;
  struct plan_head head;
  struct row *rows;
  size_t row_room;
  uint32_t *slot_of; /* by object */
  size_t object_room;
  uint32_t *turns, *free_slots; /* by slot; a stack */
  size_t slot_room, free_count, free_room;
  uint64_t live, position, step;
  uint32_t last_thread, next_sample;
  bool is_short; /* of memory */
};

static bool slot_take(struct maker *maker, uint32_t object) {
  uint32_t slot;
  if (maker->free_count)
    slot = maker->free_slots[--maker->free_count];
  else {
    if (!trace_grow((void **)&maker->turns, &maker->slot_room, maker->head.slots, sizeof *maker->turns))
      return false;
    slot = maker->head.slots++;
    maker->turns[slot] = 0;
  }
  /* Objects come in the order of their numbers. */
  if (!trace_grow((void **)&maker->slot_of, &maker->object_room, object, sizeof *maker->slot_of))
    return false;
  maker->slot_of[object] = slot;
  return true;
}

static bool slot_give(struct maker *maker, uint32_t slot) {
  if (!trace_grow((void **)&maker->free_slots, &maker->free_room, maker->free_count, sizeof *maker->free_slots))
    return false;
  maker->free_slots[maker->free_count++] = slot;
  return true;
}

static void put(struct maker *maker, uint32_t thread, enum plan_kind kind, uint64_t argument, unsigned alignment_log2,
                uint32_t slot, uint32_t turn) {
  struct row *row = &maker->rows[thread];
  if (row->out)
    row->out[row->records] = (struct plan_record){.what = argument | (uint64_t)kind << PLAN_ARGUMENT_BITS |
                                                          (uint64_t)alignment_log2 << PLAN_ALIGNMENT_SHIFT,
                                                  .slot = slot,
                                                  .turn = turn};
  row->records++;
}

static bool begin_thread(struct maker *maker, uint32_t thread) {
  while (maker->head.threads <= thread) {
    if (!trace_grow((void **)&maker->rows, &maker->row_room, maker->head.threads, sizeof *maker->rows))
      return false;
    maker->rows[maker->head.threads++] = (struct row){0};
  }
  struct row *row = &maker->rows[thread];
  if (!row->has_begun) {
    row->has_begun = true;
    row->begin = row->last_sync = maker->position;
    if (thread)
      put(maker, maker->last_thread, PLAN_SPAWN, thread, 0, 0, 0);
  }
  return true;
}

static bool step(struct maker *maker, const struct trace_event *event) {
  if (!begin_thread(maker, event->thread))
    return false;
  struct row *row = &maker->rows[event->thread];
  if (maker->head.samples && maker->step * maker->head.samples >= maker->next_sample * maker->head.steps)
    put(maker, event->thread, PLAN_SAMPLE, maker->next_sample++, 0, 0, 0);
  if (maker->head.threads > 1 && maker->position - row->last_sync >= PLAN_STRIDE) {
    put(maker, event->thread, PLAN_SYNC, maker->position, 0, 0, 0);
    row->last_sync = maker->position;
  }
  static const enum plan_kind kinds[] = {PLAN_MALLOC, PLAN_CALLOC, PLAN_ALIGNED, PLAN_FREE, PLAN_REALLOC};
  bool is_made = event->kind <= TRACE_DO_ALIGNED, is_freed = event->kind == TRACE_DO_FREE;
  if (is_made && !slot_take(maker, event->object))
    return false;
  uint32_t slot = maker->slot_of[event->object];
  put(maker, event->thread, kinds[event->kind], event->size, event->alignment_log2, slot, maker->turns[slot]++);
  if (is_freed && !slot_give(maker, slot))
    return false;
  maker->live += (uint64_t)event->delta;
  if (maker->live > maker->head.live_peak)
    maker->head.live_peak = maker->live;
  maker->step++;
  maker->position += 1 + (is_freed ? 0 : event->size / maker->head.unit_bytes);
  maker->last_thread = event->thread;
  return true;
}

static bool walk(struct maker *maker) {
  static _Thread_local struct trace_event events[BATCH];
  maker->live = maker->position = maker->step = 0;
  maker->next_sample = maker->last_thread = 0;
  maker->head.slots = 0;
  maker->free_count = 0;
  for (size_t i = 0; i < maker->head.threads; i++) {
    maker->rows[i].has_begun = false;
    maker->rows[i].records = 0;
  }
  if (!trace_rewind(maker->trace))
    return false;
  for (size_t count; (count = trace_read(maker->trace, events, BATCH)) != 0;)
    for (size_t i = 0; i < count; i++)
      if (!step(maker, &events[i]) || maker->position > POSITION_MAX)
        return false;
  return !trace_is_short_of_memory(maker->trace);
}

/* Two walks: one for the number of threads and the live peak, which decide about syncs and samples, one to count. */
static bool count(struct maker *maker) {
  maker->head = (struct plan_head){.mark = PLAN_MARK, .version = PLAN_VERSION, .unit_bytes = PLAN_UNIT_MAX};
  if (!walk(maker))
    return false;
  uint64_t unit = maker->head.live_peak / PLAN_DRIFT_SHARE / PLAN_WINDOW;
  maker->head.unit_bytes = unit < PLAN_UNIT_MIN ? PLAN_UNIT_MIN : unit > PLAN_UNIT_MAX ? PLAN_UNIT_MAX : unit;
  maker->head.steps = maker->step;
  uint64_t samples = maker->step / PLAN_SAMPLE_STEPS;
  maker->head.samples = samples > PLAN_SAMPLES ? PLAN_SAMPLES : (uint32_t)samples;
  if (!walk(maker))
    return false;
  maker->head.live_end = maker->live;
  maker->head.samples = maker->next_sample;
  for (size_t i = 0; i < maker->head.threads; i++)
    maker->head.records += maker->rows[i].records;
  return true;
}

static bool write_plan(struct maker *maker, char *bytes) {
  memcpy(bytes, &maker->head, sizeof maker->head);
  struct plan_thread *threads = (struct plan_thread *)(bytes + sizeof maker->head);
  struct plan_record *records = (struct plan_record *)(threads + maker->head.threads);
  for (size_t i = 0; i < maker->head.threads; i++) {
    threads[i] = (struct plan_thread){.records = maker->rows[i].records, .begin = maker->rows[i].begin};
    maker->rows[i].out = records;
    records += maker->rows[i].records;
  }
  return walk(maker);
}

static bool make(struct maker *maker, const char *path, char problem[TRACE_SENTENCE]) {
  if (!count(maker)) {
    snprintf(problem, TRACE_SENTENCE, "no memory to prepare %ju events", (uintmax_t)maker->trace->facts.raw_events);
    return false;
  }
  if (maker->head.steps == 0) {
    snprintf(problem, TRACE_SENTENCE, "has no events");
    return false;
  }
  uint64_t bytes = sizeof maker->head + maker->head.threads * sizeof(struct plan_thread) +
                   maker->head.records * sizeof(struct plan_record);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
  void *mapped = MAP_FAILED;
  if (!error) {
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    error = mapped == MAP_FAILED ? errno : write_plan(maker, mapped) ? 0 : ENOMEM;
  }
  if (mapped != MAP_FAILED)
    munmap(mapped, bytes);
  if (fd >= 0)
    close(fd);
  if (error)
    snprintf(problem, TRACE_SENTENCE, "the plan of %ju MB cannot be written: %s", (uintmax_t)(bytes >> 20),
             strerror(error));
  return !error;
}

bool trace_plan(struct trace *trace, const char *path, char problem[TRACE_SENTENCE]) {
  struct maker maker = {.trace = trace};
  bool is_made = make(&maker, path, problem);
  free(maker.rows);
  free(maker.slot_of);
  free(maker.turns);
  free(maker.free_slots);
  return is_made;
}
