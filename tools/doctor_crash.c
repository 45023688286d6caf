/* doctor_crash.c: names the functions in a report of hakmem's (docs/guard.md, leaks), in its lines
 * "hakmem:     FILE+0xOFFSET". A log may have its own words before each line (journalctl, syslog). */
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "hakmem: "
#define FRAME MARK "    "
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

/* Returns where the text begins the line or stands behind a space, or NULL. */
static char *find_word(char *line, const char *text) {
  for (char *at = line; (at = strstr(at, text)) != NULL; at++)
    if (at == line || at[-1] == ' ' || at[-1] == '\t')
      return at;
  return NULL;
}

/* Prints the function behind a line, if that is a frame whose file has names. Changes the line. */
static void print_function(char *line) {
  char *plus = NULL, *end, *frame = find_word(line, FRAME);
  for (char *at = frame; at && (at = strstr(at, "+0x")) != NULL; at++)
    plus = at;
  uint64_t inside = 0, offset = plus ? strtoull(plus + 1, &end, 16) : 0;
  if (plus && *end == 0) {
    *plus = 0;
    const struct elf *elf = file_of(frame + strlen(FRAME));
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
  bool is_report = false;
  for (ssize_t length; file && (length = getline(&line, &room, file)) > 0;) {
    length -= line[length - 1] == '\n';
    line[length] = 0;
    is_report = is_report || find_word(line, MARK);
    fwrite(line, 1, (size_t)length, stdout);
    print_function(line);
    putchar('\n');
  }
  if (file == NULL || !feof(file))
    tool_fail(2, "%s: %m", path);
  if (!is_report)
    tool_fail(2, "%s: there is no report of hakmem in it", is_stdin ? "stdin" : path);
  free(line);
  if (!is_stdin)
    fclose(file);
}
