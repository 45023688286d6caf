#include "base/options.h"

#include "base/text.h"

#include <limits.h>
#include <string.h>

/* The rest of the rows is in option_rows.c: each program reads defaults, few read the rest. */
#define EACH(...) {__VA_ARGS__}
#define SAME(v) {(v), (v), (v), (v)}
#define SECURE(v) {0, 0, 0, (v)}
#define ROW(option, name, environment, unit, defaults, ...) [OPTION_##option] = defaults,
static const int default_values[OPTION_COUNT][PRESET_COUNT] = {
#include "base/option_rows.def"
};
#undef EACH
#undef SAME
#undef SECURE
#define EACH(speed, balanced, lean, secure)                                                                            \
  (HAK_PRESET_DEFAULT == PRESET_SPEED      ? (speed)                                                                   \
   : HAK_PRESET_DEFAULT == PRESET_BALANCED ? (balanced)                                                                \
   : HAK_PRESET_DEFAULT == PRESET_LEAN     ? (lean)                                                                    \
                                           : (secure))
#define SAME(v) (v)
#define SECURE(v) EACH(0, 0, 0, v)
_Atomic int options_in_force[OPTION_COUNT] = {
#include "base/option_rows.def"
};

/* The values of options that are texts. */
static SPARSE char policy_file[OPTION_TEXT_BYTES], stats_file[OPTION_TEXT_BYTES];
static SPARSE char heap_profile_file[OPTION_TEXT_BYTES];
static char *const texts[OPTION_COUNT] = {
    [OPTION_POLICY_FILE] = policy_file,
    [OPTION_STATS_FILE] = stats_file,
    [OPTION_HEAP_PROFILE_FILE] = heap_profile_file,
};

const struct option_word option_words[] = {
    {OPTION_PROFILE, "MIXED_TINYV3_C7_SAFE", PRESET_SPEED},
    {OPTION_PROFILE, "MIXED_TINYV3_C7_BALANCED", PRESET_BALANCED},
};
const size_t option_word_count = sizeof option_words / sizeof option_words[0];

const struct option_alias option_aliases[] = {
    {"HAKMEM_SS_MEM_LEAN", OPTION_PROFILE, "lean"},
    {"HAKMEM_SS_MEM_LEAN_DECOMMIT", OPTION_PURGE, NULL},
    {"HAKMEM_SS_MEM_LEAN_TARGET_MB", OPTION_TARGET_MB, NULL},
    {"HAKMEM_SS_OS_STATS", OPTION_STATS, "text"},
};
const size_t option_alias_count = sizeof option_aliases / sizeof option_aliases[0];

/* The source of a value; a stronger source wins. */
enum rank { RANK_ALIAS = 1, RANK_ENVIRONMENT, RANK_CALL };
#define RANK_BITS 2
#define RANKS ((1L << RANK_BITS) - 1)
_Static_assert(RANK_CALL <= RANKS, "ranks fit their bits");
_Static_assert(LONG_MAX >> RANK_BITS > 0x7fffffff, "values and their rank fit a word");

/* value << RANK_BITS | rank; 0 = not set. Options are independent numbers: no order between them. */
static _Atomic long values[OPTION_COUNT];

bool option_is_set(enum option option) { return load_relaxed(&values[option]) != 0; }

long option_default(enum option option, enum preset preset) { return default_values[option][preset]; }

static int value_in_force(enum option option) {
  long set = atomic_load(&values[option]), preset = atomic_load(&values[OPTION_PROFILE]);
  return set != 0 ? (int)(set >> RANK_BITS)
                  : (int)option_default(option, preset ? (enum preset)(preset >> RANK_BITS) : HAK_PRESET_DEFAULT);
}

/* Call after a change of `values`. Two threads may change them at once: the one that stores last stores what holds. */
static void values_changed(void) {
  for (enum option option = 0; option < OPTION_COUNT; option++)
    for (int value = -1, now; value != (now = value_in_force(option)); value = now)
      atomic_store(&options_in_force[option], now);
}

const char *option_string(enum option option) { return texts[option]; }

static void value_store(enum option option, long value, enum rank rank) {
  long set = load_relaxed(&values[option]);
  do
    if ((set & RANKS) > (long)rank)
      return;
  while (!atomic_compare_exchange_weak(&values[option], &set, value << RANK_BITS | (long)rank));
  values_changed();
}

static char to_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Compares two words and ignores the case of A to Z. */
static bool same_word(const char *a, const char *b) {
  while (*a && to_lower(*a) == to_lower(*b))
    a++, b++;
  return to_lower(*a) == to_lower(*b);
}

enum answer { ANSWER_NO, ANSWER_YES, ANSWER_NONE };

static enum answer parse_answer(const char *text) {
  static const char *const words[][4] = {
      [ANSWER_NO] = {"off", "no", "false", "0"}, [ANSWER_YES] = {"on", "yes", "true", "1"}};
  for (int answer = ANSWER_NO; answer <= ANSWER_YES; answer++)
    for (unsigned i = 0; i < 4; i++)
      if (same_word(words[answer][i], text))
        return (enum answer)answer;
  return ANSWER_NONE;
}

