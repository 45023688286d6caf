/* maps.h: the mappings of this process, as the kernel lists them.
 *
 * Other threads may map and unmap meanwhile. Each listed mapping existed when the kernel was asked for it, and
 * addresses ascend. No function takes the loader's lock or allocates. Without /proc the list is empty. errno is kept.
 */
#pragma once

#include "os/text_file.h"

#define OS_MAPS_BYTES ((size_t)8 << 10) /* longer lines are skipped: a path has 4 KiB at most */

struct os_mapping {
  uintptr_t start, limit;
  uint64_t offset; /* in the file */
  bool is_executable;
  char *name; /* of the file, "[vdso]" or the like, or ""; until the next call */
};

struct os_maps {
  struct os_lines lines;
  char bytes[OS_MAPS_BYTES];
};

/* Opens this process's list. os_maps_open_at: another one's, given by a descriptor; -1: the list is empty. */
void os_maps_open(struct os_maps *maps);
void os_maps_open_at(struct os_maps *maps, int fd);
bool os_maps_next(struct os_maps *maps, struct os_mapping *out);
void os_maps_close(struct os_maps *maps);
