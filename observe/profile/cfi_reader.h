/* cfi_reader.h: reads the numbers of .eh_frame, one after the other, from bytes that may end anywhere.
 *
 * A reader that meets the end is marked short and returns zeros from then on.
 */
#pragma once

#include "base/words.h"

#include <string.h>

struct cfi_reader {
  const unsigned char *at, *end;
  bool is_short;
};

/* Returns a reader for the next `length` bytes; *reader goes on behind them. */
static inline struct cfi_reader cfi_take_block(struct cfi_reader *reader, uint64_t length) {
  struct cfi_reader block = {.at = reader->at, .end = reader->at, .is_short = true};
  if (length > (size_t)(reader->end - reader->at)) {
    reader->is_short = true;
    reader->at = reader->end;
    return block;
  }
  reader->at += length;
  return (struct cfi_reader){.at = block.at, .end = reader->at, .is_short = reader->is_short};
}

/* Reads a number of at most 8 bytes, the lowest first. */
static inline uint64_t cfi_take_fixed(struct cfi_reader *reader, size_t bytes) {
  struct cfi_reader block = cfi_take_block(reader, bytes);
  uint64_t value = 0;
  if (!block.is_short)
    memcpy(&value, block.at, bytes);
  return value;
}

static inline unsigned char cfi_take_byte(struct cfi_reader *reader) {
  return (unsigned char)cfi_take_fixed(reader, 1);
}

static inline uint64_t cfi_take_sevens(struct cfi_reader *reader, bool is_signed) {
  uint64_t value = 0;
  unsigned shift = 0;
  unsigned char byte;
  do {
    byte = cfi_take_byte(reader);
    if (shift < 64)
      value |= (uint64_t)(byte & 0x7f) << shift;
    shift += 7;
  } while ((byte & 0x80) && !reader->is_short);
  if (is_signed && (byte & 0x40) && shift < 64)
    value |= UINT64_MAX << shift;
  return value;
}
static inline uint64_t cfi_take_unsigned(struct cfi_reader *reader) { return cfi_take_sevens(reader, false); }
static inline int64_t cfi_take_signed(struct cfi_reader *reader) { return (int64_t)cfi_take_sevens(reader, true); }
