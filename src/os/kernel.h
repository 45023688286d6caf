/* kernel.h: system calls that no library in between sees: neither another preloaded one, which may have ended already when
 * the process ends, nor our own wrapper of syscall. No cancellation points. For the files of this folder only.
 */
#ifndef HAK_OS_KERNEL_H
#define HAK_OS_KERNEL_H

#include <stdbool.h>

/* As syscall(2): -1 and errno on failure. */
long os_kernel(long number, ...);

struct stat;
bool os_file_status(int fd, struct stat *status);

#endif
