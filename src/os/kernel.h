/* kernel.h: system calls that bypass all libraries. Another preloaded library may have ended already when the process
 * ends; our own wrapper of syscall must not see them. They are no cancellation points. Only this folder and
 * observe/inspect include this header.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>

/* As syscall(2): -1 and errno on failure. */
long os_kernel(long number, ...);
/* The same, again and again while signals interrupt it. */
#define os_kernel_again(...)                                                                                           \
  __extension__({                                                                                                      \
    long result_;                                                                                                      \
    do                                                                                                                 \
      result_ = os_kernel(__VA_ARGS__);                                                                                \
    while (result_ < 0 && errno == EINTR);                                                                             \
    result_;                                                                                                           \
  })

struct stat;
bool os_file_status(int fd, struct stat *status);
