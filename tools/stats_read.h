/* stats_read.h: reads a report that HAKMEM_STATS=json wrote. */
#pragma once

#include "stats/format.h"

#include <stdio.h>

/* Returns a copy of the last report in a file, in which a program's own output may stand; free it. NULL: there is none,
 * or the file was not read to its end. */
char *stats_find(FILE *file);

/* Reads a report, which ends with a zero byte or a line. out->version points into text, which is changed. Returns what
 * is wrong; NULL: nothing. */
const char *stats_read(char *text, struct stats_snapshot *out);
