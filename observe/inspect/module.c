#include "inspect/module.h"

#include "base/text.h"
#include "os/filter.h"
#include "os/kernel.h"
#include "os/os.h"
#include "os/text_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOTE_NAME "GNU"
#define PATH_BYTES 4096u
#define HEAD_BYTES 2048u /* of a file: its header and a table of 35 segments */
#define NOTES_BYTES_MAX 1024u

/* Set by the linker: the ELF header of the module that contains this code. */
extern const char __ehdr_start[] __attribute__((weak, visibility("hidden")));
extern const char _end[] __attribute__((weak, visibility("hidden")));

struct image {
  const char *start, *end; /* as loaded */
  const char *name;        /* may have folders; "" for the program */
};

#if defined(__GLIBC__) && defined(DLFO_STRUCT_HAS_EH_DBASE)
#pragma weak _dl_find_object /* it may run on a C library that has none */

/* If a program lies in several pieces, the loader returns only the piece with the address. */
static struct image whole_program(uintptr_t moved, struct image piece) {
  const ElfW(Phdr) *segments = (const void *)getauxval(AT_PHDR);
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (size_t i = segments ? getauxval(AT_PHNUM) : 0; i-- > 0;)
    if (segments[i].p_type == PT_LOAD) {
      low = min_size(low, moved + (segments[i].p_vaddr & -os_page_bytes()));
      high = max_size(high, moved + segments[i].p_vaddr + segments[i].p_memsz);
    }
  bool is_whole = low <= (uintptr_t)piece.start && high >= (uintptr_t)piece.end;
  return is_whole ? (struct image){.start = (const char *)low, .end = (const char *)high, .name = piece.name} : piece;
}

static bool image_by_loader(uintptr_t address, struct image *out) {
  struct dl_find_object found;
  if (_dl_find_object == NULL || _dl_find_object((void *)address, &found) != 0)
    return false;
  const struct link_map *map = found.dlfo_link_map;
  const char *name = map && map->l_name ? map->l_name : "";
  *out = (struct image){.start = found.dlfo_map_start, .end = found.dlfo_map_end, .name = name};
  if (map && *name == 0)
    *out = whole_program(map->l_addr, *out);
  return true;
}
#else
#define image_by_loader(address, out) false
#endif

static bool image_of(uintptr_t address, struct image *out) {
  if (image_by_loader(address, out))
    return true;
  *out = (struct image){.start = __ehdr_start, .end = _end, .name = ""};
  return out->start && address >= (uintptr_t)out->start && address < (uintptr_t)out->end;
}

/* FNV-1a (Fowler, Noll, Vo). */
static uint32_t hash_of(const char *bytes, size_t length) {
  uint32_t hash = 0x811c9dc5u;
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)bytes[i]) * 0x01000193u;
  return hash;
}

uint32_t os_module_build(const char *id, size_t length, const char *name) {
  uint32_t build = hash_of(id, length);
  return length > 0 && build != 0 ? build : hash_of(name, strlen(name));
}

size_t os_module_id_in_notes(const char *notes, size_t length, const char **id) {
  ElfW(Nhdr) note;
  for (size_t at = 0; at + sizeof note <= length;) {
    memcpy(&note, notes + at, sizeof note);
    size_t name_at = at + sizeof note;
    size_t content_at = name_at + round_up(note.n_namesz, 4);
    if (content_at + note.n_descsz > length)
      break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof NOTE_NAME &&
        memcmp(notes + name_at, NOTE_NAME, sizeof NOTE_NAME) == 0) {
      *id = notes + content_at;
      return note.n_descsz;
    }
    at = content_at + round_up(note.n_descsz, 4);
  }
  *id = "";
  return 0;
}

static const ElfW(Ehdr) * header_of(const struct image *image) {
  const ElfW(Ehdr) *header = (const void *)image->start;
  size_t length = (size_t)(image->end - image->start);
  bool has_segments = length >= sizeof *header && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
                      header->e_phentsize == sizeof(ElfW(Phdr)) && header->e_phoff < os_page_bytes() &&
                      header->e_phoff % _Alignof(ElfW(Phdr)) == 0 &&
                      header->e_phoff + header->e_phnum * sizeof(ElfW(Phdr)) <= length;
  return has_segments ? header : NULL;
}

struct segments {
  const ElfW(Phdr) * list;
  unsigned count;
  uintptr_t first; /* address that the first one asks for */
};

static struct segments segments_of(const struct image *image) {
  const ElfW(Ehdr) *header = header_of(image);
  struct segments segments = {NULL, 0, 0};
  if (header == NULL)
    return segments;
  segments.list = (const void *)(image->start + header->e_phoff);
  segments.count = header->e_phnum;
  for (unsigned i = segments.count; i-- > 0;)
    if (segments.list[i].p_type == PT_LOAD)
      segments.first = segments.list[i].p_vaddr & -os_page_bytes();
  return segments;
}

/* Finds the next segment of this type inside the image, from number *at on. Returns where it lies, and sets *at to the
 * number behind it; NULL: there is none. */
