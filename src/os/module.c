#include "os/module.h"

#include "os/os.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#define NOTE_NAME "GNU"

/* The linker's, of the module this code is in. */
extern const char __ehdr_start[] __attribute__((weak, visibility("hidden")));
extern const char _end[] __attribute__((weak, visibility("hidden")));

struct image {
  const char *start, *end; /* as loaded */
  const char *name;        /* may have folders; "" for the program */
};

#if defined(__GLIBC__) && defined(DLFO_STRUCT_HAS_EH_DBASE)
#pragma weak _dl_find_object /* it may run on a C library that has none */

static bool image_by_loader(uintptr_t address, struct image *out) {
  struct dl_find_object found;
  if (_dl_find_object == NULL || _dl_find_object((void *)address, &found) != 0)
    return false;
  const char *name = found.dlfo_link_map && found.dlfo_link_map->l_name ? found.dlfo_link_map->l_name : "";
  *out = (struct image){.start = found.dlfo_map_start, .end = found.dlfo_map_end, .name = name};
  return true;
}
#else
static bool image_by_loader(uintptr_t address, struct image *out) {
  (void)address, (void)out;
  return false;
}
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

struct build_id {
  const char *bytes;
  size_t length; /* 0: there is none */
};

static struct build_id id_in_notes(const char *notes, size_t length) {
  ElfW(Nhdr) note;
  for (size_t at = 0; at + sizeof note <= length;) {
    memcpy(&note, notes + at, sizeof note);
    size_t name_at = at + sizeof note;
    size_t content_at = name_at + round_up(note.n_namesz, 4);
    if (content_at + note.n_descsz > length)
      break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof NOTE_NAME &&
        memcmp(notes + name_at, NOTE_NAME, sizeof NOTE_NAME) == 0)
      return (struct build_id){notes + content_at, note.n_descsz};
    at = content_at + round_up(note.n_descsz, 4);
  }
  return (struct build_id){"", 0};
}

size_t os_module_id_in_notes(const char *notes, size_t length, const char **id) {
  struct build_id found = id_in_notes(notes, length);
  *id = found.bytes;
  return found.length;
}

static const ElfW(Ehdr) * header_of(const struct image *image) {
  const ElfW(Ehdr) *header = (const void *)image->start;
  size_t length = (size_t)(image->end - image->start);
  bool has_segments = length >= sizeof *header && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
                      header->e_phentsize == sizeof(ElfW(Phdr)) && header->e_phoff < os_page_bytes();
  return has_segments ? header : NULL;
}

static struct build_id id_of(const struct image *image) {
  const ElfW(Ehdr) *header = header_of(image);
  struct build_id id = {"", 0};
  if (header == NULL)
    return id;
  const ElfW(Phdr) *segments = (const void *)(image->start + header->e_phoff);
  size_t length = (size_t)(image->end - image->start);
  uintptr_t first = 0; /* address that the first segment asks for */
  for (unsigned i = header->e_phnum; i-- > 0;)
    if (segments[i].p_type == PT_LOAD)
      first = segments[i].p_vaddr & -os_page_bytes();
  for (unsigned i = 0; id.length == 0 && i < header->e_phnum; i++)
    if (segments[i].p_type == PT_NOTE && segments[i].p_vaddr >= first &&
        segments[i].p_vaddr - first + segments[i].p_memsz <= length)
      id = id_in_notes(image->start + (segments[i].p_vaddr - first), segments[i].p_memsz);
  return id;
}

bool os_module_find(uintptr_t address, struct os_module *out) {
  struct image image;
  if (!image_of(address, &image))
    return false;
  const char *slash = strrchr(image.name, '/');
  const char *name = *image.name == 0 ? program_invocation_short_name : slash ? slash + 1 : image.name;
  struct build_id id = id_of(&image);
  *out = (struct os_module){
      .build = os_module_build(id.bytes, id.length, name), .offset = address - (uintptr_t)image.start, .name = name};
  return true;
}
