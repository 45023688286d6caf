/* fault.h: the end of a process whose memory is corrupt.
 *
 * fault_*    A bug of the program that uses hakmem. Every build reports it: one fixed sentence on stderr, then abort().
 *            docs/misuse.md says which bug is noticed when.
 * hak_assert A bug of hakmem. Check builds report it.
 */
#pragma once

#include "base/words.h"

_Noreturn void fault_double_free(const void *block);
_Noreturn void fault_not_a_block(const void *block);
_Noreturn void fault_no_block_here(const void *block);
_Noreturn void fault_foreign(const void *block);
void fault_foreign_reported(const void *block); /* writes the sentence and returns */
_Noreturn void fault_written_after_free(const void *block);
_Noreturn void fault_written_beyond(const void *block);
_Noreturn void fault_delete_size(const void *block);
_Noreturn void fault_realloc_foreign(const void *block);
_Noreturn void fault_heap_destroyed(const void *heap); /* NULL: there never was one */

#ifdef HAK_DEBUG
_Noreturn void assert_failed(const char *what, const char *file, int line);
#define hak_assert(condition) ((condition) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__))
#else
#define hak_assert(condition) ((void)0)
#endif
