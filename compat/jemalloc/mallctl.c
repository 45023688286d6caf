/* mallctl: the names of names.c, read and written; and what is printed of them. */
#include "base/text.h"
#include "jemalloc/jemalloc.h"
#include "jemalloc/names.h"
#include "os/os.h"
#include "os/say.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Programs set these two. The first is not obeyed. */
EXPORT const char *malloc_conf;
EXPORT void (*malloc_message)(void *context, const char *text);

void message_write(const char *text) {
  if (malloc_message)
    malloc_message(NULL, text);
  else
    os_write(2, text, strlen(text));
}

__attribute__((constructor)) static void warn(void) {
  size_t cursor = 0;
  const char *set = os_environment_next("MALLOC_CONF=", &cursor);
  const char *which = malloc_conf && *malloc_conf          ? "malloc_conf"
                      : set && set[strlen("MALLOC_CONF=")] ? "MALLOC_CONF"
                                                           : NULL;
  char bytes[160];
  struct text text = TEXT_IN(bytes);
  if (which == NULL)
    return;
  text_format(&text, "hakmem: %s is not obeyed: `hak options` lists what is (docs/coming-from/jemalloc.md)\n", which);
  os_say(bytes);
}

/* Compares a name with a row's; sets a number for each '*'. Returns the number of parts, 0 if they differ. */
static size_t name_match(const char *name, size_t row, size_t *mib) {
  const char *pattern = names[row].name;
  for (size_t part = 0; part < NAME_PARTS_MAX; part++) {
    size_t length = strcspn(name, "."), wanted = strcspn(pattern, ".");
    mib[part] = row;
    if (*pattern == '*') {
      char *end;
      if (*name < '0' || *name > '9')
        return 0;
      mib[part] = strtoul(name, &end, 10);
      if (end != name + length)
        return 0;
    } else if (length != wanted || memcmp(name, pattern, length) != 0) {
      return 0;
    }
    name += length, pattern += wanted;
    if (*name == 0 && *pattern == 0)
      return part + 1;
    if (*name == 0 || *pattern == 0)
      return 0;
    name++, pattern++;
  }
  return 0;
}

static size_t name_find(const char *name, size_t *mib) {
  size_t parts = 0;
  for (size_t row = 0; parts == 0 && row < name_count; row++)
    parts = name_match(name, row, mib);
  return parts;
}

/* Returns the number of parts of a row's name. */
static size_t parts_of(size_t row) {
  size_t parts = 1;
  for (const char *dot = names[row].name; (dot = strchr(dot, '.')) != NULL; dot++)
    parts++;
  return parts;
}

static size_t size_of(enum name_type type) {
  static const size_t sizes[] = {[TYPE_NONE] = 0,
                                 [TYPE_BOOL] = sizeof(bool),
                                 [TYPE_UNSIGNED] = sizeof(unsigned),
                                 [TYPE_SIZE] = sizeof(size_t),
                                 [TYPE_SSIZE] = sizeof(int64_t),
                                 [TYPE_U64] = sizeof(uint64_t),
                                 [TYPE_TEXT] = sizeof(char *)};
  return sizes[type];
}

static bool makes_something(const struct row *row) {
  const char *end = strrchr(row->name, '.');
  return end != NULL && strcmp(end, ".create") == 0;
}

/* Of a value of another length than the caller's as much as fits is read, as jemalloc's manual says, and EINVAL
 * returned. */
static int row_call(const size_t *mib, void *old, size_t *old_bytes, const void *set, size_t set_bytes) {
  const struct row *row = &names[mib[0]];
  size_t bytes = size_of(row->type);
  bool reads = old != NULL && old_bytes != NULL, writes = set != NULL && set_bytes != 0;
  union name_value value = {0};
  if (row->type == TYPE_NONE)
    return reads || writes ? EPERM : row->write(row, mib, value);
  if ((reads && !row->read) || (writes && !row->write))
    return EPERM;
  if (reads && *old_bytes != bytes && makes_something(row)) {
    *old_bytes = 0;
    return EINVAL;
  }
  if (writes && set_bytes != bytes)
    return EINVAL;
  union name_value wanted = {0};
  if (writes)
    memcpy(&wanted, set, bytes);
  int error = writes && row->is_written_first ? row->write(row, mib, wanted) : 0;
  if (error == 0 && reads)
    error = row->read(row, mib, &value);
  if (error == 0 && reads) {
    error = *old_bytes != bytes ? EINVAL : 0;
    *old_bytes = min_size(*old_bytes, bytes);
    memcpy(old, &value, *old_bytes);
  }
  if (error == 0 && writes && !row->is_written_first)
    error = row->write(row, mib, wanted);
  return error;
}

