#include "os/text_file.h"

#include "base/text.h"
#include "os/kernel.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

int os_root = AT_FDCWD;

int os_text_open(const char *path, int flags) {
  return (int)os_kernel_again(SYS_openat, os_root, path + (os_root != AT_FDCWD), flags | O_CLOEXEC);
}

void os_text_close(int fd) { os_kernel(SYS_close, fd); }

size_t os_text_read(int fd, char *bytes, size_t length) {
  long got = os_kernel_again(SYS_read, fd, bytes, length);
  return got < 0 ? 0 : (size_t)got;
}

uint64_t os_text_field(const char *text, const char *key) {
  const char *found = strstr(text, key);
  size_t number = 0;
  if (found == NULL)
    return 0;
  found += strlen(key);
  text_number_parse(found + strspn(found, " \t"), &number, &found);
  return number;
}

char *os_lines_next(struct os_lines *in) {
  for (;;) {
    char *line = in->bytes + in->begin;
    size_t held = in->end - in->begin;
    char *newline = memchr(line, '\n', held);
    if (newline != NULL) {
      *newline = 0;
      in->begin += (size_t)(newline - line) + 1;
      if (!in->passing_over)
        return line;
      in->passing_over = false;
      continue;
    }
    if (held == in->capacity - 1)
      in->passing_over = true;
    if (in->passing_over)
      held = 0;
    memmove(in->bytes, line, held);
    size_t got = os_text_read(in->fd, in->bytes + held, in->capacity - 1 - held);
    in->begin = 0;
    in->end = held + got;
    if (got == 0) {
      in->end = 0;
      in->bytes[held] = 0;
      return held > 0 ? in->bytes : NULL;
    }
  }
}

#define FIELD_LINE_BYTES 256 /* on the stack of the caller, which may be a coroutine */

uint64_t os_file_field(const char *path, const char *key) {
  KEEP_ERRNO;
  char bytes[FIELD_LINE_BYTES];
  struct os_lines in;
  size_t length = strlen(key);
  if (!os_lines_open(&in, os_text_open(path, O_RDONLY), bytes, sizeof bytes))
    return 0;
  const char *line = os_lines_next(&in);
  while (line != NULL && strncmp(line, key, length) != 0)
    line = os_lines_next(&in);
  uint64_t number = line != NULL ? os_text_field(line, key) : 0;
  os_text_close(in.fd);
  return number;
}

bool os_lines_open(struct os_lines *in, int fd, char *bytes, size_t capacity) {
  *in = (struct os_lines){.fd = fd, .bytes = bytes, .capacity = capacity};
  return fd >= 0;
}

char *os_line_read(int fd, char *bytes, size_t capacity) {
  struct os_lines in;
  if (!os_lines_open(&in, fd, bytes, capacity))
    return NULL;
  char *line = os_lines_next(&in);
  os_text_close(fd);
  return line;
}
