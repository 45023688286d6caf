/* trace.c: opens a trace and checks it. */
#include "trace_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT_LOG2_MAX = 47 };
#define ORDER_MAX ((uint64_t)1 << 62)

bool trace_grow(void **items, size_t *room, size_t count, size_t item_bytes) {
  if (count < *room)
    return true;
  size_t wanted = *room ? 2 * *room : 64;
  void *grown = reallocarray(*items, wanted, item_bytes);
  if (!grown)
    return false;
  *items = grown;
  *room = wanted;
  return true;
}

struct cursor trace_cursor(const struct trace_chunk *chunk, const unsigned char *payload) {
  return (struct cursor){.at = payload,
                         .end = payload + chunk->payload_bytes,
                         .order = chunk->order - 1,
                         .time_us = chunk->time_us,
                         .left = chunk->items};
}

bool trace_step(struct cursor *cursor, struct raw *raw) {
  const unsigned char *at = cursor->at, *end = cursor->end;
  uint64_t value;
  unsigned head;
  for (;;) {
    if (at == end)
      return false;
    head = *at++;
    unsigned kind = head & TRACE_KIND_BITS;
    if (kind < TRACE_THREAD)
      break;
    if (head >= TRACE_KINDS || !(at = trace_get(at, end, &value)))
      return false;
    if (kind == TRACE_THREAD)
      cursor->thread = value;
    else if (value > ORDER_MAX || (cursor->time_us += value) > ORDER_MAX)
      return false;
  }
  raw->kind = head & TRACE_KIND_BITS;
  if (head & ~(unsigned)(TRACE_KIND_BITS | TRACE_NEXT | TRACE_ODD) || cursor->thread == 0 ||
      cursor->thread > TRACE_THREADS_MAX)
    return false;
  value = 1;
  if (!(head & TRACE_NEXT) && !(at = trace_get(at, end, &value)))
    return false;
  if (value == 0 || value > ORDER_MAX || (cursor->order += value) > ORDER_MAX)
    return false;
  raw->order = cursor->order;
  raw->time_us = cursor->time_us;
  raw->thread = (uint32_t)cursor->thread;
  raw->address = raw->size = raw->offset = 0;
  raw->module = 0;
  raw->alignment_log2 = 0;
  if (raw->kind != TRACE_REALLOC_KEPT && raw->kind != TRACE_REALLOC_FREED) {
    if (!(at = trace_get(at, end, &value)))
      return false;
    uint64_t step = (uint64_t)trace_unfold(value);
    raw->address = head & TRACE_ODD ? cursor->address + step : (cursor->address / 8 + step) * 8;
    if (raw->address == 0 || raw->address > TRACE_ADDRESS_MAX)
      return false;
    cursor->address = raw->address;
    if (raw->kind != TRACE_FREE && raw->kind != TRACE_REALLOC_TOOK) {
      if (!(at = trace_get(at, end, &raw->size)) || raw->size > TRACE_SIZE_MAX)
        return false;
      if (raw->kind == TRACE_ALIGNED) {
        if (at == end || (raw->alignment_log2 = *at++) > ALIGNMENT_LOG2_MAX)
          return false;
      }
      if (raw->size >= TRACE_SITE_SIZE) {
        if (!(at = trace_get(at, end, &value)) || value > TRACE_MODULES_MAX)
          return false;
        raw->module = (uint32_t)value;
        if (!(at = trace_get(at, end, &raw->offset)))
          return false;
      }
    }
  }
  cursor->at = at;
  cursor->left--;
  return true;
}

/* --- the check --------------------------------------------------------------------------------------- */

/* The state of the walk over the chunks. */
struct walk {
  struct trace *trace;
  struct trace_crc crc;
  uint64_t gave;   /* blocks made so far, at most */
  uint64_t events; /* of this image */
  uint64_t lane_order[TRACE_LANES];
  uint32_t modules; /* of this image */
  uint64_t last_us;
  bool has_end;
};

