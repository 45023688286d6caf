/* options.h: the only table of options, and the presets (HAKMEM_PROFILE) that give them their defaults.
 *
 * An option is a number. An option that is not set has the value of the preset's column. Several threads may read and
 * set values at once. A few options are texts, which are set at start only; their number is the text's length.
 * No function makes system calls: api/start.c reads the environment.
 */
#pragma once

#include "base/words.h"

#define ROW(option, ...) OPTION_##option,
enum option {
#include "base/option_rows.def"
  OPTION_COUNT
};
#undef ROW

/* The options that ask for an observer. */
#define OPTIONS_OF_OBSERVERS                                                                                           \
  OPTION_STATS, OPTION_STATS_FILE, OPTION_POLICY, OPTION_POLICY_FILE, OPTION_COUNTING, OPTION_HEAP_PROFILE,            \
      OPTION_HEAP_PROFILE_FILE, OPTION_GUARD, OPTION_LIVE

enum preset { PRESET_SPEED, PRESET_BALANCED, PRESET_LEAN, PRESET_SECURE, PRESET_COUNT };

/* The preset where HAKMEM_PROFILE is not set; a build may choose another one. */
#ifndef HAK_PRESET_DEFAULT
#define HAK_PRESET_DEFAULT PRESET_BALANCED
#endif
enum stats_mode { STATS_OFF, STATS_TEXT, STATS_JSON, STATS_OPENMETRICS };
enum deepbind_mode { DEEPBIND_DROP, DEEPBIND_KEEP };
enum foreign_mode { FOREIGN_ABORT, FOREIGN_REPORT, FOREIGN_IGNORE };
enum purge_mode { PURGE_DONTNEED, PURGE_FREE, PURGE_OFF };
enum cgroup_mode { CGROUP_ON, CGROUP_OFF };
enum background_mode { BACKGROUND_ON, BACKGROUND_OFF };
enum huge_mode { HUGE_OFF, HUGE_LARGE, HUGE_ALL };
enum switch_mode { SWITCH_OFF, SWITCH_ON };
enum policy_mode { POLICY_OFF, POLICY_FROZEN, POLICY_EVOLVING };
enum heap_profile_mode { HEAP_PROFILE_OFF, HEAP_PROFILE_ON, HEAP_PROFILE_LEAKS };

#define OPTION_CHOICES_MAX 6
#define OPTION_TEXT_BYTES 4096 /* of a text and its terminator */

enum option_time { OPTION_ANY_TIME, OPTION_AT_START }; /* when it may be set */

/* Arrays, not pointers: a pointer costs a relocation at the start of each program. */
struct option_row {
  char name[20];        /* as hak_option_set takes it */
  char environment[28]; /* HAKMEM_... */
  char unit[12];        /* "" for choices; for a text, its kind */
  int minimum, maximum;
  char choices[OPTION_CHOICES_MAX][12]; /* words for the values 0, 1, ...; empty for plain numbers */
  char sentence[120];
  enum option_time time;
  char change[148]; /* the effect of a change on memory that is held, or why no change is possible */
};

extern const struct option_row option_rows[OPTION_COUNT];
long option_default(enum option option, enum preset preset);

/* An alternative word for a value of an option. */
struct option_word {
  enum option option;
  const char *word;
  long value;
};
extern const struct option_word option_words[];
extern const size_t option_word_count;

/* An alternative environment name of an option. */
struct option_alias {
  const char *environment;
  enum option option;
  const char *value_if_yes; /* NULL: takes the option's values. Else: yes gives this one, no changes nothing */
};
extern const struct option_alias option_aliases[];
extern const size_t option_alias_count;

/* Returns the value in force. Another thread may change it between two calls. */
extern HAK_HIDDEN _Atomic int options_in_force[OPTION_COUNT];
static inline long option_value(enum option option) { return load_relaxed(&options_in_force[option]); }
/* Returns true if the option was set, false if it has the preset's value. */
bool option_is_set(enum option option);
/* Returns the text of an option that is a text ("" if it is not set); NULL for an option that is a number. */
const char *option_string(enum option option);

enum option_error { OPTION_OK, OPTION_UNKNOWN, OPTION_BAD, OPTION_FIXED };

struct text;

/* Sets the option whose environment name, or alias, is the first name_length bytes of `environment`. The option's own
 * name beats an alias, and option_set beats both, in any order of calls. An empty value sets nothing but a text. */
enum option_error options_parse(const char *environment, size_t name_length, const char *value);

/* Finds the option of a name or environment name. */
bool option_find(const char *name, enum option *out);
/* Sets an option while the program runs. value NULL returns it to the preset's value. */
enum option_error option_set(enum option option, const char *value);

/* Writes the values that a variable takes: "dontneed, free, off", "0 to 1024 MiB", "a shorter path". */
void option_allowed(const char *environment, size_t name_length, struct text *text);

/* Writes a value as text that option_set takes. For an option that is a text it writes the text in force, or nothing if
 * value is 0. */
void option_text(enum option option, long value, struct text *text);
