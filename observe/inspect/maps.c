#include "inspect/maps.h"

#include <fcntl.h>
#include <string.h>

void os_maps_open_at(struct os_maps *maps, int fd) { os_lines_open(&maps->lines, fd, maps->bytes, sizeof maps->bytes); }

void os_maps_open(struct os_maps *maps) {
  KEEP_ERRNO;
  os_maps_open_at(maps, os_text_open("/proc/self/maps", O_RDONLY));
}

void os_maps_close(struct os_maps *maps) {
  KEEP_ERRNO;
  if (maps->lines.fd >= 0)
    os_text_close(maps->lines.fd);
}

/* Parses the hexadecimal number at *at and steps over it and over `behind`, which must follow. */
static bool step_hex(char **at, char behind, uint64_t *value) {
  static const char digits[] = "0123456789abcdef";
  const char *first = *at, *digit;
  for (*value = 0; **at && (digit = strchr(digits, **at)) != NULL; (*at)++)
    *value = *value << 4 | (uint64_t)(digit - digits);
  bool is_there = *at > first && **at == behind;
  *at += is_there;
  return is_there;
}

/* Parses a line START-LIMIT rwxp OFFSET MAJOR:MINOR INODE   NAME. */
static bool mapping_of(char *line, struct os_mapping *out) {
  uint64_t start, limit, device;
  if (!step_hex(&line, '-', &start) || !step_hex(&line, ' ', &limit))
    return false;
  if (memchr(line, 0, 5) != NULL || line[4] != ' ')
    return false;
  *out = (struct os_mapping){.start = start, .limit = limit, .is_executable = line[2] == 'x'};
  line += 5;
  if (!step_hex(&line, ' ', &out->offset) || !step_hex(&line, ':', &device) || !step_hex(&line, ' ', &device))
    return false;
  line += strspn(line, "0123456789");
  line += strspn(line, " ");
  out->name = line;
  return start < limit;
}

bool os_maps_next(struct os_maps *maps, struct os_mapping *out) {
  KEEP_ERRNO;
  char *line;
  do
    line = os_lines_next(&maps->lines);
  while (line && !mapping_of(line, out));
  return line != NULL;
}
