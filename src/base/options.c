#include "base/options.h"

#include <string.h>

#define SAME(v) {(v), (v), (v)}

/* clang-format off: a table. The profile columns are speed, balanced, lean. */
const struct option_row option_rows[OPTION_COUNT] = {
    [OPTION_PROFILE] = {"profile",
                        "HAKMEM_PROFILE",
                        "",
                        SAME(PROFILE_BALANCED),
                        0,
                        PROFILE_COUNT - 1,
                        {"speed", "balanced", "lean"},
                        "Which column of this table holds where an option is not set by itself."},
    [OPTION_STATS] = {"stats",
                      "HAKMEM_STATS",
                      "",
                      SAME(STATS_OFF),
                      0,
                      STATS_JSON,
                      {"off", "text", "json"},
                      "Print a summary on stderr when the program ends."},
    [OPTION_STATS_PID] = {"stats_pid",
                          "HAKMEM_STATS_PID",
                          "process id",
                          SAME(0),
                          0,
                          0x7fffffff,
                          {NULL},
                          "If not 0, only this process prints the summary, its children do not."},
    [OPTION_BIN_SLOTS] = {"bin_slots",
                          "HAKMEM_BIN_SLOTS",
                          "blocks",
                          {64, 16, 16},
                          4,
                          2048,
                          {NULL},
                          "Slots a bin starts with (fewer for big blocks)."},
    [OPTION_BIN_KB_MAX] = {"bin_kb_max",
                           "HAKMEM_BIN_KB_MAX",
                           "KiB",
                           {2048, 512, 32},
                           0,
                           1 << 20,
                           {NULL},
                           "A bin whose slots hold less than this many bytes may double."},
    [OPTION_HEAP_KB_MAX] = {"heap_kb_max",
                            "HAKMEM_HEAP_KB_MAX",
                            "KiB",
                            {32768, 8192, 256},
                            0,
                            1 << 24,
                            {NULL},
                            "Bytes that all grown bins of one thread may hold; less while the thread works with less."},
    [OPTION_KEEP_MB] = {"keep_mb",
                        "HAKMEM_KEEP_MB",
                        "MiB",
                        {512, 16, 1},
                        0,
                        1 << 24,
                        {NULL},
                        "Free memory kept resident for reuse, beside an eighth of the heap."},
    [OPTION_PURGE_DELAY_MS] =
        {"purge_delay_ms",
         "HAKMEM_PURGE_DELAY_MS",
         "ms",
         {10000, 1000, 0},
         0,
         3600000,
         {NULL},
         "Free memory beyond that goes back when unused for so long; at once beyond the recent peak."},
    [OPTION_LARGE_CACHE_MB] = {"large_cache_mb",
                               "HAKMEM_LARGE_CACHE_MB",
                               "MiB",
                               {4096, 512, 4},
                               0,
                               1 << 24,
                               {NULL},
                               "Freed objects over 256 KiB kept ready for reuse; they go back by age too."},
    [OPTION_RESERVE_MB] = {"reserve_mb",
                           "HAKMEM_RESERVE_MB",
                           "MiB",
                           SAME(1024),
                           4,
                           1 << 14,
                           {NULL},
                           "Most address space reserved at a time; less at first, and where the system limits it."},
    [OPTION_DEEPBIND] =
        {"deepbind",
         "HAKMEM_DEEPBIND",
         "",
         SAME(DEEPBIND_DROP),
         0,
         DEEPBIND_KEEP,
         {"drop", "keep"},
         "RTLD_DEEPBIND in dlopen calls when preloaded: dropped, so that malloc and free stay one pair."},
    [OPTION_PURGE] =
        {"purge",
         "HAKMEM_PURGE",
         "",
         SAME(PURGE_DONTNEED),
         0,
         PURGE_OFF,
         {"dontneed", "free", "off"},
         "How free memory goes back: MADV_DONTNEED, MADV_FREE (the kernel takes it when it needs it), or not at all."},
    [OPTION_TARGET_MB] =
        {"target_mb",
         "HAKMEM_TARGET_MB",
         "MiB",
         {0, 0, 10},
         0,
         1 << 24,
         {NULL},
         "Soft target: when more than this is held beyond live bytes, free memory goes back at once; 0: none."},
    [OPTION_LIMIT_MB] = {"limit_mb",
                         "HAKMEM_LIMIT_MB",
                         "MiB",
                         SAME(0),
                         0,
                         1 << 24,
                         {NULL},
                         "Hard limit of what hakmem holds; beyond it malloc returns NULL; 0: the cgroup's memory.max, "
                         "if there is one."},
    [OPTION_CGROUP] = {"cgroup",
                       "HAKMEM_CGROUP",
                       "",
                       SAME(CGROUP_ON),
                       0,
                       CGROUP_OFF,
                       {"on", "off"},
                       "Take limits from the cgroup and give memory back under memory pressure."},
    [OPTION_BACKGROUND] =
        {"background",
         "HAKMEM_BACKGROUND",
         "",
         SAME(BACKGROUND_ON),
         0,
         BACKGROUND_OFF,
         {"on", "off"},
         "One thread gives free memory back while the program idles; started when the heap is big enough to matter."},
    [OPTION_HUGE] = {"huge",
                     "HAKMEM_HUGE",
                     "",
                     {HUGE_ALL, HUGE_LARGE, HUGE_OFF},
                     0,
                     HUGE_ALL,
                     {"off", "large", "all"},
                     "Huge pages: for large objects, or for all of a big heap."},
    [OPTION_PREWARM] = {"prewarm",
                        "HAKMEM_PREWARM",
                        "",
                        {PREWARM_ON, PREWARM_OFF, PREWARM_OFF},
                        0,
                        PREWARM_ON,
                        {"off", "on"},
                        "Fill the first thread's bins when the program starts."},
};

/* clang-format on */

static long values[OPTION_COUNT]; /* value + 1; 0 = not set */

bool option_is_set(enum option option) { return values[option] != 0; }

long option_value(enum option option) {
  if (values[option] != 0)
    return values[option] - 1;
  long profile = values[OPTION_PROFILE] ? values[OPTION_PROFILE] - 1 : PROFILE_BALANCED;
  return option_rows[option].profile[profile];
}

static bool parse_choice(const struct option_row *row, const char *text, long *out) {
  for (long i = 0; i < OPTION_CHOICES_MAX && row->choices[i]; i++)
    if (strcmp(row->choices[i], text) == 0) {
      *out = i;
      return true;
    }
  return false;
}

static bool parse_number(const struct option_row *row, const char *text, long *out) {
  long value = 0;
  if (*text == 0)
    return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9' || value > row->maximum)
      return false;
    value = value * 10 + (*text - '0');
  }
  *out = value;
  return value >= row->minimum && value <= row->maximum;
}

enum option_error options_parse(const char *environment, size_t name_length, const char *value) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    if (strlen(row->environment) != name_length || memcmp(row->environment, environment, name_length) != 0)
      continue;
    long number;
    /* Choices may be given by number too: HAKMEM_STATS=1. */
    if (!(row->choices[0] && parse_choice(row, value, &number)) && !parse_number(row, value, &number))
      return OPTION_BAD;
    values[i] = number + 1;
    return OPTION_OK;
  }
  return OPTION_UNKNOWN;
}
