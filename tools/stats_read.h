/* stats_read.h: a report that HAKMEM_STATS=json wrote, read back. */
#ifndef HAK_TOOLS_STATS_READ_H
#define HAK_TOOLS_STATS_READ_H

#include "stats/format.h"

#define STATS_READ_SENTENCE 256

/* The last report in `text`, which ends with a zero byte; other lines are passed over. out->version points into text,
 * which is changed. Else false, and problem says why. */
bool stats_read(char *text, struct stats_snapshot *out, char problem[STATS_READ_SENTENCE]);

#endif
