/* fresh.h: which rows (2 MiB) other processes share after a fork. A row is fresh if nothing of it was resident at the
 * last fork: no other process has its pages. All functions may be called by any thread. */
#pragma once

#include "base/words.h"

struct map_row;

bool fresh_row(const struct map_row *row);
/* Makes a row fresh; NULL does nothing. */
void fresh_row_set(struct map_row *row);
/* Call when memory from `base` to `end` is taken out of memory that is not resident and reaches to free_end. The rows
 * that begin before `end`, and lie in that memory as a whole, become fresh. */
void fresh_rows_set(const char *base, const char *end, const char *free_end);

/* Call before a fork: no row is fresh any more. */
void fresh_before_fork(void);
/* Call in the child of a fork. parent: the id of the process that forked it. */
void fresh_in_child(int parent);
/* Returns a number that changes with each fork. */
uint32_t fresh_forks(void);
/* Tells whether those that shared pages of this process have ended, for all that it can ask: it has no children, and is
 * no child of the process that forked it. Not asked are children whose parent has ended. Makes system calls. */
bool fresh_is_alone(void);
