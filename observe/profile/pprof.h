/* pprof.h: writes samples as a file for pprof: the message Profile of google/pprof's profile.proto, as gzip.
 *
 * Each stack has six figures: objects and bytes allocated, in use, and in use at the peak. By default pprof shows the
 * bytes in use. The file has no names of functions: pprof finds them in the files that the mappings name, by address or
 * build-id. An address in no file (code made at run time, an unloaded library) stays a number. The file stores return
 * addresses less 1, which lie in the call.
 *
 * No function allocates. Temporary memory comes from os_map: 16 to 64 bytes for each address and 130 KiB. errno is
 * kept. `samples` must not change meanwhile; a caller that cannot wait for a disk copies the stacks first.
 */
#pragma once

#include "base/words.h"
#include "inspect/file.h"
#include "profile/samples.h"

struct pprof_about {
  uint64_t period_bytes; /* the sampling interval */
  uint64_t time_ns;      /* since 1970 */
  uint64_t duration_ns;  /* the time that the profile covers */
  const char *version;   /* the writer's, ASCII */
};

/* Adds the profile to a file that is begun (inspect/file.h). */
void pprof_add(struct os_file_part *file, const struct samples *samples, const struct pprof_about *about);
