/* filter.h: seccomp filters, which may kill the process for a system call.
 *
 * hakmem calls mmap, munmap, mremap, mprotect, madvise and futex under any filter. Before every other call that the
 * program did not ask for, it asks one of these functions:
 *
 *                                  no filter   there at the start   the program's own
 *   os_may_read_files              yes         yes                  no
 *   os_may_call                    yes         no                   no
 *   os_may_start_thread            yes         once it has others   no
 *
 * A filter that was there at program start allows files to be opened, read and closed, because the loader does that.
 * So under such a filter files of /proc/self tell what a system call would. os_may_call and os_may_start_thread look
 * for the filter in /proc/self/status, once; where that cannot be read, there may be one. A filter that the program
 * installs itself cannot be queried: the query may be the call that it kills for. So os_filter_comes must be called
 * before its installation, after what later calls ask for was asked once more (api/preload.c).
 */
#pragma once

#include "base/words.h"

bool os_may_read_files(void);
bool os_may_call(void);
bool os_may_start_thread(void);

/* Tells whether a filter was there at the start, as far as one of these functions has looked. */
bool os_filter_was_there(void);
/* Tells whether the program has installed a filter. */
bool os_filter_is_own(void);
/* Call before it installs one. False: it has installed one before. */
bool os_filter_comes(void);
/* Call if the kernel refused the filter. */
void os_filter_refused(void);
