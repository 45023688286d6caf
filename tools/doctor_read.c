/* doctor_read.c: reads files of the kernel, and words and numbers in them. */
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES_MAX ((size_t)1 << 30)

/* Results stay valid until the program ends. */
static struct kept {
  struct kept *next;
  char bytes[];
} *kept;

char *doctor_read_bytes(const char *path, size_t *length) {
  FILE *file = fopen(path, "re");
  struct kept *piece = NULL;
  size_t room = 0;
  *length = 0;
  if (file == NULL)
    return NULL;
  do { /* files of the kernel do not report their length */
    if (room - *length < 2) {
      room = 2 * room + 8192;
      struct kept *grown = room < BYTES_MAX ? realloc(piece, sizeof *piece + room) : NULL;
      if (grown == NULL)
        tool_fail(2, "%s is too large, or there is no memory for it", path);
      piece = grown;
    }
    *length += fread(piece->bytes + *length, 1, room - *length - 1, file);
  } while (!feof(file) && !ferror(file));
  bool is_read = !ferror(file);
  fclose(file);
  piece->bytes[*length] = 0;
  piece->next = kept;
  kept = piece;
  return is_read ? piece->bytes : NULL;
}

char *doctor_read(const struct doctor *doctor, const char *format, ...) {
  char path[PATH_MAX];
  size_t bytes;
  int length = snprintf(path, sizeof path, "%s", doctor->root);
  va_list list;
  va_start(list, format);
  vsnprintf(path + length, sizeof path - (size_t)length, format, list);
  va_end(list);
  return doctor_read_bytes(path, &bytes);
}

uint64_t doctor_number(const char *text) {
  if (text == NULL || *text < '0' || *text > '9')
    return UINT64_MAX;
  return strtoull(text, NULL, 10); /* what is too large is UINT64_MAX */
}

const char *doctor_line(const char *text, const char *key) {
  size_t length = strlen(key);
  for (const char *line = text; line; line = *line ? line + 1 : NULL) {
    if (strncmp(line, key, length) == 0)
      return line + length + strspn(line + length, " \t");
    line += strcspn(line, "\n");
  }
  return NULL;
}

uint64_t doctor_line_number(const char *text, const char *key) { return doctor_number(doctor_line(text, key)); }

unsigned doctor_percent(uint64_t part, uint64_t whole) {
  if (part == UINT64_MAX || whole == UINT64_MAX)
    return 0;
  double percent = whole == 0 ? 100 : (double)part * 100 / (double)whole;
  return percent < 1000 ? (unsigned)percent : 1000;
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

bool doctor_has_proc(const struct doctor *doctor) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/proc/self", doctor->root);
  return access(path, F_OK) == 0;
}

/* "Max open files            1024                 1048576              files" */
uint64_t doctor_limit(const struct doctor *doctor, const char *name) {
  return doctor_line_number(doctor_read(doctor, "%s/limits", doctor->proc), name);
}
