/* summary.h: the summary at the program's end, on the stderr of its start, or in a file. */
#pragma once

#include "base/options.h"

/* Writes a summary to fd, in one piece. Call outside slow paths, so that a fork does not wait for the reader. */
void stats_report(int fd, enum stats_mode mode);

/* Call at program start: makes the file's path absolute, because the program may change its folder. */
void summary_begin(void);
/* Call when options about the summary were set: keeps a descriptor for it if one is wanted. */
void summary_open(void);
void summary_write(void);
