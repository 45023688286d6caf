/* doctor_crash.c: names the functions in a report of hakmem's (docs/guard.md, leaks): lines "hakmem:
 * FILE+0xOFFSET". */
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
      printf("  %s+0x%lx", name, inside);
  }
}

/* A log may be written while it is read, and have zero bytes. */
void doctor_print_crash(const char *path) {
  bool is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : fopen(path, "re");
  char *line = NULL;
  size_t room = 0;
  for (ssize_t length; file && (length = getline(&line, &room, file)) > 0;) {
    length -= line[length - 1] == '\n';
    line[length] = 0;
    fwrite(line, 1, (size_t)length, stdout);
    print_function(line);
    putchar('\n');
  }
  if (file == NULL || !feof(file))
    tool_fail(2, "%s: %m", path);
  free(line);
  if (!is_stdin)
    fclose(file);
}