static const char *segment_next(const struct image *image, const struct segments *segments, uint32_t type,
                                unsigned *at) {
  size_t length = (size_t)(image->end - image->start);
  while (*at < segments->count) {
    const ElfW(Phdr) *segment = &segments->list[(*at)++];
    uintptr_t offset = segment->p_vaddr - segments->first;
    if (segment->p_type == type && segment->p_vaddr >= segments->first && offset <= length &&
        segment->p_memsz <= length - offset)
      return image->start + offset;
  }
  return NULL;
}

/* As os_module_id_in_notes, in the notes of a module. */
static size_t id_of(const struct image *image, const char **id) {
  struct segments segments = segments_of(image);
  const char *notes;
  size_t length = 0;
  *id = "";
  for (unsigned at = 0; length == 0 && (notes = segment_next(image, &segments, PT_NOTE, &at)) != NULL;)
    length = os_module_id_in_notes(notes, segments.list[at - 1].p_memsz, id);
  return length;
}

/* Reads through /proc/self/mem: if another thread has unmapped the range, the kernel returns an error. */
static size_t peek_memory(int memory, uintptr_t address, void *bytes, size_t length) {
  long got = os_kernel_again(SYS_pread64, memory, bytes, length, address);
  return got > 0 ? (size_t)got : 0;
}

size_t os_module_id_mapped(uintptr_t start, unsigned char id[OS_MODULE_ID_BYTES]) {
  KEEP_ERRNO;
  _Alignas(ElfW(Ehdr)) char head[HEAD_BYTES];
  char notes[NOTES_BYTES_MAX];
  size_t length = 0;
  int memory = os_text_open("/proc/self/mem", O_RDONLY);
  if (memory < 0)
    return 0;
  struct image image = {.start = head, .end = head + peek_memory(memory, start, head, sizeof head)};
  struct segments segments = segments_of(&image);
  for (unsigned i = 0; length == 0 && i < segments.count; i++) {
    const ElfW(Phdr) *segment = &segments.list[i];
    const char *found;
    if (segment->p_type != PT_NOTE || segment->p_vaddr < segments.first)
      continue;
    uintptr_t address = start + (segment->p_vaddr - segments.first);
    length = peek_memory(memory, address, notes, min_size(segment->p_memsz, sizeof notes));
    length = os_module_id_in_notes(notes, length, &found);
    length = length <= OS_MODULE_ID_BYTES ? length : 0;
    memcpy(id, found, length);
  }
  os_text_close(memory);
  return length;
}

bool os_module_find(uintptr_t address, struct os_module *out) {
  struct image image;
  if (!image_of(address, &image))
    return false;
  const char *slash = strrchr(image.name, '/');
  const char *name = *image.name == 0 ? program_invocation_short_name : slash ? slash + 1 : image.name;
  const char *id;
  size_t length = id_of(&image, &id);
  *out = (struct os_module){
      .build = os_module_build(id, length, name), .offset = address - (uintptr_t)image.start, .name = name};
  return true;
}

static SPARSE char program[PATH_BYTES]; /* its path; "": it does not fit, or is not known */

void os_module_program_find(void) {
  KEEP_ERRNO;
  long length = os_may_read_files() ? os_kernel(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, PATH_BYTES) : 0;
  program[length > 0 && length < (long)PATH_BYTES ? length : 0] = 0;
}

void os_module_frame(struct text *text, uintptr_t return_address) {
  struct image image;
  uintptr_t address = return_address - 1;
  text_string(text, "hakmem:     ");
  if (image_of(address, &image)) {
    text_visible(text, *image.name ? image.name : *program ? program : program_invocation_short_name);
    text_string(text, "+");
    address -= (uintptr_t)image.start;
  }
  text_format(text, "%#lx\n", address);
}

bool os_module_frames_find(uintptr_t address, struct os_module_frames *out) {
  struct image image;
  if (!image_of(address, &image))
    return false;
  struct segments segments = segments_of(&image);
  unsigned at = 0;
  const char *start, *header = segment_next(&image, &segments, PT_GNU_EH_FRAME, &at);
  for (at = 0; header && (start = segment_next(&image, &segments, PT_LOAD, &at)) != NULL;) {
    const ElfW(Phdr) *segment = &segments.list[at - 1];
    if ((segment->p_flags & PF_R) != 0 && header >= start && header < start + segment->p_memsz) {
      *out = (struct os_module_frames){.start = (const unsigned char *)start,
                                       .end = (const unsigned char *)start + segment->p_memsz,
                                       .header = (const unsigned char *)header};
      return true;
    }
  }
  return false;
}

bool os_module_is_own_library(uintptr_t address) {
  uintptr_t start = (uintptr_t)__ehdr_start, end = (uintptr_t)_end;
  if (start == 0 || address < start || address >= end)
    return false;
  static _Atomic uintptr_t headers; /* where the program's segments are listed */
  uintptr_t program = load_relaxed(&headers);
  if (UNLIKELY(program == 0)) {
    program = getauxval(AT_PHDR);
    store_relaxed(&headers, program);
  }
  return program < start || program >= end;
}
