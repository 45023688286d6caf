/* learned_file.h: what was learned, from one run of a program to the next (adapt/policy_file.h).
 *
 * Read once, when the program starts, if `policy` is on then; written when it ends, if it evolves and this process has
 * learned something. Processes that share a file do not wait for each other: who ends adds what is in the file by then,
 * of each site the part that has played more; of two that end in one moment the last one's stays. That goes for the
 * child of a fork, too, which begins with what its parent knew. A file that is none of ours is never written over.
 */
#ifndef HAK_ADAPT_LEARNED_FILE_H
#define HAK_ADAPT_LEARNED_FILE_H

#include "base/text.h"
#include "base/words.h"

/* If something is wrong, *complaint says what in a line. The callers are in the slow path (heap/heap.h). */
void learned_file_read(struct text *complaint);
/* by: the version that writes. */
void learned_file_write(const char *by, struct text *complaint);

void learned_file_in_child(void);

#endif
