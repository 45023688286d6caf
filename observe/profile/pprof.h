/* pprof.h: a profile of samples as a file that pprof reads: the message Profile of google/pprof's profile.proto, as
 * gzip.
 *
 * Each stack has six figures: objects and bytes allocated, in use, and in use at the peak; what is shown without a
 * choice is the bytes in use. Functions have no names here: pprof finds them in the files that the mappings name, by
 * address or build-id. An address in no file (code made at run time, a library that is unloaded) stays a number. An
 * address in the file is the return address less 1, which lies in the call.
 *
 * Nothing allocates: the memory needed meanwhile comes from os_map, 16 to 64 bytes for each address and some 130 KiB.
 * errno is kept. Of `samples` nothing may change meanwhile: a caller who cannot wait for a disk copies the stacks
 * first.
 */
#ifndef HAK_PROFILE_PPROF_H
#define HAK_PROFILE_PPROF_H

#include "base/words.h"
#include "inspect/file.h"
#include "profile/samples.h"

struct pprof_about {
  uint64_t period_bytes; /* a sample each so many bytes */
  uint64_t time_ns;      /* since 1970 */
  uint64_t duration_ns;  /* that the profile is about */
  const char *version;   /* of who writes, ASCII */
};

/* The file at path is replaced whole, or stays as it is (inspect/file.h). */
enum os_file_error pprof_write(const char *path, const struct samples *samples, const struct pprof_about *about);
/* The same into an open file, from *end on; it comes back as where the profile ends. */
enum os_file_error pprof_write_at(int fd, uint64_t *end, const struct samples *samples,
                                  const struct pprof_about *about);

#endif
