/* caller.h: tells whether a call of malloc or free comes from the C library or the loader, which may hold locks then;
 * and where this code is loaded. */
#pragma once

#include "base/words.h"

/* Prepares os_is_c_library; call at library start. Returns false if addresses do not tell, as in a static program.
 * Where malloc is not ours, no call comes from there. */
bool os_callers_can_be_told(void);
/* Tells whether the address lies in the C library or the loader. */
bool os_is_c_library(uintptr_t address);

/* Tells whether this code is in the namespace of the program, not in one that dlmopen or LD_AUDIT made. */
bool os_is_in_namespace_of_program(void);

/* Tells whether this code and the C library's names lie in the executable, where libraries find them: then malloc is
 * ours in the whole process. */
bool os_malloc_is_in_program(void);

/* Returns what libraries find by this name in the scope of the program; NULL in a static program, which has none. */
void *os_find_for_libraries(const char *name);

/* Keeps the library that has this code loaded: its thread, and what it registered in the C library, outlive any
 * dlclose. Call once at library start. */
void os_stay_loaded(void);
