/* stack.h: where the calling thread's stack ends, and which memory can be read.
 *
 * No function allocates or takes a lock; errno is kept. Any thread may call at any time, also in signal handlers.
 */
#pragma once

#include "base/words.h"

/* Returns the address of the C library's record of the calling thread. No two living threads have the same. */
static inline uintptr_t os_thread_pointer(void) {
  uintptr_t pointer;
#if defined(__x86_64__)
  __asm__("mov %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
  __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
  return pointer;
}

/* Returns the upper end of the stack that the calling thread was started on; 0 if it is not known. The C library puts
 * its record of a thread at that end. For the main thread, the kernel puts the auxiliary vector's strings there. Makes
 * two system calls. */
uintptr_t os_stack_end(void);

/* Finds the end of the alternate signal stack that the address lies on. False: the kernel knows of none there. */
bool os_alternate_stack(uintptr_t address, uintptr_t *end);

/* Tells whether the page can be read, by one system call that reads it. mincore would report guard pages as present. */
bool os_page_is_readable(uintptr_t address);

/* Copies memory that may be unmapped at any moment. False if it is, or if the system does not allow the copy. */
bool os_copy(uintptr_t address, void *copy, size_t bytes);
