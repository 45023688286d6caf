/* doctor_crash.c: names the functions in a report of hakmem's (docs/guard.md, leaks): lines "hakmem:
 * FILE+0xOFFSET". */
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_BYTES_MAX ((size_t)64 << 20)
#define FRAME "hakmem:     "
#define FILES_MAX 64u

struct known_file {
  const char *path;
  struct elf elf;
};

/* Each file is opened once. */
static const struct elf *file_of(const char *path) {
  static struct known_file files[FILES_MAX];
  static unsigned count;
  for (unsigned i = 0; i < count; i++)
    if (strcmp(files[i].path, path) == 0)
      return &files[i].elf;
  if (count == FILES_MAX || !elf_open(&files[count].elf, path))
    return NULL;
  files[count].path = path;
  return &files[count++].elf;
}

/* Prints a line, and the function behind it if it is a frame whose file has names. Changes the line. */
static void print_line(char *line) {
  char *plus = NULL, *end;
  printf("%s", line);
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
  printf("\n");
}

int doctor_print_crash(const char *path) {
  size_t length;
  char *report = tool_read(path, REPORT_BYTES_MAX, &length);
  if (report == NULL)
    return tool_complain(2, "%s: %m", path);
  for (char *line = report, *next; *line; line = next) { /* the text stays: paths of files point into it */
    size_t bytes = strcspn(line, "\n");
    next = line + bytes + (line[bytes] != 0);
    line[bytes] = 0;
    print_line(line);
  }
  return 0;
}