static bool damaged(struct walk *walk, uint64_t offset, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool damaged(struct walk *walk, uint64_t offset, const char *format, ...) {
  struct trace_facts *facts = &walk->trace->facts;
  int used = snprintf(facts->damage, TRACE_SENTENCE, "is damaged at byte %ju: ", (uintmax_t)offset);
  va_list list;
  va_start(list, format);
  vsnprintf(facts->damage + used, (size_t)(TRACE_SENTENCE - used), format, list);
  va_end(list);
  return false;
}

/* The header of the chunk at `offset`, if it is whole and its checksum is right. */
static bool check_chunk(struct walk *walk, uint64_t offset, struct trace_chunk *chunk) {
  uint64_t rest = walk->trace->facts.file_bytes - offset;
  const unsigned char *at = walk->trace->bytes + offset;
  if (rest < sizeof *chunk)
    return damaged(walk, offset, "the file ends inside the header of a chunk");
  memcpy(chunk, at, sizeof *chunk);
  if (chunk->mark != TRACE_MARK)
    return damaged(walk, offset, "no chunk begins there");
  if (chunk->payload_bytes > TRACE_PAYLOAD_MAX)
    return damaged(walk, offset, "a chunk of %u bytes, more than there are in one", chunk->payload_bytes);
  if (chunk->payload_bytes > rest - sizeof *chunk)
    return damaged(walk, offset, "the file ends inside a chunk");
  size_t skipped = offsetof(struct trace_chunk, kind);
  if (trace_crc_of(&walk->crc, at + skipped, sizeof *chunk - skipped + chunk->payload_bytes) != chunk->crc)
    return damaged(walk, offset, "the checksum of a chunk is wrong");
  if (chunk->version != TRACE_VERSION)
    return damaged(walk, offset, "format %u, of another hakmem; this one reads format %d", chunk->version,
                   TRACE_VERSION);
  return true;
}

static bool check_start(struct walk *walk, uint64_t offset, const struct trace_chunk *chunk) {
  struct trace *trace = walk->trace;
  struct trace_facts *facts = &trace->facts;
  struct trace_start start;
  if (chunk->payload_bytes != sizeof start)
    return damaged(walk, offset, "a start of %u bytes", chunk->payload_bytes);
  memcpy(&start, trace->bytes + offset + sizeof *chunk, sizeof start);
  if (facts->images == TRACE_IMAGES_MAX || start.program[TRACE_NAME_BYTES - 1])
    return damaged(walk, offset, "a start that is none");
  if (!trace_grow((void **)&trace->image_modules, &trace->image_room, facts->images, sizeof *trace->image_modules))
    return damaged(walk, offset, "no memory to read on");
  if (facts->images == 0) {
    facts->unix_s = start.unix_s;
    trace->start_us = walk->last_us = chunk->time_us;
  }
  facts->pid = start.pid;
  memcpy(facts->program, start.program, TRACE_NAME_BYTES); /* that of the last image: the others led to it */
  trace->image_modules[facts->images++] = facts->modules;
  memset(walk->lane_order, 0, sizeof walk->lane_order);
  walk->modules = 0;
  walk->events = 0;
  walk->has_end = false;
  facts->end_reason = 0;
  return true;
}

static bool check_module(struct walk *walk, uint64_t offset, const struct trace_chunk *chunk) {
  struct trace *trace = walk->trace;
  struct trace_module module;
  if (chunk->payload_bytes != sizeof module)
    return damaged(walk, offset, "a module of %u bytes", chunk->payload_bytes);
  memcpy(&module, trace->bytes + offset + sizeof *chunk, sizeof module);
  if (chunk->items != walk->modules + 1 || chunk->items > TRACE_MODULES_MAX ||
      module.build_id_bytes > TRACE_BUILD_ID_BYTES || module.name[TRACE_NAME_BYTES - 1])
    return damaged(walk, offset, "a module that is none");
  if (!trace_grow((void **)&trace->modules, &trace->module_room, trace->facts.modules, sizeof module))
    return damaged(walk, offset, "no memory to read on");
  trace->modules[trace->facts.modules++] = module;
  walk->modules++;
  return true;
}

static bool check_events(struct walk *walk, uint64_t offset, const struct trace_chunk *chunk) {
  struct trace *trace = walk->trace;
  if (chunk->lane >= TRACE_LANES || chunk->items == 0 || chunk->time_us > ORDER_MAX || chunk->order > ORDER_MAX ||
      chunk->order <= walk->lane_order[chunk->lane])
    return damaged(walk, offset, "events that are out of order");
  struct cursor cursor = trace_cursor(chunk, trace->bytes + offset + sizeof *chunk);
  struct raw raw;
  uint64_t gave = walk->gave;
  while (cursor.left) {
    uint64_t at = (uint64_t)(cursor.at - trace->bytes);
    if (!trace_step(&cursor, &raw) || raw.module > walk->modules)
      return damaged(walk, at, "an event that is none");
    gave += raw.kind != TRACE_FREE;
  }
  if (cursor.at != cursor.end)
    return damaged(walk, (uint64_t)(cursor.at - trace->bytes), "more in a chunk than its events");
  if (gave >= UINT32_MAX)
    return damaged(walk, offset, "more than %u events that make blocks; the rest is left out", UINT32_MAX);
  if (!trace_grow((void **)&trace->parts, &trace->part_room, trace->part_count, sizeof *trace->parts))
    return damaged(walk, offset, "no memory to read on");
  trace->parts[trace->part_count++] =
      (struct part){.offset = offset, .lane = chunk->lane, .image = trace->facts.images - 1};
  walk->gave = gave;
  walk->events += chunk->items;
  walk->lane_order[chunk->lane] = raw.order;
  trace->facts.raw_events += chunk->items;
  if (raw.time_us > walk->last_us)
    walk->last_us = raw.time_us;
  return true;
}

static bool check_end(struct walk *walk, uint64_t offset, const struct trace_chunk *chunk) {
  struct trace_end end;
  if (chunk->payload_bytes != sizeof end || chunk->items < TRACE_END_EXIT || chunk->items > TRACE_END_WRITE)
    return damaged(walk, offset, "an end that is none");
  memcpy(&end, walk->trace->bytes + offset + sizeof *chunk, sizeof end);
  if (end.events != walk->events)
    return damaged(walk, offset, "the end mark counts %ju events, and %ju are there", (uintmax_t)end.events,
                   (uintmax_t)walk->events);
  struct trace_facts *facts = &walk->trace->facts;
  facts->end_reason = chunk->items;
  facts->end_detail = end.detail;
  facts->lost += end.lost;
  if (chunk->time_us > walk->last_us)
    walk->last_us = chunk->time_us;
  walk->has_end = true;
  return true;
}

static bool check_next(struct walk *walk, uint64_t offset, struct trace_chunk *chunk) {
  if (!check_chunk(walk, offset, chunk))
    return false;
  if (chunk->kind != TRACE_START && (walk->trace->facts.images == 0 || walk->has_end))
    return damaged(walk, offset, walk->has_end ? "a chunk behind the end mark" : "a trace does not begin so");
  switch (chunk->kind) {
  case TRACE_START:
    return check_start(walk, offset, chunk);
  case TRACE_MODULE:
    return check_module(walk, offset, chunk);
  case TRACE_EVENTS:
    return check_events(walk, offset, chunk);
  case TRACE_END:
    return check_end(walk, offset, chunk);
  default:
    return damaged(walk, offset, "a chunk of unknown kind %u", chunk->kind);
  }
}

static void check(struct trace *trace) {
  struct walk *walk = calloc(1, sizeof *walk);
  if (!walk) {
    snprintf(trace->facts.damage, TRACE_SENTENCE, "cannot be read: no memory");
    return;
  }
  walk->trace = trace;
  trace_crc_prepare(&walk->crc);
  uint64_t offset = 0;
  struct trace_chunk chunk;
  while (offset < trace->facts.file_bytes && check_next(walk, offset, &chunk))
    offset += sizeof chunk + chunk.payload_bytes;
  trace->facts.damage_offset = offset;
  trace->facts.duration_us = walk->last_us - trace->start_us;
  if (trace->facts.damage[0])
    trace->facts.end_reason = 0;
  free(walk);
}

struct trace *trace_open(const char *path, char problem[TRACE_SENTENCE]) {
  struct stat found;
  struct trace *trace = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &found)) {
    snprintf(problem, TRACE_SENTENCE, "cannot be opened: %s", strerror(errno));
  } else if (!S_ISREG(found.st_mode)) {
    snprintf(problem, TRACE_SENTENCE, "is not a file");
  } else if (found.st_size == 0) {
    snprintf(problem, TRACE_SENTENCE, "is empty: nothing was recorded");
  } else if (!(trace = calloc(1, sizeof *trace))) {
    snprintf(problem, TRACE_SENTENCE, "cannot be read: no memory");
  } else {
    trace->mapped = trace->facts.file_bytes = (uint64_t)found.st_size;
    void *bytes = mmap(NULL, trace->mapped, PROT_READ, MAP_PRIVATE, fd, 0);
    trace->bytes = bytes == MAP_FAILED ? NULL : bytes;
    uint32_t mark = 0;
    if (trace->bytes && trace->mapped >= sizeof mark)
      memcpy(&mark, trace->bytes, sizeof mark);
    if (!trace->bytes)
      snprintf(problem, TRACE_SENTENCE, "cannot be mapped: %s", strerror(errno));
    else if (mark != TRACE_MARK)
      snprintf(problem, TRACE_SENTENCE, "is no trace of hak record, or damaged at byte 0");
    else {
      check(trace);
      if (trace->facts.images == 0)
        memcpy(problem, trace->facts.damage, TRACE_SENTENCE);
    }
    if (trace->facts.images == 0) {
      trace_close(trace);
      trace = NULL;
    }
  }
  if (fd >= 0)
    close(fd);
  return trace;
}

void trace_close(struct trace *trace) {
  if (!trace)
    return;
  trace_reader_close(trace->reader);
  if (trace->bytes)
    munmap((void *)(uintptr_t)trace->bytes, trace->mapped);
  free(trace->parts);
  free(trace->modules);
  free(trace->image_modules);
  free(trace);
}

void trace_facts_of(const struct trace *trace, struct trace_facts *facts) {
  *facts = trace->facts;
  const struct trace_site_row *rows;
  facts->sites = trace_reader_sites(trace->reader, &rows);
  facts->unknown_frees = trace_reader_unknown_frees(trace->reader);
}

const struct trace_module *trace_module_of(const struct trace *trace, uint32_t row) {
  return row < trace->facts.modules ? &trace->modules[row] : NULL;
}

const struct trace_site_row *trace_sites(const struct trace *trace) {
  const struct trace_site_row *rows;
  trace_reader_sites(trace->reader, &rows);
  return rows;
}
