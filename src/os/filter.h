/* filter.h: seccomp filters, which may end the process for a system call.
 *
 * What asks for memory (mmap, munmap, mremap, mprotect, madvise) and futex are made under any filter. Before any other
 * call that the program did not ask for, one of these questions:
 *
 *                                  no filter   there at the start   the program's own
 *   os_may_read_files              yes         yes                  no
 *   os_may_call                    yes         no                   no
 *   os_may_start_thread            yes         once it has others   no
 *
 * A filter that was there when the program was started lets files be opened, read and closed: the loader does that. It is
 * looked for in /proc/self/status, once, with the first question but that for files. A filter that the program installs
 * itself cannot be asked for, as any call may be the one that it kills for; os_filter_comes must be called before
 * (api/preload_filter.c).
 */
#ifndef HAK_OS_FILTER_H
#define HAK_OS_FILTER_H

#include "base/words.h"

bool os_may_read_files(void);
bool os_may_call(void);
bool os_may_start_thread(void);

/* The program is about to install a filter. False: it has done so before. */
bool os_filter_comes(void);
/* It was refused. */
void os_filter_refused(void);

#endif
