/* stats_read.h: reads a report that HAKMEM_STATS=json wrote. */
#pragma once

#include "stats/format.h"

#include <stdio.h>

#define STATS_READ_SENTENCE 256

/* Copies the last report in a file, in which a program's own output may stand, to `report`. "": there is none. Of a
 * report that is longer than `room` the begin is copied. */
void stats_find(FILE *file, char *report, size_t room);

/* Reads a report, which ends with a zero byte or a line. out->version points into text, which is changed. On failure
 * false, and problem says why. */
bool stats_read(char *text, struct stats_snapshot *out, char problem[STATS_READ_SENTENCE]);
