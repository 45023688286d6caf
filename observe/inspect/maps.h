/* maps.h: what is mapped into this process, as the kernel lists it.
 *
 * Other threads map and unmap meanwhile: each mapping was there when the kernel was asked for it, and addresses grow.
 * No loader lock, nothing that allocates; where /proc is not to be had, nothing is listed. errno is kept.
 */
#ifndef HAK_INSPECT_MAPS_H
#define HAK_INSPECT_MAPS_H

#include "base/words.h"

#define OS_MAPS_BYTES ((size_t)8 << 10) /* longer lines are cut: a path has 4 KiB at most */

struct os_mapping {
  uintptr_t start, limit;
  uint64_t offset; /* in the file */
  bool is_executable;
  char *name; /* of the file, "[vdso]" or the like, or ""; until the next call */
};

struct os_maps {
  int fd;
  size_t at, end; /* of what is not yet told */
  char bytes[OS_MAPS_BYTES];
};

bool os_maps_open(struct os_maps *maps);
bool os_maps_next(struct os_maps *maps, struct os_mapping *out);
void os_maps_close(struct os_maps *maps);

/* The build-id of the ELF file whose first page is mapped at `start`, or was: nothing is read that is not mapped.
 * Returns its length, 0: there is none. */
#define OS_MAPS_ID_BYTES 64u
size_t os_maps_build_id(uintptr_t start, unsigned char id[OS_MAPS_ID_BYTES]);

/* Where the program's code is entered. */
uintptr_t os_maps_entry(void);

#endif
