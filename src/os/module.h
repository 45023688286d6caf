/* module.h: which program or library an address lies in, in words that outlive the process: load addresses change from
 * run to run, build-ids and offsets do not.
 */
#ifndef HAK_OS_MODULE_H
#define HAK_OS_MODULE_H

#include "base/words.h"

struct os_module {
  uint32_t build;   /* 32 bits of the build-id; without one, of the file's name */
  uintptr_t offset; /* of the address, from where the module was loaded */
  const char *name; /* last component of the file's name; stays while the module does */
};

/* What `build` is of this build-id; length 0: there is none. */
uint32_t os_module_build(const char *id, size_t length, const char *name);

/* False if the address is in none (code made at run time), or the C library cannot tell without waiting for a lock:
 * glibc before 2.35, musl; there the module that hakmem is part of is known, no other. */
bool os_module_find(uintptr_t address, struct os_module *out);

/* The build-id in these ELF notes; *id lies in them. Returns its length, 0: there is none. */
size_t os_module_id_in_notes(const char *notes, size_t length, const char **id);

/* The call frame information of the module an address lies in: its .eh_frame_hdr, and the segment around it, which can be
 * read. False as above, or if there is none. */
struct os_module_frames {
  const unsigned char *start, *end, *header;
};
bool os_module_frames_find(uintptr_t address, struct os_module_frames *out);

/* Does the address lie in the library that hakmem is? Never if hakmem is part of the program. */
bool os_module_is_own_library(uintptr_t address);

/* Which calls of malloc and free come from the C library or the loader, which may hold locks then? Called when the library
 * starts; false if addresses do not tell, as in a static program. Where malloc is not ours, none comes from there. */
bool os_module_callers_can_be_told(void);
/* Does the address lie in one of these? */
bool os_module_is_c_library(uintptr_t address);

#endif
