/* doctor_read.c: reads files of the kernel, and words and numbers in them. */
#include "base/text.h"
#include "tools/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Results stay valid until the program ends. */
static struct kept {
  struct kept *next;
  char bytes[];
} *kept;

static char *keep_bytes(size_t length) {
  struct kept *piece = malloc(sizeof *piece + length + 1);
  if (piece == NULL)
    return NULL;
  piece->next = kept;
  kept = piece;
  piece->bytes[length] = 0;
  return piece->bytes;
}

/* Files of the kernel do not report their length. */
char *doctor_read_bytes(const char *path, size_t *length) {
  FILE *file = fopen(path, "re");
  char *bytes = NULL, *result = NULL;
  size_t size = 0, room = 0;
  *length = 0;
  if (file == NULL)
    return NULL;
  while (!feof(file) && !ferror(file)) {
    if (room - size < 4096) {
      char *grown = realloc(bytes, room = 2 * room + 8192);
      if (grown == NULL)
        break;
      bytes = grown;
    }
    size += fread(bytes + size, 1, room - size, file);
  }
  if (feof(file) && !ferror(file) && (result = keep_bytes(size)) != NULL)
    memcpy(result, bytes, size);
  fclose(file);
  free(bytes);
  *length = size;
  return result;
}

static char *read_list(const struct doctor *doctor, const char *format, va_list list) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof path, "%s", doctor->root);
  vsnprintf(path + length, sizeof path - (size_t)length, format, list);
  size_t bytes;
  return doctor_read_bytes(path, &bytes);
}

char *doctor_read(const struct doctor *doctor, const char *format, ...) {
  va_list list;
  va_start(list, format);
  char *text = read_list(doctor, format, list);
  va_end(list);
  return text;
}

static uint64_t number_in(const char *text) {
  if (text == NULL || *text < '0' || *text > '9')
    return UINT64_MAX;
  return strtoull(text, NULL, 10); /* what is too large is UINT64_MAX */
}

uint64_t doctor_read_number(const struct doctor *doctor, const char *format, ...) {
  va_list list;
  va_start(list, format);
  char *text = read_list(doctor, format, list);
  va_end(list);
  return number_in(text);
}

const char *doctor_line(const char *text, const char *key) {
  size_t length = strlen(key);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += line != text;
    if (strncmp(line, key, length) == 0)
      return line + length + strspn(line + length, " \t");
  }
  return NULL;
}

uint64_t doctor_line_number(const char *text, const char *key) { return number_in(doctor_line(text, key)); }

unsigned doctor_percent(uint64_t part, uint64_t whole) {
  if (part == UINT64_MAX || whole == UINT64_MAX)
    return 0;
  double percent = whole == 0 ? 100 : (double)part * 100 / (double)whole;
  return percent < 1000 ? (unsigned)percent : 1000;
}

const char *doctor_bytes(uint64_t bytes) {
  static char places[4][32];
  static unsigned turn;
  char *place = places[turn++ % 4];
  struct text text = {.bytes = place, .capacity = sizeof places[0]};
  *place = 0;
  text_bytes(&text, bytes);
  return place;
}

const char *doctor_variable(const struct doctor *doctor, const char *name) {
  size_t length = strlen(name);
  for (char **variable = doctor->environment; variable && *variable; variable++)
    if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=')
      return *variable + length + 1;
  return NULL;
}

const char *doctor_base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* "Max open files            1024                 1048576              files" */
uint64_t doctor_limit(const struct doctor *doctor, const char *name) {
  const char *text = doctor_read(doctor, "%s/limits", doctor->proc);
  return doctor_line_number(text, name);
}
