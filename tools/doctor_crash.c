/* doctor_crash.c: names the functions in a report of hakmem's (docs/guard.md, leaks): lines "hakmem:
 * FILE+0xOFFSET". */
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)8 << 10) /* longer than the longest frame */
#define FRAME "hakmem:     "
#define FILES_MAX 64u

struct known_file {
  char *path;
  struct elf elf;
};

/* Each file is opened once. */
static const struct elf *file_of(const char *path) {
  static struct known_file files[FILES_MAX];
  static unsigned count;
  for (unsigned i = 0; i < count; i++)
    if (strcmp(files[i].path, path) == 0)
      return &files[i].elf;
  if (count == FILES_MAX || !elf_open(&files[count].elf, path) || (files[count].path = strdup(path)) == NULL)
    return NULL;
  return &files[count++].elf;
}

/* Prints the function behind a line, if that is a frame whose file has names. Changes the line. */
static void print_function(char *line) {
  char *plus = NULL, *end;
  if (strncmp(line, FRAME, strlen(FRAME)) == 0)
    for (char *at = line; (at = strstr(at, "+0x")) != NULL; at++)
      plus = at;
  uint64_t inside = 0, offset = plus ? strtoull(plus + 1, &end, 16) : 0;
  if (plus && *end == 0) {
    *plus = 0;
    const struct elf *elf = file_of(line + strlen(FRAME));
    const char *name = elf ? elf_function_at(elf, offset, &inside) : NULL;
    if (name)
      printf("  %s+0x%jx", name, (uintmax_t)inside);
  }
}

/* Reads to the end of a line, or as much of it as there is room for. Returns how much; 0 at the end, or after an error. */
static size_t piece_read(FILE *file, char *piece) {
  size_t length = 0;
  for (int c = 0; length < PIECE_BYTES - 1 && c != '\n' && (c = getc(file)) != EOF;)
    piece[length++] = (char)c;
  piece[length] = 0;
  return length;
}

/* A log may be long, be written while it is read, and have zero bytes. */
void doctor_print_crash(const char *path) {
  bool is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : fopen(path, "re");
  if (file == NULL)
    tool_fail(2, "%s: %m", path);
  static char piece[PIECE_BYTES];
  bool is_begin = true; /* of a line */
  for (size_t length; (length = piece_read(file, piece)) > 0;) {
    bool has_end = piece[length - 1] == '\n';
    piece[length - has_end] = 0;
    fwrite(piece, 1, length - has_end, stdout);
    if (is_begin && (has_end || feof(file)))
      print_function(piece);
    if (has_end)
      putchar('\n');
    is_begin = has_end;
  }
  if (!is_begin)
    putchar('\n');
  if (ferror(file))
    tool_fail(2, "%s: %m", path);
  if (!is_stdin)
    fclose(file);
}