static long choice_find(const struct option_row *row, const char *word) {
  for (long i = 0; i < OPTION_CHOICES_MAX && *row->choices[i]; i++)
    if (same_word(row->choices[i], word))
      return i;
  return -1;
}

static enum option_error parse_choice(enum option option, const char *text, long *out) {
  const struct option_row *row = &option_rows[option];
  if ((*out = choice_find(row, text)) >= 0)
    return OPTION_OK;
  for (unsigned i = 0; i < option_word_count; i++)
    if (option_words[i].option == option && same_word(option_words[i].word, text)) {
      *out = option_words[i].value;
      return OPTION_OK;
    }
  long off = choice_find(row, "off");
  enum answer answer = off < 0 ? ANSWER_NONE : parse_answer(text);
  if (answer == ANSWER_NONE)
    return OPTION_BAD;
  *out = answer == ANSWER_NO ? off : off == 0;
  return OPTION_OK;
}

static enum option_error parse_number(const struct option_row *row, const char *text, long *out) {
  size_t value;
  bool is_number = text_number_parse(text, &value, &text) && *text == 0;
  *out = (long)value;
  return is_number && value >= (size_t)row->minimum && value <= (size_t)row->maximum ? OPTION_OK : OPTION_BAD;
}

static enum option_error parse_text(enum option option, const char *text, long *out) {
  size_t length = strlen(text);
  if (length > (size_t)option_rows[option].maximum)
    return OPTION_BAD;
  memcpy(texts[option], text, length + 1);
  *out = (long)length;
  return OPTION_OK;
}

static enum option_error value_parse(enum option option, const char *text, enum rank rank) {
  const struct option_row *row = &option_rows[option];
  long value;
  enum option_error error = texts[option]      ? parse_text(option, text, &value)
                            : *row->choices[0] ? parse_choice(option, text, &value)
                                               : parse_number(row, text, &value);
  if (error == OPTION_OK)
    value_store(option, value, rank);
  return error;
}

static enum option_error alias_parse(const struct option_alias *alias, const char *text) {
  if (alias->value_if_yes == NULL)
    return value_parse(alias->option, text, RANK_ALIAS);
  enum answer answer = parse_answer(text);
  if (answer == ANSWER_YES)
    return value_parse(alias->option, alias->value_if_yes, RANK_ALIAS);
  return answer == ANSWER_NO ? OPTION_OK : OPTION_BAD;
}

static bool is_name(const char *name, const char *text, size_t length) {
  return strlen(name) == length && memcmp(name, text, length) == 0;
}

enum option_error options_parse(const char *environment, size_t name_length, const char *value) {
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    if (is_name(option_rows[i].environment, environment, name_length))
      return *value == 0 && !texts[i] ? OPTION_OK : value_parse((enum option)i, value, RANK_ENVIRONMENT);
  for (unsigned i = 0; i < option_alias_count; i++)
    if (is_name(option_aliases[i].environment, environment, name_length))
      return *value == 0 ? OPTION_OK : alias_parse(&option_aliases[i], value);
  return OPTION_UNKNOWN;
}

bool option_find(const char *name, enum option *out) {
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    if (strcmp(option_rows[i].name, name) == 0 || strcmp(option_rows[i].environment, name) == 0) {
      *out = (enum option)i;
      return true;
    }
  return false;
}

enum option_error option_set(enum option option, const char *value) {
  if (option_rows[option].time == OPTION_AT_START)
    return OPTION_FIXED;
  if (option == OPTION_PROFILE && value != NULL && same_word(value, option_rows[option].choices[PRESET_SECURE]))
    return OPTION_FIXED; /* its parts are set at start only */
  if (value != NULL)
    return value_parse(option, value, RANK_CALL);
  atomic_store(&values[option], 0);
  values_changed();
  return OPTION_OK;
}

static void write_allowed(enum option option, struct text *text) {
  const struct option_row *row = &option_rows[option];
  for (unsigned i = 0; i < OPTION_CHOICES_MAX && *row->choices[i]; i++)
    text_format(text, "%s%s", i ? ", " : "", row->choices[i]);
  if (texts[option])
    text_string(text, "a shorter ");
  else if (*row->choices[0] == 0)
    text_format(text, "%lu to %lu%s", (uint64_t)row->minimum, (uint64_t)row->maximum, *row->unit ? " " : "");
  text_string(text, row->unit);
}

void option_allowed(const char *environment, size_t name_length, struct text *text) {
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    if (is_name(option_rows[i].environment, environment, name_length))
      write_allowed((enum option)i, text);
  for (unsigned i = 0; i < option_alias_count; i++)
    if (is_name(option_aliases[i].environment, environment, name_length)) {
      if (option_aliases[i].value_if_yes)
        text_string(text, "off, on");
      else
        write_allowed(option_aliases[i].option, text);
    }
}

void option_text(enum option option, long value, struct text *text) {
  const struct option_row *row = &option_rows[option];
  if (texts[option])
    text_string(text, value ? texts[option] : "");
  else if (*row->choices[0])
    text_string(text, row->choices[value]);
  else
    text_decimal(text, (uint64_t)value);
}