EXPORT int mallctl(const char *name, void *old, size_t *old_bytes, void *set, size_t set_bytes) {
  size_t mib[NAME_PARTS_MAX];
  return name_find(name, mib) ? row_call(mib, old, old_bytes, set, set_bytes) : ENOENT;
}

EXPORT int mallctlnametomib(const char *name, size_t *mib, size_t *length) {
  size_t found[NAME_PARTS_MAX], parts = name_find(name, found);
  if (parts == 0)
    return ENOENT;
  /* Into a shorter array goes the beginning, as with jemalloc. mallctlbymib refuses it. */
  *length = parts < *length ? parts : *length;
  memcpy(mib, found, *length * sizeof *mib);
  return 0;
}

EXPORT int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_bytes, void *set, size_t set_bytes) {
  if (length == 0 || mib[0] >= name_count || length != parts_of(mib[0]))
    return ENOENT;
  return row_call(mib, old, old_bytes, set, set_bytes);
}

/* --- malloc_stats_print ---- */

struct printer {
  void (*write)(void *context, const char *text);
  void *context;
};

static void text_print(const struct printer *printer, const char *text) {
  if (printer->write)
    printer->write(printer->context, text);
  else
    message_write(text);
}

static void print_value(const struct printer *printer, enum name_type type, const union name_value *value, bool json) {
  char bytes[64] = "";
  switch (type) {
  case TYPE_BOOL:
    snprintf(bytes, sizeof bytes, "%s", value->is_true ? "true" : "false");
    break;
  case TYPE_UNSIGNED:
    snprintf(bytes, sizeof bytes, "%u", value->number);
    break;
  case TYPE_SIZE:
    snprintf(bytes, sizeof bytes, "%zu", value->size);
    break;
  case TYPE_SSIZE:
    snprintf(bytes, sizeof bytes, "%lld", (long long)value->ssize);
    break;
  case TYPE_U64:
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)value->u64);
    break;
  case TYPE_TEXT:
    snprintf(bytes, sizeof bytes, json ? "\"%s\"" : "%s", value->text);
    break;
  case TYPE_NONE:
    break;
  }
  text_print(printer, bytes);
}

/* The rows of a group: those whose names begin with `prefix` and stand for one value. */
static void print_group(const struct printer *printer, const char *title, const char *prefix, bool json) {
  const char *between = "";
  char bytes[96];
  snprintf(bytes, sizeof bytes, json ? ",\"%s\":{" : "%s:\n", title);
  text_print(printer, bytes);
  for (size_t i = 0; i < name_count; i++) {
    size_t mib[NAME_PARTS_MAX] = {i};
    union name_value value;
    const struct row *row = &names[i];
    if (strncmp(row->name, prefix, strlen(prefix)) != 0 || strchr(row->name, '*') || row->read(row, mib, &value) != 0)
      continue;
    snprintf(bytes, sizeof bytes, json ? "%s\"%s\":" : "%s  %s: ", between, row->name + strlen(prefix));
    text_print(printer, bytes);
    print_value(printer, row->type, &value, json);
    between = json ? "," : "\n";
  }
  text_print(printer, json ? "}" : "\n");
}

EXPORT void malloc_stats_print(void (*write)(void *context, const char *text), void *context, const char *options) {
  const struct printer printer = {write, context};
  bool json = options && strchr(options, 'J');
  uint64_t one = 1;
  mallctl("epoch", NULL, NULL, &one, sizeof one);
  text_print(&printer, json ? "{\"jemalloc\":{\"version\":\"" : "___ Begin jemalloc statistics ___\nVersion: \"");
  text_print(&printer, JEMALLOC_VERSION);
  text_print(&printer, json ? "\"" : "\"\n");
  print_group(&printer, "config", "config.", json);
  print_group(&printer, "opt", "opt.", json);
  print_group(&printer, "stats", "stats.", json);
  if (!json) {
    static const char *const figures[] = {"allocated", "active", "metadata", "resident", "mapped", "retained"};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
      char name[32], line[64];
      size_t bytes = 0, length = sizeof bytes;
      snprintf(name, sizeof name, "stats.%s", figures[i]);
      mallctl(name, &bytes, &length, NULL, 0);
      snprintf(line, sizeof line, "%s%c%s: %zu", i ? ", " : "", figures[i][0] - (i ? 0 : 32), figures[i] + 1, bytes);
      text_print(&printer, line);
    }
  }
  text_print(&printer, json ? "}}\n" : "\n--- End jemalloc statistics ---\n");
}
