/* The rows of hakmem/stats.h, as arrays. */
#include "stats/stats.h"

#define UNIT_BYTES_WORD "bytes"
#define UNIT_BLOCKS_WORD "blocks"
#define UNIT_OBJECTS_WORD "objects"
#define UNIT_MAPPINGS_WORD "mappings"
#define UNIT_HEAPS_WORD "heaps"
#define UNIT_SLABS_WORD "slabs"
#define UNIT_TIMES_WORD "times"
#define UNIT_CALLS_WORD "calls"
#define UNIT_ARMS_WORD "arms"
#define UNIT_NS_WORD "ns"

#define ROW_OF(type, group, name, kind, unit, sentence)                                                                \
  {#name, offsetof(struct type, name), STATS_##group, STATS_##kind, UNIT_##unit##_WORD, sentence},
#define STATS_ROW(group, name, kind, unit, sentence) ROW_OF(hak_stats, group, name, kind, unit, sentence)
#define PROCESS_ROW(group, name, kind, unit, sentence) ROW_OF(hak_process_stats, group, name, kind, unit, sentence)
#define CLASS_ROW(group, name, kind, unit, sentence) ROW_OF(hak_class_stats, group, name, kind, unit, sentence)

const struct stats_field stats_fields[] = {HAK_STATS_ROWS(STATS_ROW)};
const struct stats_field stats_process_fields[] = {HAK_PROCESS_STATS_ROWS(PROCESS_ROW)};
const struct stats_field stats_class_fields[] = {HAK_CLASS_STATS_ROWS(CLASS_ROW)};

#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])
const size_t stats_field_count = COUNT(stats_fields);
const size_t stats_process_field_count = COUNT(stats_process_fields);
const size_t stats_class_field_count = COUNT(stats_class_fields);

_Static_assert(COUNT(stats_fields) * sizeof(uint64_t) == sizeof(struct hak_stats), "one row a field");
_Static_assert(COUNT(stats_process_fields) * sizeof(uint64_t) == sizeof(struct hak_process_stats), "one row a field");
_Static_assert(COUNT(stats_class_fields) * sizeof(uint64_t) == sizeof(struct hak_class_stats), "one row a field");
_Static_assert(HAK_STATS_CLASSES == HAK_CLASS_COUNT - 1, "class 0 has no slabs");
