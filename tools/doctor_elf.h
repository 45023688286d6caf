/* doctor_elf.h: reads the ELF file of a program or library. It validates everything in the file. */
#pragma once

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_NEEDED_MAX 256

struct elf {
  unsigned char *bytes; /* the file; NULL: it could not be read. Not mapped, for others may shorten it meanwhile */
  size_t length;
  bool is_elf;
  unsigned bits;           /* 32 or 64 */
  unsigned machine;        /* EM_... */
  Elf64_Ehdr header;       /* this and the following are zeros in files of 32 bits, or of the other byte order */
  const char *interpreter; /* the loader, NULL if there is none */
  const char *needed[ELF_NEEDED_MAX];
  unsigned needed_count;
};

/* False if there is no such file, or it cannot be read; errno says why. */
bool elf_open(struct elf *elf, const char *path);

enum elf_symbol { ELF_SYMBOL_NONE, ELF_SYMBOL_INSIDE, ELF_SYMBOL_EXPORTED };
/* Tells whether the file defines a function of that name, and whether it exports it. */
enum elf_symbol elf_defines(const struct elf *elf, const char *name);
/* The same of a file that is not open: tells whether it exports it. */
bool elf_exports(const char *path, const char *name);
/* Finds the function at an offset from where the file's first segment is loaded: its name, and the offset in it.
 * NULL if no function of the file's tables contains it. */
const char *elf_function_at(const struct elf *elf, uint64_t offset, uint64_t *inside);
/* Tells whether the file contains the text. */
bool elf_contains(const struct elf *elf, const char *text);
