/* fault.h: what happens when something that must hold does not.
 *
 * fault_*    a bug of the program that uses us, seen in every build: one fixed sentence on stderr,
 *            then abort(). docs/misuse.md says which bug is seen when.
 * hak_assert a bug of ours, check builds only.
 */
#ifndef HAK_OS_FAULT_H
#define HAK_OS_FAULT_H

#include "base/words.h"

_Noreturn void fault_double_free(const void *block);
_Noreturn void fault_not_a_block(const void *block);
_Noreturn void fault_no_block_here(const void *block);
_Noreturn void fault_realloc_foreign(const void *block);

#ifdef HAK_DEBUG
_Noreturn void assert_failed(const char *what, const char *file, int line);
#define hak_assert(condition) ((condition) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__))
#else
#define hak_assert(condition) ((void)0)
#endif

#endif
