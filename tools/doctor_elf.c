#include "tools/doctor_elf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the bytes at an offset, NULL if they are not all in the file. They may be unaligned, so callers copy them. */
static const unsigned char *bytes_at(const struct elf *elf, uint64_t offset, uint64_t bytes) {
  return offset <= elf->length && bytes <= elf->length - offset ? elf->bytes + offset : NULL;
}

static bool copy_at(const struct elf *elf, uint64_t offset, void *into, size_t bytes) {
  const unsigned char *from = bytes_at(elf, offset, bytes);
  if (from)
    memcpy(into, from, bytes);
  return from != NULL;
}

/* The terminated string at an offset, NULL if it does not end in the file. */
static const char *string_at(const struct elf *elf, uint64_t offset) {
  const unsigned char *from = bytes_at(elf, offset, 1);
  return from && memchr(from, 0, elf->length - offset) ? (const char *)from : NULL;
}

static bool segment_read(const struct elf *elf, unsigned i, Elf64_Phdr *segment) {
  const Elf64_Ehdr *header = &elf->header;
  return i < header->e_phnum && header->e_phentsize >= sizeof *segment &&
         copy_at(elf, header->e_phoff + (uint64_t)i * header->e_phentsize, segment, sizeof *segment);
}

/* Returns an address's offset in the file; UINT64_MAX if it has none. */
static uint64_t offset_of(const struct elf *elf, uint64_t address) {
  Elf64_Phdr segment;
  for (unsigned i = 0; segment_read(elf, i, &segment); i++)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  return UINT64_MAX;
}

static void needed_read(struct elf *elf, const Elf64_Phdr *dynamic) {
  Elf64_Dyn entry;
  uint64_t strings = UINT64_MAX, count = dynamic->p_filesz / sizeof entry;
  for (uint64_t i = 0; i < count && copy_at(elf, dynamic->p_offset + i * sizeof entry, &entry, sizeof entry); i++)
    if (entry.d_tag == DT_STRTAB)
      strings = offset_of(elf, entry.d_un.d_ptr);
  for (uint64_t i = 0; i < count && copy_at(elf, dynamic->p_offset + i * sizeof entry, &entry, sizeof entry); i++) {
    const char *name = entry.d_tag == DT_NEEDED && strings < elf->length && entry.d_un.d_val < elf->length
                           ? string_at(elf, strings + entry.d_un.d_val)
                           : NULL;
    if (name && elf->needed_count < ELF_NEEDED_MAX)
      elf->needed[elf->needed_count++] = name;
  }
}

static void segments_read(struct elf *elf) {
  Elf64_Phdr segment;
  for (unsigned i = 0; segment_read(elf, i, &segment); i++)
    if (segment.p_type == PT_INTERP)
      elf->interpreter = string_at(elf, segment.p_offset);
    else if (segment.p_type == PT_DYNAMIC)
      needed_read(elf, &segment);
}

/* Reads a file to its end, or to the length that it had. False: errno says why. */
static bool file_read(struct elf *elf, int fd) {
  struct stat status;
  errno = EINVAL;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0 ||
      (elf->bytes = malloc((size_t)status.st_size)) == NULL)
    return false;
  ssize_t got = 1;
  for (; elf->length < (size_t)status.st_size && got > 0; elf->length += got > 0 ? (size_t)got : 0)
    got = read(fd, elf->bytes + elf->length, (size_t)status.st_size - elf->length);
  return got >= 0;
}

bool elf_open(struct elf *elf, const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *elf = (struct elf){.bytes = NULL};
  if (fd < 0)
    return false;
  bool is_read = file_read(elf, fd);
  int error = errno;
  close(fd);
  errno = error;
  if (!is_read)
    return false;
  const unsigned char *ident = bytes_at(elf, 0, EI_NIDENT + sizeof(Elf32_Half) * 2);
  if (ident == NULL || memcmp(ident, ELFMAG, SELFMAG) != 0)
    return true;
  elf->is_elf = true;
  elf->bits = ident[EI_CLASS] == ELFCLASS64 ? 64 : 32;
  bool is_little = ident[EI_DATA] == ELFDATA2LSB;
  const unsigned char *machine = ident + EI_NIDENT + sizeof(Elf32_Half); /* at the same place in both classes */
  elf->machine = (unsigned)machine[!is_little] | (unsigned)machine[is_little] << 8;
  if (elf->bits == 64 && is_little && copy_at(elf, 0, &elf->header, sizeof elf->header))
    segments_read(elf);
  return true;
}

