#include "tools/tool.h"

#include "inspect/figures.h"
#include "profile/proto.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *tool_name = "";

/* --- the end --- */

int tool_end(int status) {
  errno = 0;
  /* An earlier write may have failed where this one does not. */
  if (fflush(stdout) == 0 && !ferror(stdout))
    return status;
  errno = errno != 0 ? errno : EIO;
  return tool_complain(status != 0 ? status : 1, "stdout: %m");
}

static void print_line(const char *format, va_list list) {
  int error = errno;
  fprintf(stderr, "%s: ", tool_name);
  errno = error;
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
}

int tool_complain(int status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  print_line(format, list);
  va_end(list);
  return status;
}

void tool_fail(int status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  print_line(format, list);
  exit(tool_end(status)); // NOLINT(concurrency-mt-unsafe): one thread
}

/* --- arguments --- */

void tool_begin(const char *name, const char *usage, int count, char *const *arguments) {
  tool_name = name;
  for (int i = 1; i < count && strcmp(arguments[i], "--") != 0; i++)
    if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
      fputs(usage, stdout);
      exit(tool_end(0)); // NOLINT(concurrency-mt-unsafe): one thread
    }
}

/* Takes the option at *arguments, and its value. Returns the last argument that it took. */
static char *const *take_option(char *const *arguments, const struct tool_option *options) {
  const char *word = *arguments;
  for (; options && options->name; options++) {
    size_t length = strlen(options->name);
    if (strncmp(word, options->name, length) != 0 || (word[length] && !(word[length] == '=' && options->value)))
      continue;
    if (options->choice)
      *options->choice = true;
    else if (word[length] == '=')
      *options->value = word + length + 1;
    else if ((*options->value = *++arguments) == NULL)
      tool_fail(2, "%s needs a value", word);
    return arguments;
  }
  tool_refuse("unknown option '%s'", word);
}

int tool_words(char *const *arguments, const struct tool_option *options, const char **words, int words_max) {
  int taken = 0;
  while (*arguments && arguments[1]) {
    arguments++;
    if ((*arguments)[0] == '-' && (*arguments)[1])
      arguments = take_option(arguments, options);
    else if (taken == words_max)
      tool_refuse("one argument too many: '%s'", *arguments);
    else
      words[taken++] = *arguments;
  }
  return taken;
}

bool tool_number(const char *word, long most, long *out) {
  char *end;
  errno = 0;
  *out = strtol(word, &end, 10);
  return *word >= '0' && *word <= '9' && *end == 0 && errno == 0 && *out <= most;
}

long tool_pid(const char *word) {
  long pid;
  if (*word == 0 || word[strspn(word, "0123456789")] != 0)
    tool_refuse("'%s' is no process id", word);
  if (!tool_number(word, INT_MAX, &pid) || pid == 0)
    tool_fail(2, "there is no process %s", word);
  return pid;
}

/* --- output --- */

enum { TEXT_BYTES = 24 };

static char *text_next(void) {
  static char texts[8][TEXT_BYTES];
  static unsigned turn;
  return texts[turn++ % 8];
}

const char *tool_size(uint64_t bytes) {
  struct text text = {.bytes = text_next(), .capacity = TEXT_BYTES};
  text_bytes(&text, bytes);
  return text.bytes;
}

const char *tool_duration(double seconds) {
  char *text = text_next();
  uint64_t whole = (uint64_t)seconds;
  if (seconds < 60)
    snprintf(text, TEXT_BYTES, "%.1f s", seconds);
  else if (whole < 3600)
    snprintf(text, TEXT_BYTES, "%lu min %lu s", whole / 60, whole % 60);
  else if (whole < 86400)
    snprintf(text, TEXT_BYTES, "%lu h %lu min", whole / 3600, whole / 60 % 60);
  else
    snprintf(text, TEXT_BYTES, "%lu d %lu h", whole / 86400, whole / 3600 % 24);
  return text;
}

void tool_print_json(const char *text) {
  if (text == NULL) {
    fputs("null", stdout);
    return;
  }
  putchar('"');
  for (size_t bytes; *text; text += bytes ? bytes : 1) {
    bytes = proto_character_bytes(text);
    if (bytes == 0)
      fputs("\\ufffd", stdout);
    else if (bytes == 1 && (*text < ' ' || *text == 127))
      printf("\\u%04x", *text);
    else
      printf("%s%.*s", *text == '"' || *text == '\\' ? "\\" : "", (int)bytes, text);
  }
  putchar('"');
}

static bool begins_with(const char *line, const char *start) { return strncmp(line, start, strlen(start)) == 0; }

void tool_print_page(const char *path, unsigned tables, void (*print_rows)(unsigned table)) {
  FILE *page = fopen(path, "re");
  char *line = NULL;
  size_t room = 0;
  unsigned made = 0, table_line = 0; /* of a table that is made anew; 0: in none */
  if (page == NULL)
    tool_fail(2, "%s: %m", path);
  while (getline(&line, &room, page) > 0) {
    bool is_in_table = table_line > 0 && *line == '|';
    table_line = is_in_table || begins_with(line, "| name |") || begins_with(line, "| option |") ? table_line + 1 : 0;
    if (table_line < 3)
      fputs(line, stdout);
    if (table_line == 2 && made++ < tables)
      print_rows(made - 1);
  }
  free(line);
  if (ferror(page))
    tool_fail(2, "%s: %m", path);
  fclose(page);
  if (made != tables)
    tool_fail(1, "%s has %u tables of names or options, and not %u", path, made, tables);
}
