/* names.h: the table of the names that mallctl knows. */
#pragma once

#include "base/words.h"

enum name_type { TYPE_NONE, TYPE_BOOL, TYPE_UNSIGNED, TYPE_SIZE, TYPE_SSIZE, TYPE_U64, TYPE_TEXT };

union name_value {
  bool is_true;
  unsigned number;
  size_t size;
  int64_t ssize;
  uint64_t u64;
  const char *text;
};

/* A row. read and write return 0 or the error that mallctl returns; NULL: the name is not read, or not written. A name
 * without a type is an action: `write` does it. mib: one number for each part of the name; where the name has a '*',
 * the number that stands there, else the row's own number. */
struct row {
  const char *name;
  enum name_type type;
  int (*read)(const struct row *row, const size_t *mib, union name_value *value);
  int (*write)(const struct row *row, const size_t *mib, union name_value value);
  bool is_written_first; /* then the value that is read is the one after it */
  union name_value constant;
};

#define NAME_PARTS_MAX 6u

extern const struct row names[];
extern const size_t name_count;

/* The program's message function, or stderr. */
void message_write(const char *text);
