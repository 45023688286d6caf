/* foreign.h: what happens to a pointer that hakmem did not allocate (docs/decisions/0031).
 *
 * If malloc is hakmem's in the whole process from its start, a correct program has no such pointer to free. Beside
 * another malloc, it has. */
#pragma once

#include "base/words.h"

/* Call at program start, if malloc is hakmem's in the whole process. Until then foreign pointers are ignored. */
HAK_HIDDEN void foreign_malloc_is_ours(void);

/* Call when the program freed an address outside hakmem's memory. It ends the program, or returns. */
HAK_HIDDEN void foreign_free(void *block);
