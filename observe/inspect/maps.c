#include "inspect/maps.h"

#include "inspect/module.h"
#include "os/kernel.h"
#include "os/os.h"
#include "os/text_file.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOTES_BYTES_MAX 1024u
#define SEGMENTS_MAX 128u

/* --- the list --- */

bool os_maps_open_at(struct os_maps *maps, int fd) {
  return os_lines_open(&maps->lines, fd, maps->bytes, sizeof maps->bytes);
}

bool os_maps_open(struct os_maps *maps) {
  KEEP_ERRNO;
  return os_maps_open_at(maps, os_text_open("/proc/self/maps", O_RDONLY));
}

void os_maps_close(struct os_maps *maps) {
  KEEP_ERRNO;
  if (maps->lines.fd >= 0)
    os_text_close(maps->lines.fd);
}

/* Parses the hexadecimal number at *at and steps over it and over `behind`, which must follow. */
static bool step_hex(char **at, char behind, uint64_t *value) {
  char *first = *at;
  *value = 0;
  for (;; (*at)++) {
    char c = **at;
    if (c >= '0' && c <= '9')
      *value = *value << 4 | (uint64_t)(c - '0');
    else if (c >= 'a' && c <= 'f')
      *value = *value << 4 | (uint64_t)(c - 'a' + 10);
    else
      break;
  }
  if (*at == first || **at != behind)
    return false;
  (*at)++;
  return true;
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

/* --- build-ids --- */

/* Reads through /proc/self/mem: if another thread has unmapped the range, the kernel returns an error. */
static size_t peek_memory(int memory, uintptr_t address, void *bytes, size_t length) {
  long got = os_kernel_again(SYS_pread64, memory, bytes, length, address);
  return got > 0 ? (size_t)got : 0;
}

struct image {
  int memory;
  uintptr_t start;
  uintptr_t segments;
  unsigned segment_count;
};

static bool image_open(struct image *image, int memory, uintptr_t start) {
  ElfW(Ehdr) header;
  if (peek_memory(memory, start, &header, sizeof header) != sizeof header ||
      memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return false;
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(ElfW(Phdr)))
    return false;
  *image = (struct image){memory, start, start + header.e_phoff, header.e_phnum};
  return header.e_phoff < os_page_bytes() && header.e_phnum <= SEGMENTS_MAX;
}

static bool segment_at(const struct image *image, unsigned number, ElfW(Phdr) * out) {
  return number < image->segment_count &&
         peek_memory(image->memory, image->segments + number * sizeof *out, out, sizeof *out) == sizeof *out;
}

/* Returns the address that the first segment asks for. */
static uintptr_t first_of(const struct image *image) {
  ElfW(Phdr) segment;
  for (unsigned i = 0; segment_at(image, i, &segment); i++)
    if (segment.p_type == PT_LOAD)
      return round_down(segment.p_vaddr, os_page_bytes());
  return 0;
}

static size_t id_of(const struct image *image, unsigned char *id) {
  uintptr_t first = first_of(image);
  ElfW(Phdr) segment;
  char notes[NOTES_BYTES_MAX];
  for (unsigned i = 0; segment_at(image, i, &segment); i++) {
    if (segment.p_type != PT_NOTE || segment.p_vaddr < first)
      continue;
    size_t wanted = min_size(segment.p_memsz, sizeof notes);
    size_t length = peek_memory(image->memory, image->start + (segment.p_vaddr - first), notes, wanted);
    const char *found;
    size_t id_length = os_module_id_in_notes(notes, length, &found);
    if (id_length > 0 && id_length <= OS_MAPS_ID_BYTES) {
      memcpy(id, found, id_length);
      return id_length;
    }
  }
  return 0;
}

size_t os_maps_build_id(uintptr_t start, unsigned char id[OS_MAPS_ID_BYTES]) {
  KEEP_ERRNO;
  size_t length = 0;
  int memory = os_text_open("/proc/self/mem", O_RDONLY);
  struct image image;
  if (memory >= 0 && image_open(&image, memory, start))
    length = id_of(&image, id);
  if (memory >= 0)
    os_text_close(memory);
  return length;
}

uintptr_t os_maps_entry(void) { return getauxval(AT_ENTRY); }
