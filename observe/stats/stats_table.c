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

#define FIELD_OF(group, name, kind, unit, sentence) {#name, STATS_##group, STATS_##kind, UNIT_##unit##_WORD, sentence},

const struct stats_field stats_fields[] = {HAK_STATS_ROWS(FIELD_OF)};
const struct stats_field stats_process_fields[] = {HAK_PROCESS_STATS_ROWS(FIELD_OF)};
const struct stats_field stats_class_fields[] = {HAK_CLASS_STATS_ROWS(FIELD_OF)};

_Static_assert(HAK_STATS_CLASSES == HAK_CLASS_COUNT - 1, "class 0 has no slabs");