/* --- functions --- */

static bool section_read(const struct elf *elf, unsigned i, Elf64_Shdr *section) {
  const Elf64_Ehdr *header = &elf->header;
  return i < header->e_shnum && header->e_shentsize >= sizeof *section &&
         copy_at(elf, header->e_shoff + (uint64_t)i * header->e_shentsize, section, sizeof *section);
}

/* A walk over the tables of symbols, at first all zeros. */
struct walk {
  Elf64_Shdr table, strings;
  uint64_t symbol;  /* of the table, to read next */
  unsigned section; /* to read next */
};

static bool table_next(const struct elf *elf, struct walk *walk) {
  walk->symbol = 0;
  while (section_read(elf, walk->section++, &walk->table))
    if ((walk->table.sh_type == SHT_SYMTAB || walk->table.sh_type == SHT_DYNSYM) &&
        section_read(elf, walk->table.sh_link, &walk->strings))
      return true;
  return false;
}

/* Steps to the next function that the file defines. */
static bool function_next(const struct elf *elf, struct walk *walk, Elf64_Sym *symbol) {
  do {
    while (walk->symbol < walk->table.sh_size / sizeof *symbol &&
           copy_at(elf, walk->table.sh_offset + walk->symbol * sizeof *symbol, symbol, sizeof *symbol)) {
      unsigned type = ELF64_ST_TYPE(symbol->st_info);
      walk->symbol++;
      if (symbol->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC) &&
          symbol->st_name < walk->strings.sh_size)
        return true;
    }
  } while (table_next(elf, walk));
  return false;
}

enum elf_symbol elf_defines(const struct elf *elf, const char *name) {
  enum elf_symbol found = ELF_SYMBOL_NONE;
  size_t length = strlen(name) + 1;
  struct walk walk = {.section = 0};
  Elf64_Sym symbol;
  while (function_next(elf, &walk, &symbol)) {
    const unsigned char *text = bytes_at(elf, walk.strings.sh_offset + symbol.st_name, length);
    if (text == NULL || memcmp(text, name, length) != 0)
      continue;
    if (walk.table.sh_type == SHT_DYNSYM)
      return ELF_SYMBOL_EXPORTED;
    found = ELF_SYMBOL_INSIDE;
  }
  return found;
}

bool elf_exports(const char *path, const char *name) {
  struct elf elf;
  bool exports = elf_open(&elf, path) && elf_defines(&elf, name) == ELF_SYMBOL_EXPORTED;
  free(elf.bytes);
  return exports;
}

/* The address that the first segment asks for. */
static uint64_t first_address(const struct elf *elf) {
  Elf64_Phdr segment;
  for (unsigned i = 0; segment_read(elf, i, &segment); i++)
    if (segment.p_type == PT_LOAD)
      return segment.p_vaddr & ~(uint64_t)0xfff;
  return 0;
}

const char *elf_function_at(const struct elf *elf, uint64_t offset, uint64_t *inside) {
  uint64_t address = offset + first_address(elf);
  struct walk walk = {.section = 0};
  Elf64_Sym symbol;
  while (function_next(elf, &walk, &symbol)) {
    *inside = address - symbol.st_value;
    if (address >= symbol.st_value && *inside < symbol.st_size)
      return string_at(elf, walk.strings.sh_offset + symbol.st_name);
  }
  return NULL;
}

bool elf_contains(const struct elf *elf, const char *text) {
  return elf->bytes && memmem(elf->bytes, elf->length, text, strlen(text)) != NULL;
}
