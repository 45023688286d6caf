/* format.h: a snapshot of the counters as text for people, as one JSON object, or as OpenMetrics. */
#pragma once

#include "base/options.h"
#include "base/text.h"
#include "stats/stats.h"

/* Grows when a name disappears or changes its meaning. Names may be added without. */
#define STATS_SCHEMA 2u
#define STATS_PREFIX "hakmem_" /* of all names of metrics */

struct stats_snapshot {
  const char *version; /* of hak_version */
  uint64_t pid;
  struct hak_stats stats;
  struct hak_process_stats process;
  size_t class_count;
  struct hak_class_stats classes[HAK_STATS_CLASSES];
};
bool stats_snapshot_take(struct stats_snapshot *out);

#define STATS_FORMAT_BYTES_MAX ((size_t)160 * 1024) /* the longest form: all classes, all digits */

/* The lines before a metric of OpenMetrics. They are also valid in Prometheus' own text format, where UNIT and EOF are
 * comments. The label pid tells several processes' files apart. */
void stats_metric_head(struct text *text, const char *family, const struct stats_field *field);

/* mode: not STATS_OFF. */
void stats_format(struct text *text, enum stats_mode mode, const struct stats_snapshot *snapshot);
