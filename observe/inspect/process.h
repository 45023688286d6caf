/* process.h: the process as the kernel sees it, from files of /proc. What cannot be read is 0. errno is kept. */
#pragma once

#include "base/words.h"
#include "hakmem/stats.h"

void os_process_read(struct hak_process_stats *out);

/* Returns nanoseconds since 1970. */
uint64_t os_epoch_nanoseconds(void);
/* Returns the CPU time of the calling thread, in nanoseconds. */
uint64_t os_thread_nanoseconds(void);
