/* unwind.h: stack walks for heap profiles.
 *
 * Each step takes a rule from a table by address. A missing rule comes from the module's .eh_frame. Code without one
 * (made at run time, or in modules that the C library cannot find without waiting) is walked by the frame pointer.
 *
 * No function allocates or waits for a lock. Any thread may call at any time: in signal handlers, on any stack, at
 * thread exit, in the child of a fork. A walk reads only memory that is known to be readable. That is the thread's own
 * stack, once it is found to reach the thread's record without a gap; of other stacks it is what a system call has just
 * read.
 *
 * Cost: about 10 ns a frame; a microsecond for the first time at a place, or on a stack that is not the thread's own.
 */
#pragma once

#include "base/words.h"

/* What is known about one thread's stack, kept with the thread's heap; zeros: nothing. Another thread may continue with
 * it after the owner has ended. [low, high) can be read from the stack pointer on; below the stack pointer pages may be
 * missing. */
struct unwind_stack {
  uintptr_t thread; /* the owner (os_thread_pointer) */
  uintptr_t low, high;
  uintptr_t floor; /* below this the thread's own stack does not reach; 0: not known */
};

/* Writes the return addresses of the calling thread's stack, innermost first, and returns how many. The innermost is
 * the first outside hakmem's library. If hakmem is part of the program, it is `site`, where the program called hakmem,
 * or that of this call if site is 0. For code that a signal interrupted it is the next instruction's address plus 1, so
 * that address - 1 lies inside the function, as for return addresses. */
unsigned unwind_from(uintptr_t site, uintptr_t *addresses, unsigned most, struct unwind_stack *known);

/* unwind_forget empties the table; call it when a library is unloaded, because another may be loaded at its addresses.
 * Takes no lock. Where observers_libraries_told (base/observers.h) is not set, the table empties itself ten times a
 * second. */
void unwind_forget(void);
