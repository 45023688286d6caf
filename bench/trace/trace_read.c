/* trace_read.c: the events of all lanes in one order, and what they are about: addresses become objects. */
#include "trace_parts.h"

#include <stdlib.h>

enum { LIVE_SLOTS_AT_FIRST = 1 << 12, SITE_SLOTS_AT_FIRST = 1 << 8 };
#define NOBODY UINT32_MAX

/* A live block. address 0: an empty slot of the table. */
struct live {
  uint64_t address, size;
  uint32_t object, thread; /* thread: the one that made or last resized it */
};

struct thread {
  struct live pending; /* address: where the block was that its realloc took; 0: none, or not known */
  uint32_t number;     /* dense, from 0; NOBODY: not seen yet */
};

/* A lane while it is read. */
struct lane {
  struct cursor cursor;
  struct raw raw; /* the next event, if has_raw */
  size_t part;    /* where to look for the lane's next chunk */
  bool has_raw;
};

struct reader {
  struct lane lanes[TRACE_LANES];
  uint32_t image;
  /* Blocks by address: open addressing, linear probing, at most half full. */
  struct live *live;
  size_t live_slots, live_count;
  size_t drained;         /* slots looked at, while an exec ends all of them */
  struct thread *threads; /* by the recorder's number */
  size_t thread_room;
  uint32_t threads_seen, last_thread;
  uint32_t objects;
  uint64_t time_us, unknown_frees;
  struct trace_site_row *sites;
  size_t site_count, site_room, site_slots;
  uint32_t *policy_table; /* row + 1 */
  bool is_short;          /* of memory: nothing more comes */
};

static uint64_t mix(uint64_t value) {
  value = (value ^ value >> 32) * 0x9e3779b97f4a7c15ull;
  return value ^ value >> 29;
}

/* --- blocks by address -------------------------------------------------------------------------------- */

static struct live *live_find(struct reader *reader, uint64_t address) {
  for (size_t slot = mix(address);; slot++) {
    struct live *live = &reader->live[slot & (reader->live_slots - 1)];
    if (live->address == address || live->address == 0)
      return live;
  }
}

static bool live_make_room(struct reader *reader) {
  if (reader->live && reader->live_count < reader->live_slots / 2)
    return true;
  size_t before = reader->live ? reader->live_slots : 0;
  struct live *slots = reader->live;
  size_t wanted = before ? 2 * before : LIVE_SLOTS_AT_FIRST;
  struct live *grown = calloc(wanted, sizeof *grown);
  if (!grown)
    return false;
  reader->live = grown;
  reader->live_slots = wanted;
  for (size_t i = 0; i < before; i++)
    if (slots[i].address)
      *live_find(reader, slots[i].address) = slots[i];
  free(slots);
  return true;
}

/* Takes the block out and closes the gap, so that a search may end at an empty slot. */
static struct live live_take(struct reader *reader, struct live *live) {
  struct live taken = *live;
  size_t mask = reader->live_slots - 1, gap = (size_t)(live - reader->live);
  for (size_t at = gap;;) {
    at = (at + 1) & mask;
    if (!reader->live[at].address)
      break;
    size_t home = mix(reader->live[at].address) & mask;
    if (((at - home) & mask) >= ((at - gap) & mask)) {
      reader->live[gap] = reader->live[at];
      gap = at;
    }
  }
  reader->live[gap].address = 0;
  reader->live_count--;
  return taken;
}

/* There is room: read_one made some. */
static void live_put(struct reader *reader, struct live live) {
  *live_find(reader, live.address) = live;
  reader->live_count++;
}

/* --- threads, sites ----------------------------------------------------------------------------------- */

static struct thread *thread_of(struct reader *reader, uint32_t number) {
  size_t before = reader->thread_room, room = before ? before : 64;
  while (room <= number)
    room *= 2;
  if (room > before) {
    struct thread *grown = reallocarray(reader->threads, room, sizeof *grown);
    if (!grown)
      return NULL;
    for (size_t i = before; i < room; i++)
      grown[i] = (struct thread){.number = NOBODY};
    reader->threads = grown;
    reader->thread_room = room;
  }
  return &reader->threads[number];
}

/* Threads are numbered when an event of theirs is put. */
static uint32_t number_of(struct reader *reader, struct thread *thread) {
  if (thread->number == NOBODY)
    thread->number = reader->threads_seen++;
  return reader->last_thread = thread->number;
}

