/* process.h: the process as the kernel sees it, from files of /proc. What cannot be read is 0. errno is kept. */
#ifndef HAK_INSPECT_PROCESS_H
#define HAK_INSPECT_PROCESS_H

#include "base/words.h"

struct os_process {
  uint64_t resident_bytes, resident_peak_bytes;
  uint64_t lazy_free_bytes; /* given back by os_purge_lazily and not taken by the kernel yet */
  uint64_t huge_page_bytes;
  uint64_t swap_bytes;
  uint64_t mapping_count;
  uint64_t faults_minor, faults_major;
};
void os_process_read(struct os_process *out);

#endif
