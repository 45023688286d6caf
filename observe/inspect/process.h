/* process.h: the process as the kernel sees it, from files of /proc. What cannot be read is 0. errno is kept. */
#pragma once

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

/* Returns nanoseconds since 1970. */
uint64_t os_epoch_nanoseconds(void);
/* Returns the CPU time of the calling thread, in nanoseconds. */
uint64_t os_thread_nanoseconds(void);
