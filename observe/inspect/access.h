/* access.h: accesses that the kernel refuses (SIGSEGV), before the program's own handler sees them.
 *
 * The handler keeps errno and passes every signal on to the handler that it replaced: with its mask and flags, to the
 * kernel's default, or to nobody, as that one wanted. So a program behaves as without it. A handler that the program
 * installs later replaces this one. */
#pragma once

#include "base/words.h"

enum os_access_kind { OS_ACCESS_UNKNOWN, OS_ACCESS_READ, OS_ACCESS_WRITE };

struct os_access {
  uintptr_t address; /* of the refused access */
  uintptr_t place;   /* of the instruction */
  enum os_access_kind kind;
};

/* Installs the handler, if it is not the present one. It calls `look` for each refused access, on the accessing thread,
 * which may hold any lock. All callers pass the same function, and do not call at the same time. False if the system
 * refuses. */
bool os_access_watch(void (*look)(const struct os_access *access));
