/* module.h: names an address by its module's build-id and an offset. Unlike addresses, these are the same in each run.
 */
#pragma once

#include "base/words.h"

struct os_module {
  uint32_t build;   /* 32 bits of the build-id; without one, of the file's name */
  uintptr_t offset; /* of the address, from where the module was loaded */
  const char *name; /* last component of the file's name; valid while the module is loaded */
};

/* Returns the `build` of a build-id; of the name, if the length is 0. */
uint32_t os_module_build(const char *id, size_t length, const char *name);

/* Finds the module of an address. False if it lies in none (code made at run time). Also false if the C library cannot
 * tell without waiting for a lock (glibc before 2.35, musl); only the module that contains hakmem is known there. */
bool os_module_find(uintptr_t address, struct os_module *out);

struct text;
/* os_module_frame writes "hakmem:     PATH+0xOFFSET" for the call that returns to this address, as addr2line and
 * `hak doctor --crash` take it; the address alone if it lies in no module. One thread calls os_module_program_find
 * before: a filter may forbid to ask for the program's path later. */
void os_module_program_find(void);
void os_module_frame(struct text *text, uintptr_t return_address);

/* Finds the build-id in ELF notes; *id points into them. Returns its length, 0 if there is none. */
size_t os_module_id_in_notes(const char *notes, size_t length, const char **id);

/* Finds the build-id of the ELF file whose first page is mapped at `start`. The mapping may be gone: unmapped memory is
 * not read. Returns its length, 0 if there is none. errno is kept. */
#define OS_MODULE_ID_BYTES 64u
size_t os_module_id_mapped(uintptr_t start, unsigned char id[OS_MODULE_ID_BYTES]);

/* Finds the call frame information of an address's module: its .eh_frame_hdr, and the readable segment around it. False
 * as above, or if there is none. */
struct os_module_frames {
  const unsigned char *start, *end; /* the readable bytes */
  const unsigned char *header;      /* .eh_frame_hdr, between them */
  uintptr_t moved;                  /* in a copy: add it to an address in it to get the address that it was made for */
};
bool os_module_frames_find(uintptr_t address, struct os_module_frames *out);

/* Tells whether the address lies in hakmem's library. Never true if hakmem is part of the program. */
bool os_module_is_own_library(uintptr_t address);