static bool sites_make_room(struct reader *reader) {
  if (!trace_grow((void **)&reader->sites, &reader->site_room, reader->site_count, sizeof *reader->sites))
    return false;
  if (reader->policy_table && reader->site_count < reader->site_slots / 2)
    return true;
  size_t wanted = reader->policy_table ? 2 * reader->site_slots : SITE_SLOTS_AT_FIRST;
  uint32_t *table = calloc(wanted, sizeof *table);
  if (!table)
    return false;
  for (size_t row = 0; row < reader->site_count; row++) {
    size_t slot = mix(reader->sites[row].offset + reader->sites[row].module);
    while (table[slot & (wanted - 1)])
      slot++;
    table[slot & (wanted - 1)] = (uint32_t)row + 1;
  }
  free(reader->policy_table);
  reader->policy_table = table;
  reader->site_slots = wanted;
  return true;
}

static uint32_t site_of(struct reader *reader, uint32_t module, uint64_t offset) {
  for (size_t slot = mix(offset + module);; slot++) {
    uint32_t *entry = &reader->policy_table[slot & (reader->site_slots - 1)];
    if (!*entry) {
      reader->sites[reader->site_count] = (struct trace_site_row){.offset = offset, .module = module};
      *entry = (uint32_t)++reader->site_count;
    }
    const struct trace_site_row *row = &reader->sites[*entry - 1];
    if (row->offset == offset && row->module == module)
      return *entry - 1;
  }
}

/* --- one order ---------------------------------------------------------------------------------------- */

/* Sees to it that the lane has its next event, if there is one in this image. */
static bool lane_fill(struct trace *trace, uint32_t number) {
  struct lane *lane = &trace->reader->lanes[number];
  if (lane->has_raw)
    return true;
  while (lane->cursor.left == 0) {
    for (;; lane->part++) {
      if (lane->part == trace->part_count || trace->parts[lane->part].image > trace->reader->image)
        return false;
      if (trace->parts[lane->part].image == trace->reader->image && trace->parts[lane->part].lane == number)
        break;
    }
    const unsigned char *at = trace->bytes + trace->parts[lane->part++].offset;
    struct trace_chunk chunk;
    memcpy(&chunk, at, sizeof chunk);
    lane->cursor = trace_cursor(&chunk, at + sizeof chunk);
  }
  return lane->has_raw = trace_step(&lane->cursor, &lane->raw);
}

/* The lane whose next event is the first of all, or NULL at the end of the image. `*bound` is the order number up to
 * which it stays the first. */
static struct lane *first_lane(struct trace *trace, uint64_t *bound) {
  struct lane *first = NULL;
  *bound = UINT64_MAX;
  for (uint32_t i = 0; i < TRACE_LANES; i++) {
    if (!lane_fill(trace, i))
      continue;
    struct lane *lane = &trace->reader->lanes[i];
    if (!first || lane->raw.order < first->raw.order) {
      if (first)
        *bound = first->raw.order;
      first = lane;
    } else if (lane->raw.order < *bound)
      *bound = lane->raw.order;
  }
  return first;
}

/* --- what happened ------------------------------------------------------------------------------------ */

static void put(struct reader *reader, struct trace_event *event, enum trace_action kind, const struct live *live,
                int64_t delta, uint32_t thread, unsigned flags) {
  *event = (struct trace_event){.size = live->size,
                                .delta = delta,
                                .time_us = reader->time_us,
                                .object = live->object,
                                .thread = thread,
                                .site = TRACE_NO_SITE,
                                .kind = (uint8_t)kind,
                                .flags = (uint16_t)flags};
}

static void put_free(struct reader *reader, struct trace_event *event, const struct live *live, uint32_t thread,
                     unsigned flags) {
  put(reader, event, TRACE_DO_FREE, live, -(int64_t)live->size, thread,
      flags | (live->thread != thread ? TRACE_REMOTE : 0));
}

