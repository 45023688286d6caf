/* options.h: the one table of options, and the profiles that give them their values.
 *
 * An option is a number; one that is not set has the value in the profile's column.
 * options_parse is pure: text in, number or error out; api/start.c reads the environment.
 */
#ifndef HAK_BASE_OPTIONS_H
#define HAK_BASE_OPTIONS_H

#include "base/words.h"

enum option {
  OPTION_PROFILE,
  OPTION_STATS,
  OPTION_STATS_PID,
  OPTION_BIN_SLOTS,
  OPTION_BIN_KB_MAX,
  OPTION_HEAP_KB_MAX,
  OPTION_KEEP_MB,
  OPTION_PURGE_DELAY_MS,
  OPTION_LARGE_CACHE_MB,
  OPTION_RESERVE_MB,
  OPTION_DEEPBIND,
  OPTION_PURGE,
  OPTION_TARGET_MB,
  OPTION_LIMIT_MB,
  OPTION_CGROUP,
  OPTION_BACKGROUND,
  OPTION_HUGE,
  OPTION_PREWARM,
  OPTION_COUNT
};

enum profile { PROFILE_SPEED, PROFILE_BALANCED, PROFILE_LEAN, PROFILE_COUNT };
enum stats_mode { STATS_OFF, STATS_TEXT, STATS_JSON };
enum deepbind_mode { DEEPBIND_DROP, DEEPBIND_KEEP };
enum purge_mode { PURGE_DONTNEED, PURGE_FREE, PURGE_OFF };
enum cgroup_mode { CGROUP_ON, CGROUP_OFF };
enum background_mode { BACKGROUND_ON, BACKGROUND_OFF };
enum huge_mode { HUGE_OFF, HUGE_LARGE, HUGE_ALL };
enum prewarm_mode { PREWARM_OFF, PREWARM_ON };

#define OPTION_CHOICES_MAX 6

struct option_row {
  const char *name;        /* as `hak options` shows it */
  const char *environment; /* HAKMEM_... */
  const char *unit;        /* "" for choices */
  long profile[PROFILE_COUNT];
  long minimum, maximum;
  const char *choices[OPTION_CHOICES_MAX]; /* words for the values 0, 1, ...; empty for plain numbers */
  const char *sentence;
};

extern const struct option_row option_rows[OPTION_COUNT];

/* Value in force. */
long option_value(enum option option);
/* True if it was set, and not left to the profile. */
bool option_is_set(enum option option);

enum option_error { OPTION_OK, OPTION_UNKNOWN, OPTION_BAD };
/* Sets the option whose environment name is the first name_length bytes of `environment`. */
enum option_error options_parse(const char *environment, size_t name_length, const char *value);

#endif
