#include "tools/tool.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *tool_name = "";

/* --- arguments --- */

bool tool_begin(const char *name, const char *usage, int count, char *const *arguments) {
  tool_name = name;
  for (int i = 1; i < count && strcmp(arguments[i], "--") != 0; i++)
    if (strcmp(arguments[i], "--help") == 0 || strcmp(arguments[i], "-h") == 0) {
      fputs(usage, stdout);
      return true;
    }
  return false;
}

int tool_end(int status) {
  errno = 0;
  /* An earlier write may have failed where this one does not. */
  if (fflush(stdout) == 0 && !ferror(stdout))
    return status;
  errno = errno != 0 ? errno : EIO;
  return tool_complain(status != 0 ? status : 1, "stdout: %m");
}

int tool_complain(int status, const char *format, ...) {
  int error = errno;
  va_list list;
  va_start(list, format);
  fprintf(stderr, "%s: ", tool_name);
  errno = error;
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
  return status;
}

int tool_refuse(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "%s: ", tool_name);
  vfprintf(stderr, format, list);
  fprintf(stderr, "; see: %s --help\n", tool_name);
  va_end(list);
  return 2;
}

int tool_words(int count, char *const *arguments, const char **words, int words_max, bool *is_json) {
  int taken = 0;
  for (int i = 1; i < count; i++) {
    if (is_json && strcmp(arguments[i], "--json") == 0)
      *is_json = true;
    else if (arguments[i][0] == '-' || taken == words_max) {
      tool_refuse("%s '%s'", arguments[i][0] == '-' ? "unknown option" : "one argument too many:", arguments[i]);
      return -1;
    } else
      words[taken++] = arguments[i];
  }
  return taken;
}

bool tool_number(const char *word, long most, long *out) {
  char *end;
  errno = 0;
  *out = strtol(word, &end, 10);
  return *word >= '0' && *word <= '9' && *end == 0 && errno == 0 && *out <= most;
}

bool tool_pid(const char *word, long *pid) {
  if (*word == 0 || word[strspn(word, "0123456789")] != 0)
    tool_refuse("'%s' is no process id", word);
  else if (!tool_number(word, INT_MAX, pid) || *pid == 0)
    tool_complain(2, "there is no process %s", word);
  else
    return true;
  return false;
}

/* --- output --- */

void tool_print_json(const char *text) {
  if (text == NULL) {
    fputs("null", stdout);
    return;
  }
  putchar('"');
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      putchar('\\');
    putchar(c < ' ' || c > '~' ? '?' : c);
  }
  putchar('"');
}

bool tool_write(int fd, const void *bytes, size_t length) {
  const char *at = bytes;
  while (length > 0) {
    ssize_t written = write(fd, at, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0) {
      errno = written < 0 ? errno : EIO;
      return false;
    }
    at += written;
    length -= (size_t)written;
  }
  return true;
}

/* --- input --- */

/* Files of the kernel do not report their length. */
static char *read_stream(FILE *file, size_t bytes_max, size_t *length) {
  char *bytes = NULL;
  size_t room = 0, size = 0;
  do {
    if (room - size < 2) {
      size_t wanted = 2 * room + 8192;
      char *grown = size <= bytes_max ? realloc(bytes, wanted) : NULL;
      if (grown == NULL) {
        errno = size <= bytes_max ? ENOMEM : EFBIG;
        free(bytes);
        return NULL;
      }
      bytes = grown;
      room = wanted;
    }
    size += fread(bytes + size, 1, room - size - 1, file);
  } while (!feof(file) && !ferror(file));
  if (ferror(file) || size > bytes_max) {
    errno = ferror(file) ? errno : EFBIG;
    free(bytes);
    return NULL;
  }
  bytes[size] = 0;
  *length = size;
  return bytes;
}

char *tool_read(const char *path, size_t bytes_max, size_t *length) {
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
  if (file == NULL)
    return NULL;
  char *bytes = read_stream(file, bytes_max, length);
  int error = errno;
  if (file != stdin)
    fclose(file);
  errno = error;
  return bytes;
}
