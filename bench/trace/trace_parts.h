/* trace_parts.h: what the files of the reader share. */
#pragma once

#include "trace.h"

enum { TRACE_IMAGES_MAX = 1 << 10 };

/* One chunk of events; trace_open has checked it. */
struct part {
  uint64_t offset;
  uint32_t lane, image;
};

struct raw {
  uint64_t order, time_us, address, size, offset;
  uint32_t thread, module; /* module: number in its image */
  uint8_t kind, alignment_log2;
};

/* A place in the events of a chunk. */
struct cursor {
  const unsigned char *at, *end;
  uint64_t order, time_us, address, thread;
  uint32_t left;
};

struct reader;
struct trace {
  const unsigned char *bytes;
  size_t mapped;
  struct trace_facts facts;
  struct part *parts;
  size_t part_count, part_room;
  struct trace_module *modules;
  size_t module_room;
  uint32_t *image_modules; /* for each image: the row of its first module */
  size_t image_room;
  uint64_t start_us;
  struct reader *reader;
};

/* Makes room for one more item; false: no memory. */
bool trace_grow(void **items, size_t *room, size_t count, size_t item_bytes);
struct cursor trace_cursor(const struct trace_chunk *chunk, const unsigned char *payload);
/* The next event of the chunk; false if what stands there is none. left > 0. */
bool trace_step(struct cursor *cursor, struct raw *raw);
void trace_reader_close(struct reader *reader);
uint64_t trace_reader_unknown_frees(const struct reader *reader);
uint32_t trace_reader_sites(const struct reader *reader, const struct trace_site_row **rows);
