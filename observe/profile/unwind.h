/* unwind.h: the calls that led here, for heap profiles.
 *
 * Each step takes a rule from a table by address; what is not in it comes from the module's .eh_frame, or, where there
 * is none (code made at run time, modules of a C library that cannot be asked without waiting), is the frame pointer's.
 * Nothing allocates or waits for a lock; any thread may call at any time: in signal handlers, on any stack, at its end,
 * in the child of a fork. Only memory is read that is known to be readable: the calling thread's own stack, once it is
 * found to be in one piece with the thread's record, and of other stacks what a system call has just read.
 *
 * Cost: some 10 ns a frame; the first time at a place, or on a stack that is not the thread's own, a microsecond.
 */
#ifndef HAK_PROFILE_UNWIND_H
#define HAK_PROFILE_UNWIND_H

#include "os/stack.h"

/* The calling thread's callers' return addresses, innermost first; how many. The innermost is `site`, where the program
 * called hakmem; if site is 0, the first outside the library that hakmem is, or, where hakmem is part of the program,
 * that of this very call. Of code that a signal interrupted it is the address behind that of the next instruction's
 * first byte, so that one less is a place inside the function, as of the others. */
unsigned unwind_from(uintptr_t site, uintptr_t *addresses, unsigned most, struct unwind_stack *known);

__attribute__((always_inline)) static inline unsigned unwind(uintptr_t *addresses, unsigned most,
                                                             struct unwind_stack *known) {
  return unwind_from(0, addresses, most, known);
}

/* Another library may come to lie where one was unloaded: empties the table. Takes no lock. Who will call it whenever
 * that may be says so once; else the table empties itself, ten times a second. */
void unwind_forget(void);
void unwind_will_be_told(void);

#endif
