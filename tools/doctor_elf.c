#include "tools/doctor_elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
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

static bool header_read(const struct elf *elf, Elf64_Ehdr *header) { return copy_at(elf, 0, header, sizeof *header); }

static bool segment_read(const struct elf *elf, const Elf64_Ehdr *header, unsigned i, Elf64_Phdr *segment) {
  return i < header->e_phnum && header->e_phentsize >= sizeof *segment &&
         copy_at(elf, header->e_phoff + (uint64_t)i * header->e_phentsize, segment, sizeof *segment);
}

/* Returns an address's offset in the file; UINT64_MAX if it has none. */
static uint64_t offset_of(const struct elf *elf, const Elf64_Ehdr *header, uint64_t address) {
  Elf64_Phdr segment;
  for (unsigned i = 0; segment_read(elf, header, i, &segment); i++)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  return UINT64_MAX;
}

static void needed_read(struct elf *elf, const Elf64_Ehdr *header, const Elf64_Phdr *dynamic) {
  Elf64_Dyn entry;
  uint64_t strings = UINT64_MAX, count = dynamic->p_filesz / sizeof entry;
  for (uint64_t i = 0; i < count && copy_at(elf, dynamic->p_offset + i * sizeof entry, &entry, sizeof entry); i++)
    if (entry.d_tag == DT_STRTAB)
      strings = offset_of(elf, header, entry.d_un.d_ptr);
  for (uint64_t i = 0; i < count && copy_at(elf, dynamic->p_offset + i * sizeof entry, &entry, sizeof entry); i++) {
    const char *name = entry.d_tag == DT_NEEDED && strings < elf->length && entry.d_un.d_val < elf->length
                           ? string_at(elf, strings + entry.d_un.d_val)
                           : NULL;
    if (name && elf->needed_count < ELF_NEEDED_MAX)
      elf->needed[elf->needed_count++] = name;
  }
}

static void segments_read(struct elf *elf) {
  Elf64_Ehdr header;
  Elf64_Phdr segment;
  if (!header_read(elf, &header))
    return;
  for (unsigned i = 0; segment_read(elf, &header, i, &segment); i++)
    if (segment.p_type == PT_INTERP)
      elf->interpreter = string_at(elf, segment.p_offset);
    else if (segment.p_type == PT_DYNAMIC)
      needed_read(elf, &header, &segment);
}

bool elf_open(struct elf *elf, const char *path) {
  struct stat status;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  *elf = (struct elf){.bytes = NULL};
  if (fd < 0)
    return false;
  void *bytes = MAP_FAILED;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
    bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  else
    errno = EINVAL;
  close(fd);
  if (bytes == MAP_FAILED)
    return false;
  elf->bytes = bytes;
  elf->length = (size_t)status.st_size;
  const unsigned char *ident = bytes_at(elf, 0, EI_NIDENT + sizeof(Elf32_Half) * 2);
  if (ident == NULL || memcmp(ident, ELFMAG, SELFMAG) != 0)
    return true;
  elf->is_elf = true;
  elf->bits = ident[EI_CLASS] == ELFCLASS64 ? 64 : 32;
  bool is_little = ident[EI_DATA] == ELFDATA2LSB;
  const unsigned char *machine = ident + EI_NIDENT + sizeof(Elf32_Half); /* at the same place in both classes */
  elf->machine = (unsigned)machine[!is_little] | (unsigned)machine[is_little] << 8;
  if (elf->bits == 64 && is_little)
    segments_read(elf);
  return true;
}

static bool section_read(const struct elf *elf, const Elf64_Ehdr *header, unsigned i, Elf64_Shdr *section) {
  return i < header->e_shnum && header->e_shentsize >= sizeof *section &&
         copy_at(elf, header->e_shoff + (uint64_t)i * header->e_shentsize, section, sizeof *section);
}

/* A table of symbols, and the number of the one to read next. */
struct symbols {
  Elf64_Shdr table, strings;
  uint64_t next;
};

/* Steps to the next table, from section *i on. False: there is none. */
static bool symbols_next(const struct elf *elf, const Elf64_Ehdr *header, unsigned *i, struct symbols *symbols) {
  symbols->next = 0;
  while (section_read(elf, header, (*i)++, &symbols->table))
    if ((symbols->table.sh_type == SHT_SYMTAB || symbols->table.sh_type == SHT_DYNSYM) &&
        section_read(elf, header, symbols->table.sh_link, &symbols->strings))
      return true;
  return false;
}

/* Steps to the next function that the file defines. */
static bool function_next(const struct elf *elf, struct symbols *symbols, Elf64_Sym *symbol) {
  const Elf64_Shdr *table = &symbols->table;
  for (; symbols->next < table->sh_size / sizeof *symbol; symbols->next++) {
    if (!copy_at(elf, table->sh_offset + symbols->next * sizeof *symbol, symbol, sizeof *symbol))
      return false;
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC) ||
        symbol->st_name >= symbols->strings.sh_size)
      continue;
    symbols->next++;
    return true;
  }
  return false;
}

static bool tables_read(const struct elf *elf, Elf64_Ehdr *header) {
  return elf->is_elf && elf->bits == 64 && header_read(elf, header);
}

enum elf_symbol elf_defines(const struct elf *elf, const char *name) {
  enum elf_symbol found = ELF_SYMBOL_NONE;
  size_t length = strlen(name) + 1;
  Elf64_Ehdr header;
  struct symbols symbols;
  Elf64_Sym symbol;
  unsigned section = 0;
  while (tables_read(elf, &header) && symbols_next(elf, &header, &section, &symbols))
    while (function_next(elf, &symbols, &symbol)) {
      const unsigned char *text = bytes_at(elf, symbols.strings.sh_offset + symbol.st_name, length);
      if (text == NULL || memcmp(text, name, length) != 0)
        continue;
      if (symbols.table.sh_type == SHT_DYNSYM)
        return ELF_SYMBOL_EXPORTED;
      found = ELF_SYMBOL_INSIDE;
    }
  return found;
}

/* The address that the first segment asks for. */
static uint64_t first_address(const struct elf *elf, const Elf64_Ehdr *header) {
  Elf64_Phdr segment;
  for (unsigned i = 0; segment_read(elf, header, i, &segment); i++)
    if (segment.p_type == PT_LOAD)
      return segment.p_vaddr & ~(uint64_t)0xfff;
  return 0;
}

const char *elf_function_at(const struct elf *elf, uint64_t offset, uint64_t *inside) {
  Elf64_Ehdr header;
  struct symbols symbols;
  Elf64_Sym symbol;
  unsigned section = 0;
  while (tables_read(elf, &header) && symbols_next(elf, &header, &section, &symbols))
    while (function_next(elf, &symbols, &symbol)) {
      uint64_t address = offset + first_address(elf, &header);
      *inside = address - symbol.st_value;
      if (address >= symbol.st_value && *inside < symbol.st_size)
        return string_at(elf, symbols.strings.sh_offset + symbol.st_name);
    }
  return NULL;
}

bool elf_contains(const struct elf *elf, const char *text) {
  return elf->bytes && memmem(elf->bytes, elf->length, text, strlen(text)) != NULL;
}
