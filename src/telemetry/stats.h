/* stats.h: what the layers below hold and have done, as numbers (hak_stats_get) and as a report. */
#ifndef HAK_TELEMETRY_STATS_H
#define HAK_TELEMETRY_STATS_H

#include "base/options.h"
#include "base/words.h"

/* A pointer that is not hakmem's was freed, and ignored. */
void count_foreign_free(void);

/* Writes the summary of this process to fd, as text for people or as one JSON object. */
void stats_report(int fd, enum stats_mode mode);

/* "name value" pairs of the snapshot, from the table the JSON comes from; for malloc_info. */
struct stats_field {
  const char *name;
  size_t offset; /* in struct hak_stats */
};
extern const struct stats_field stats_fields[];
extern const size_t stats_field_count;

#endif