/* The events that one of the recorder's makes: up to two. */
static size_t resolve(struct trace *trace, const struct raw *raw, struct trace_event *events) {
  struct reader *reader = trace->reader;
  struct thread *thread = thread_of(reader, raw->thread);
  if (!thread || !live_make_room(reader) || !sites_make_room(reader)) {
    reader->is_short = true;
    return 0;
  }
  uint64_t time_us = raw->time_us > trace->start_us ? raw->time_us - trace->start_us : 0;
  if (time_us > reader->time_us)
    reader->time_us = time_us;

  struct live *found = raw->address ? live_find(reader, raw->address) : NULL;
  bool is_known = found && found->address;
  struct live pending = thread->pending;
  size_t count = 0;
  switch (raw->kind) {
  case TRACE_FREE:
    if (is_known) {
      struct live taken = live_take(reader, found);
      put_free(reader, &events[count++], &taken, number_of(reader, thread), 0);
    } else
      reader->unknown_frees++;
    return count;
  case TRACE_REALLOC_TOOK:
    thread->pending.address = 0;
    if (is_known)
      thread->pending = live_take(reader, found);
    else
      reader->unknown_frees++;
    return 0;
  case TRACE_REALLOC_KEPT:
    thread->pending.address = 0;
    if (pending.address && !live_find(reader, pending.address)->address)
      live_put(reader, pending);
    return 0;
  case TRACE_REALLOC_FREED:
    thread->pending.address = 0;
    if (pending.address)
      put_free(reader, &events[count++], &pending, number_of(reader, thread), 0);
    return count;
  default:
    break;
  }

  /* A block is given. */
  uint32_t number = number_of(reader, thread);
  if (is_known) {
    struct live taken = live_take(reader, found);
    put_free(reader, &events[count++], &taken, number, TRACE_IMPLIED);
  }
  struct live live = {.address = raw->address, .size = raw->size, .thread = number};
  bool is_realloc = raw->kind == TRACE_REALLOC_GAVE, is_stray = is_realloc && !pending.address;
  if (is_realloc)
    thread->pending.address = 0;
  live.object = is_realloc && !is_stray ? pending.object : reader->objects++;
  live_put(reader, live);
  struct trace_event *event = &events[count++];
  if (is_realloc && !is_stray)
    put(reader, event, TRACE_DO_REALLOC, &live, (int64_t)(live.size - pending.size), number,
        pending.thread != number ? TRACE_REMOTE : 0);
  else
    put(reader, event, is_stray ? TRACE_DO_MALLOC : (enum trace_action)raw->kind, &live, (int64_t)live.size, number,
        is_stray ? TRACE_STRAY : 0);
  event->alignment_log2 = raw->alignment_log2;
  if (raw->size >= TRACE_SITE_SIZE)
    event->site =
        site_of(reader, raw->module ? trace->image_modules[reader->image] + raw->module - 1 : NOBODY, raw->offset);
  return count;
}
_Static_assert((int)TRACE_MALLOC == TRACE_DO_MALLOC && (int)TRACE_CALLOC == TRACE_DO_CALLOC &&
                   (int)TRACE_ALIGNED == TRACE_DO_ALIGNED,
               "resolve casts them");

/* An exec ends the heap: the blocks that are live are freed by the thread that was active last. False: all are. */
static bool drain(struct reader *reader, struct trace_event *event) {
  for (; reader->drained < reader->live_slots; reader->drained++) {
    struct live *live = &reader->live[reader->drained];
    if (live->address) {
      put_free(reader, event, live, reader->last_thread, TRACE_IMPLIED);
      live->address = 0;
      return true;
    }
  }
  reader->drained = reader->live_count = 0;
  return false;
}

static void next_image(struct reader *reader) {
  reader->image++;
  for (size_t i = 0; i < reader->thread_room; i++)
    reader->threads[i] = (struct thread){.number = NOBODY};
  if (reader->threads_seen) /* the process's first thread stays the same one */
    reader->threads[1].number = 0;
  for (int i = 0; i < TRACE_LANES; i++)
    reader->lanes[i].cursor.left = 0;
}

size_t trace_read(struct trace *trace, struct trace_event *events, size_t room) {
  size_t count = 0;
  if (!trace->reader && !trace_rewind(trace))
    return 0;
  struct reader *reader = trace->reader;
  while (room - count >= 2 && !reader->is_short) {
    uint64_t bound;
    struct lane *lane = first_lane(trace, &bound);
    if (!lane) {
      if (reader->image + 1 >= trace->facts.images)
        break;
      if (drain(reader, &events[count]))
        count++;
      else
        next_image(reader);
      continue;
    }
    uint32_t number = (uint32_t)(lane - reader->lanes);
    do {
      count += resolve(trace, &lane->raw, &events[count]);
      lane->has_raw = false;
    } while (room - count >= 2 && !reader->is_short && lane_fill(trace, number) && lane->raw.order < bound);
  }
  return count;
}

bool trace_rewind(struct trace *trace) {
  trace_reader_close(trace->reader);
  trace->reader = calloc(1, sizeof *trace->reader);
  return trace->reader && live_make_room(trace->reader);
}

bool trace_is_short_of_memory(const struct trace *trace) { return !trace->reader || trace->reader->is_short; }
uint64_t trace_reader_unknown_frees(const struct reader *reader) { return reader ? reader->unknown_frees : 0; }

uint32_t trace_reader_sites(const struct reader *reader, const struct trace_site_row **rows) {
  *rows = reader ? reader->sites : NULL;
  return reader ? (uint32_t)reader->site_count : 0;
}

void trace_reader_close(struct reader *reader) {
  if (!reader)
    return;
  free(reader->live);
  free(reader->threads);
  free(reader->sites);
  free(reader->policy_table);
  free(reader);
}
