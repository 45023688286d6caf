/* report.h: what a misuse of a guarded block was, in text. */
#pragma once

#include "guard/slots.h"
#include "inspect/access.h"

enum misuse { MISUSE_ACCESS, MISUSE_DOUBLE_FREE, MISUSE_FREE, MISUSE_WRITTEN };

/* Call os_module_program_find (inspect/module.h) before. Writes the report on stderr, in one piece, allocating nothing:
 * what happened at the address, the stack of this call (or of the access, if it is not NULL), of the free and of the
 * allocation. Only the first call in the process does. Others return when that is written, or after a second. */
void report_misuse(enum misuse misuse, const struct slot *slot, uintptr_t address, const struct os_access *access);
