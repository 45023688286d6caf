/* stats.h: snapshots of what the allocator holds and has done (hakmem/stats.h). */
#pragma once

#include "base/words.h"

/* The rows of hakmem/stats.h. */
enum stats_group {
  STATS_PART, /* adds up to mapped_bytes */
  STATS_MEMORY,
  STATS_HEAP,
  STATS_REFILL,
  STATS_FREE,
  STATS_LARGE,
  STATS_COUNTED,
  STATS_EARLY,
  STATS_PURGE,
  STATS_SYSTEM,
  STATS_POLICY,
  STATS_GROUPS, /* of struct hak_stats; those of the other two structs follow */
  STATS_PROCESS = STATS_GROUPS,
  STATS_CLASS
};
enum stats_kind { STATS_GAUGE, STATS_COUNTER };

/* Arrays, not pointers: a pointer costs a relocation at the start of each program. */
struct stats_field {
  char name[28];
  enum stats_group group;
  enum stats_kind kind;
  char unit[12];
  char sentence[132];
};
/* Each struct is an array of numbers, in the order of its rows. */
enum {
  STATS_FIELDS = sizeof(struct hak_stats) / sizeof(uint64_t),
  STATS_PROCESS_FIELDS = sizeof(struct hak_process_stats) / sizeof(uint64_t),
  STATS_CLASS_FIELDS = sizeof(struct hak_class_stats) / sizeof(uint64_t)
};
extern const struct stats_field stats_fields[STATS_FIELDS];
extern const struct stats_field stats_process_fields[STATS_PROCESS_FIELDS];
extern const struct stats_field stats_class_fields[STATS_CLASS_FIELDS];

/* hak_stats_get and hak_stats_classes_get for callers in a slow path. */
void stats_take(struct hak_stats *out);
size_t stats_classes_take(struct hak_class_stats *out, size_t count);

/* Returns the sum of the rows of the group PART. */
uint64_t stats_parts_sum(const struct hak_stats *stats);

#ifdef HAK_DEBUG
/* Checks "mapped = sum of the parts", within moving_bytes. No thread may be in a slow path. */
bool stats_parts_hold(void);
#endif
