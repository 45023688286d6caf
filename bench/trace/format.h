/* format.h: the file of an allocation trace. docs/traces.md describes it for people.
 *
 * A trace is a row of chunks: a header, a payload. Words are little-endian. A file holds one process; an exec
 * begins a further image of it.
 *   F1  the first chunk of an image is TRACE_START
 *   F2  the last chunk of an image is TRACE_END, unless the process was killed
 *   F3  a module's chunk stands before every event that names the module
 *   F4  the chunks of a lane, and the events in them, are in the order of their order numbers
 *   F5  an order number is given once in an image; a block's events are in its order
 * A lane is a buffer of the recorder that some threads share. Numbers in events are varints, seven bits a byte, the
 * lowest first; signed ones are folded (0, -1, 1, -2, ...).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
  TRACE_MARK = 0x1a6b6168, /* "hak", end of text */
  TRACE_VERSION = 1,
  TRACE_LANES = 64,
  TRACE_PAYLOAD_MAX = 64 * 1024,
  TRACE_EVENT_MAX = 64,       /* bytes of one event, marks of thread and time included */
  TRACE_SITE_SIZE = 64 << 10, /* from this size on an event names its call site */
  TRACE_MODULES_MAX = 4096,
  TRACE_THREADS_MAX = 1 << 20, /* their numbers begin again behind */
  TRACE_NAME_BYTES = 88,
  TRACE_BUILD_ID_BYTES = 32,
};

/* No process has addresses or blocks beyond. */
#define TRACE_ADDRESS_MAX ((uint64_t)1 << 57)
#define TRACE_SIZE_MAX ((uint64_t)1 << 47)

struct trace_chunk {
  uint32_t mark;
  uint32_t crc; /* CRC-32 of all that follows, to the end of the payload */
  uint16_t kind;
  uint16_t lane;
  uint32_t payload_bytes;
  uint32_t items; /* TRACE_EVENTS: events; TRACE_END: the reason; TRACE_MODULE: its number, from 1 */
  uint32_t version;
  uint64_t order;   /* TRACE_EVENTS: of the first event; TRACE_END: order numbers given in this image */
  uint64_t time_us; /* TRACE_EVENTS: at the first event; else now. Of the system's monotonic clock, in its ticks */
};
_Static_assert(sizeof(struct trace_chunk) == 40, "a part of the format");

enum trace_chunk_kind { TRACE_START = 1, TRACE_MODULE, TRACE_EVENTS, TRACE_END };
enum trace_end_reason { TRACE_END_EXIT = 1, TRACE_END_EXEC, TRACE_END_SIGNAL, TRACE_END_LIMIT, TRACE_END_WRITE };

struct trace_start {
  uint64_t run;    /* the same in all traces of one `hak record` */
  uint64_t unix_s; /* when it began */
  uint32_t pid;
  uint32_t page_bytes;
  char program[TRACE_NAME_BYTES]; /* last component of the file's name, ends with 0 */
};
struct trace_module {
  uint32_t build_id_bytes; /* 0: none */
  unsigned char build_id[TRACE_BUILD_ID_BYTES];
  char name[TRACE_NAME_BYTES];
};
struct trace_end {
  uint64_t events; /* written in this image */
  uint64_t lost;   /* calls that were not recorded: of signal handlers that interrupted the recorder */
  uint64_t detail; /* the signal, the errno, or the limit in bytes */
};

/* The first byte of an event: its kind, and flags. What follows it:
 *     order, unless TRACE_NEXT                        how many more than the event before in this chunk
 *     MALLOC CALLOC REALLOC_GAVE                      address, size, site if large
 *     ALIGNED                                         address, size, logarithm of the alignment, site if large
 *     FREE REALLOC_TOOK                               address
 *     REALLOC_KEPT REALLOC_FREED                      nothing
 *     THREAD                                          number of the thread of the events that follow; no order
 *     TIME                                            microseconds to add to the time; no order
 * address: signed, from that of the event before in this chunk, in units of 8 bytes, or of 1 if TRACE_ODD.
 * site: number of the module (0: unknown), return address less the module's load address.
 * A realloc takes the old block before the call and gives one after it; KEPT: it failed, FREED: its size was 0. */
enum trace_event_kind {
  TRACE_MALLOC,
  TRACE_CALLOC,
  TRACE_ALIGNED,
  TRACE_FREE,
  TRACE_REALLOC_TOOK,
  TRACE_REALLOC_GAVE,
  TRACE_REALLOC_KEPT,
  TRACE_REALLOC_FREED,
  TRACE_THREAD,
  TRACE_TIME,
  TRACE_KINDS
};
enum { TRACE_KIND_BITS = 0x0f, TRACE_NEXT = 0x10, TRACE_ODD = 0x20 };

static inline uint64_t trace_fold(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }
static inline int64_t trace_unfold(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

/* Writes at most 10 bytes; returns the end. */
static inline unsigned char *trace_put(unsigned char *at, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    *at++ = (unsigned char)(value | 0x80);
  *at++ = (unsigned char)value;
  return at;
}

/* Reads a varint that ends before `end`; NULL if there is none, or none that fits into 64 bits. */
static inline const unsigned char *trace_get(const unsigned char *at, const unsigned char *end, uint64_t *value) {
  uint64_t found = 0;
  for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
    uint64_t bits = *at & 0x7f;
    if (shift == 63 && bits > 1)
      return NULL;
    found |= bits << shift;
    if (!(*at++ & 0x80)) {
      *value = found;
      return at;
    }
  }
  return NULL;
}

/* CRC-32 as in gzip, eight bytes a step. */
struct trace_crc {
  uint32_t table[8][256];
};
static inline void trace_crc_prepare(struct trace_crc *crc) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; bit++)
      value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
    crc->table[0][i] = value;
  }
  for (int k = 1; k < 8; k++)
    for (int i = 0; i < 256; i++)
      crc->table[k][i] = crc->table[k - 1][i] >> 8 ^ crc->table[0][crc->table[k - 1][i] & 0xff];
}
static inline uint32_t trace_crc_of(const struct trace_crc *crc, const void *data, size_t bytes) {
  const unsigned char *at = data;
  uint32_t value = ~0u;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint32_t low, high;
    memcpy(&low, at, 4);
    memcpy(&high, at + 4, 4);
    low ^= value;
    value = crc->table[7][low & 0xff] ^ crc->table[6][low >> 8 & 0xff] ^ crc->table[5][low >> 16 & 0xff] ^
            crc->table[4][low >> 24] ^ crc->table[3][high & 0xff] ^ crc->table[2][high >> 8 & 0xff] ^
            crc->table[1][high >> 16 & 0xff] ^ crc->table[0][high >> 24];
  }
  for (; bytes; bytes--)
    value = value >> 8 ^ crc->table[0][(value ^ *at++) & 0xff];
  return ~value;
}
