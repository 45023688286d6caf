/* text_file.h: reads small text files, by lines. No function allocates.
 *
 * Files are read by system calls, because open, read, close and poll of the C library are cancellation points.
 */
#pragma once

#include "base/words.h"

#define OS_LINE_BYTES 2048 /* of an array for lines; mounts of many layers have longer ones */

/* The folder in which the paths of os_text_open begin; AT_FDCWD: the file system's root. Tests, and tools, set it. */
extern HAK_HIDDEN int os_root;

/* `path` is absolute. Closed on exec; -1 if there is none. */
int os_text_open(const char *path, int flags);
void os_text_close(int fd);
/* Returns how many bytes there were; 0 at the end or after an error. */
size_t os_text_read(int fd, char *bytes, size_t length);

/* Returns the number behind a key in a text, after blanks; 0 if there is none. */
uint64_t os_text_field(const char *text, const char *key);
/* The same of the first line of a file that begins with the key; it has less than 256 bytes. However long the lines
 * before are, it is found: "Groups:" of /proc/PID/status may have 65,536 numbers. errno is kept. */
uint64_t os_file_field(const char *path, const char *key);

/* A file read by lines, through an array of the caller's. Longer lines are skipped. */
struct os_lines {
  int fd;
  char *bytes;
  size_t capacity;
  size_t begin, end; /* of what is in bytes and not yet taken */
  bool passing_over; /* the rest of a line that is too long is skipped */
};

/* False if fd is none. */
bool os_lines_open(struct os_lines *in, int fd, char *bytes, size_t capacity);
/* Returns the next line, terminated and valid until the next call; NULL after the last. */
char *os_lines_next(struct os_lines *in);
/* For files of one line: closes fd, which may be none, and returns the line. NULL if there is none, or if it is too
 * long. */
char *os_line_read(int fd, char *bytes, size_t capacity);
