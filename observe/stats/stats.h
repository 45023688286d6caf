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
  uint32_t offset; /* in its struct */
  enum stats_group group;
  enum stats_kind kind;
  char unit[12];
  char sentence[132];
};
extern const struct stats_field stats_fields[]; /* of struct hak_stats */
extern const size_t stats_field_count;
extern const struct stats_field stats_process_fields[];
extern const size_t stats_process_field_count;
extern const struct stats_field stats_class_fields[];
extern const size_t stats_class_field_count;

/* Returns a field's value. stats: the struct that the field belongs to. */
uint64_t stats_value(const void *stats, const struct stats_field *field);

/* hak_stats_get and hak_stats_classes_get for callers in a slow path. */
void stats_take(struct hak_stats *out);
size_t stats_classes_take(struct hak_class_stats *out, size_t count);

/* Returns the sum of the rows of the group PART. */
uint64_t stats_parts_sum(const struct hak_stats *stats);

#ifdef HAK_DEBUG
/* Checks "mapped = sum of the parts", within moving_bytes. No thread may be in a slow path. */
bool stats_parts_hold(void);
#endif
