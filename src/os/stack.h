/* stack.h: where the calling thread's stack ends, and what memory can be read at all.
 *
 * Nothing here allocates or takes a lock; errno is kept, and any thread may call at any time, in signal handlers, too.
 */
#ifndef HAK_OS_STACK_H
#define HAK_OS_STACK_H

#include "base/words.h"

/* The C library's record of the calling thread: no two living threads have the same. */
static inline uintptr_t os_thread_pointer(void) {
  uintptr_t pointer;
#if defined(__x86_64__)
  __asm__("mov %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
  __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
  return pointer;
}

/* An address, behind all frames, up to which the stack reaches that the calling thread was started on; 0: not known.
 * The C library puts its record of a thread at the upper end of the thread's stack, the kernel the auxiliary vector's
 * strings at the end of the first one's. Two system calls. */
uintptr_t os_stack_end(void);

/* What is known about one thread's stack, kept by whoever belongs to the thread (profile/unwind.h); zeros: nothing. Another thread may go on
 * with it when its owner is gone. [low, high) can be read, from the stack pointer on: below it a part may be gone. */
struct unwind_stack {
  uintptr_t thread; /* whose (os_thread_pointer) */
  uintptr_t low, high;
  uintptr_t floor; /* below this the thread's own stack does not reach; 0: not known */
};

/* The end of the alternate signal stack that the address lies on. False: it lies on none that the kernel knows of. */
bool os_alternate_stack(uintptr_t address, uintptr_t *end);

/* Can the page be read? One system call, which reads it. (mincore would not do: it takes a guard page for a page.) */
bool os_page_is_readable(uintptr_t address);

/* Copies memory that may be gone at any moment. False if it is, or the system does not allow that. */
bool os_copy(uintptr_t address, void *copy, size_t bytes);

#endif
