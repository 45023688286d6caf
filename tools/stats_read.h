/* stats_read.h: reads a report that HAKMEM_STATS=json wrote. */
#pragma once

#include "stats/format.h"

#define STATS_READ_SENTENCE 256

/* Reads the last report in `text`, which ends with a zero byte; skips other lines. out->version points into text, which
 * is changed. On failure false, and problem says why. */
bool stats_read(char *text, struct stats_snapshot *out, char problem[STATS_READ_SENTENCE]);
