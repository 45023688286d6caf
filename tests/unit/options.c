/* options: every row's choices and bounds, bad values, presets, aliases, who beats whom. What is set stays set, so
 * each test runs in a child. */
#include "unit.h"

#include "base/text.h"

#include <ctype.h>

#define NUMBER_TEXT 32
#define TOO_LARGE "1844674407370955161"

static enum option_error parse(const char *name, const char *value) { return options_parse(name, strlen(name), value); }

static enum option_error parse_number(enum option option, long number) {
  char text[NUMBER_TEXT];
  snprintf(text, sizeof text, "%ld", number);
  return parse(option_rows[option].environment, text);
}

static const char *row_name = ""; /* of the row that is looked at */

/* In a child. */
#define EXPECT(condition) CHECK_SAY(condition, "%s", row_name)

#define HOLDS(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      fail_msg("%s: %s", row->name, #condition);                                                                       \
  } while (0)

UNIT_TEST(rows_are_whole) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    HOLDS(*row->name != 0);
    HOLDS(strncmp(row->environment, "HAKMEM_", 7) == 0);
    HOLDS(strlen(row->environment) == 7 + strlen(row->name));
    HOLDS(strlen(row->sentence) > 10);
    HOLDS(strlen(row->change) > 10);
    HOLDS(row->minimum <= row->maximum);
    for (unsigned p = 0; p < PRESET_COUNT; p++)
      HOLDS(option_default(i, p) >= row->minimum && option_default(i, p) <= row->maximum);
    long choices = 0;
    while (choices < OPTION_CHOICES_MAX && *row->choices[choices])
      choices++;
    HOLDS(choices == 0 || choices == row->maximum + 1);
    for (unsigned other = 0; other < i; other++)
      HOLDS(strcmp(row->environment, option_rows[other].environment) != 0);
  }
}

static void in_capitals(char *out, const char *word) {
  do
    *out++ = (char)toupper((unsigned char)*word);
  while (*word++);
}

UNIT_TEST_IN_CHILD(every_row_takes_its_choices_and_bounds) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    row_name = row->name;
    EXPECT(!option_is_set(i));
    for (long choice = 0; choice < OPTION_CHOICES_MAX && *row->choices[choice]; choice++) {
      EXPECT(parse(row->environment, row->choices[choice]) == OPTION_OK);
      EXPECT(option_value(i) == choice && option_is_set(i));
      EXPECT(parse(row->environment, row->choices[choice == 0]) == OPTION_OK);
      char capitals[NUMBER_TEXT];
      in_capitals(capitals, row->choices[choice]);
      EXPECT(parse(row->environment, capitals) == OPTION_OK);
      EXPECT(option_value(i) == choice);
    }
    if (option_string(i))
      continue;
    if (*row->choices[0]) { /* choices are words: their places in the table are nobody's business */
      EXPECT(parse(row->environment, "2") == OPTION_BAD);
      continue;
    }
    EXPECT(parse_number(i, row->minimum) == OPTION_OK);
    EXPECT(option_value(i) == row->minimum);
    EXPECT(parse_number(i, row->maximum) == OPTION_OK);
    EXPECT(option_value(i) == row->maximum);
    EXPECT(option_is_set(i));
    EXPECT(parse_number(i, (long)row->maximum + 1) == OPTION_BAD);
    EXPECT(row->minimum == 0 || parse_number(i, (long)row->minimum - 1) == OPTION_BAD);
    EXPECT(option_value(i) == row->maximum); /* a bad value changes nothing */
  }
}

UNIT_TEST_IN_CHILD(bad_values_are_refused) {
  static const char much_too_large[] = TOO_LARGE TOO_LARGE TOO_LARGE TOO_LARGE;
  static const char *const bad[] = {
      " ",    "-1", "+1",  "1 ",      " 1",    "1k",   "0x10",        "1.5",          "speedy",
      "off ", "o",  "onn", "secured", "MIXED", "\xff", TOO_LARGE "7", much_too_large, "9223372036854775808"};
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    row_name = option_rows[i].name;
    EXPECT(option_string(i) != NULL || parse(option_rows[i].environment, "") == OPTION_OK);
    for (unsigned b = 0; option_string(i) == NULL && b < sizeof bad / sizeof bad[0]; b++)
      EXPECT(parse(option_rows[i].environment, bad[b]) == OPTION_BAD);
    EXPECT(!option_is_set(i));
  }
}

UNIT_TEST(unknown_names_are_refused) {
  assert_int_equal(parse("HAKMEM_", "1"), OPTION_UNKNOWN);
  assert_int_equal(parse("HAKMEM_STAT", "1"), OPTION_UNKNOWN);
  assert_int_equal(parse("HAKMEM_STATSX", "1"), OPTION_UNKNOWN);
  assert_int_equal(parse("hakmem_stats", "1"), OPTION_UNKNOWN);
  assert_int_equal(parse("", "1"), OPTION_UNKNOWN);
  for (unsigned i = 0; i < option_alias_count; i++)
    assert_int_equal(parse(option_aliases[i].environment, ""), OPTION_OK);
  assert_int_equal(options_parse("HAKMEM_STATS=json", 7, "json"), OPTION_UNKNOWN);
}

UNIT_TEST_IN_CHILD(presets_give_their_column_unless_set) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    row_name = option_rows[i].name;
    EXPECT(option_value(i) == option_default(i, PRESET_BALANCED));
  }
  for (long preset = 0; preset < PRESET_COUNT; preset++) {
    EXPECT(parse("HAKMEM_PROFILE", option_rows[OPTION_PROFILE].choices[preset]) == OPTION_OK);
    for (unsigned i = 0; i < OPTION_COUNT; i++)
      EXPECT(i == OPTION_PROFILE || option_value(i) == option_default(i, preset));
  }
  /* What is set stands in every preset, whichever came first. */
  EXPECT(parse("HAKMEM_KEEP_MB", "77") == OPTION_OK);
  for (long preset = 0; preset < PRESET_COUNT; preset++) {
    EXPECT(parse("HAKMEM_PROFILE", option_rows[OPTION_PROFILE].choices[preset]) == OPTION_OK);
    EXPECT(option_value(OPTION_KEEP_MB) == 77);
    EXPECT(option_value(OPTION_BIN_KB_MAX) == option_default(OPTION_BIN_KB_MAX, preset));
  }
  EXPECT(parse("HAKMEM_KEEP_MB", "0") == OPTION_OK); /* zero is a value, too */
  EXPECT(option_value(OPTION_KEEP_MB) == 0 && option_is_set(OPTION_KEEP_MB));
}

/* Where off is a choice, no and its like mean it, and yes and its like the first other choice. */
UNIT_TEST_IN_CHILD(answers_mean_what_they_say) {
  static const struct {
    enum option option;
    long no, yes;
  } wanted[] = {{OPTION_STATS, STATS_OFF, STATS_TEXT},  {OPTION_PURGE, PURGE_OFF, PURGE_DONTNEED},
                {OPTION_CGROUP, CGROUP_OFF, CGROUP_ON}, {OPTION_BACKGROUND, BACKGROUND_OFF, BACKGROUND_ON},
                {OPTION_HUGE, HUGE_OFF, HUGE_LARGE},    {OPTION_PREWARM, SWITCH_OFF, SWITCH_ON}};
  static const char *const words[][5] = {{"off", "no", "false", "0", "False"}, {"on", "yes", "true", "1", "YES"}};
  for (unsigned i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
    for (unsigned w = 0; w < 5; w++) {
      const char *name = option_rows[wanted[i].option].environment;
      EXPECT(parse(name, words[0][w]) == OPTION_OK);
      EXPECT(option_value(wanted[i].option) == wanted[i].no);
      EXPECT(parse(name, words[1][w]) == OPTION_OK);
      EXPECT(option_value(wanted[i].option) == wanted[i].yes);
    }
  EXPECT(parse("HAKMEM_DEEPBIND", "1") == OPTION_BAD && parse("HAKMEM_DEEPBIND", "no") == OPTION_BAD);
  EXPECT(parse("HAKMEM_PROFILE", "0") == OPTION_BAD && parse("HAKMEM_PROFILE", "on") == OPTION_BAD);
  EXPECT(parse("HAKMEM_KEEP_MB", "off") == OPTION_BAD && parse("HAKMEM_KEEP_MB", "yes") == OPTION_BAD);
}

UNIT_TEST_IN_CHILD(aliases_are_understood) {
  EXPECT(parse("HAKMEM_SS_MEM_LEAN", "0") == OPTION_OK && !option_is_set(OPTION_PROFILE));
  EXPECT(parse("HAKMEM_SS_MEM_LEAN", "2") == OPTION_BAD && parse("HAKMEM_SS_MEM_LEAN", "lean") == OPTION_BAD);
  EXPECT(parse("HAKMEM_SS_MEM_LEAN", "1") == OPTION_OK && option_value(OPTION_PROFILE) == PRESET_LEAN);
  EXPECT(option_value(OPTION_TARGET_MB) == option_default(OPTION_TARGET_MB, PRESET_LEAN));
  EXPECT(parse("HAKMEM_SS_MEM_LEAN_DECOMMIT", "FREE") == OPTION_OK && option_value(OPTION_PURGE) == PURGE_FREE);
  EXPECT(parse("HAKMEM_SS_MEM_LEAN_DECOMMIT", "OFF") == OPTION_OK && option_value(OPTION_PURGE) == PURGE_OFF);
  EXPECT(parse("HAKMEM_SS_MEM_LEAN_DECOMMIT", "DONTNEED") == OPTION_OK && option_value(OPTION_PURGE) == PURGE_DONTNEED);
  EXPECT(parse("HAKMEM_SS_MEM_LEAN_DECOMMIT", "MADV_FREE") == OPTION_BAD);
  EXPECT(parse("HAKMEM_SS_MEM_LEAN_TARGET_MB", "25") == OPTION_OK && option_value(OPTION_TARGET_MB) == 25);
  EXPECT(parse("HAKMEM_SS_MEM_LEAN_TARGET_MB", "25MB") == OPTION_BAD && option_value(OPTION_TARGET_MB) == 25);
  EXPECT(parse("HAKMEM_SS_OS_STATS", "0") == OPTION_OK && option_value(OPTION_STATS) == STATS_OFF);
  EXPECT(parse("HAKMEM_SS_OS_STATS", "1") == OPTION_OK && option_value(OPTION_STATS) == STATS_TEXT);
  /* Every alias is a name of its own. */
  for (unsigned a = 0; a < option_alias_count; a++)
    for (unsigned i = 0; i < OPTION_COUNT; i++)
      EXPECT(strcmp(option_aliases[a].environment, option_rows[i].environment) != 0);
  EXPECT(parse("HAKMEM_PROFILE", "mixed_tinyv3_C7_safe") == OPTION_OK && option_value(OPTION_PROFILE) == PRESET_SPEED);
  EXPECT(parse("HAKMEM_PROFILE", "MIXED_TINYV3_C7_BALANCED") == OPTION_OK);
  EXPECT(option_value(OPTION_PROFILE) == PRESET_BALANCED);
  EXPECT(parse("HAKMEM_STATS", "MIXED_TINYV3_C7_SAFE") == OPTION_BAD); /* a word of another option */
  EXPECT(option_set(OPTION_PROFILE, "Secure") == OPTION_FIXED && option_value(OPTION_PROFILE) == PRESET_BALANCED);
}

UNIT_TEST_IN_CHILD(own_names_beat_aliases_and_calls_beat_both) {
  EXPECT(parse("HAKMEM_SS_MEM_LEAN", "1") == OPTION_OK);
  EXPECT(parse("HAKMEM_PROFILE", "speed") == OPTION_OK && option_value(OPTION_PROFILE) == PRESET_SPEED);
  EXPECT(parse("HAKMEM_SS_MEM_LEAN", "1") == OPTION_OK && option_value(OPTION_PROFILE) == PRESET_SPEED);
  EXPECT(parse("HAKMEM_TARGET_MB", "0") == OPTION_OK); /* a value that is 0 is one */
  EXPECT(parse("HAKMEM_SS_MEM_LEAN_TARGET_MB", "7") == OPTION_OK && option_value(OPTION_TARGET_MB) == 0);
  EXPECT(parse("HAKMEM_PURGE", "nonsense") == OPTION_BAD); /* a bad value beats nothing */
  EXPECT(parse("HAKMEM_SS_MEM_LEAN_DECOMMIT", "FREE") == OPTION_OK && option_value(OPTION_PURGE) == PURGE_FREE);
  EXPECT(option_set(OPTION_PURGE, "off") == OPTION_OK && option_value(OPTION_PURGE) == PURGE_OFF);
  EXPECT(parse("HAKMEM_PURGE", "free") == OPTION_OK && option_value(OPTION_PURGE) == PURGE_OFF);
  EXPECT(option_set(OPTION_PURGE, NULL) == OPTION_OK && option_value(OPTION_PURGE) == PURGE_DONTNEED);
  EXPECT(!option_is_set(OPTION_PURGE));
}

UNIT_TEST_IN_CHILD(options_are_set_by_name) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    enum option found = OPTION_COUNT;
    EXPECT(option_find(row->name, &found) && found == i);
    EXPECT(option_find(row->environment, &found) && found == i);
    long before = option_value(i);
    for (unsigned p = 0; p < PRESET_COUNT; p++) { /* values survive being text */
      char bytes[NUMBER_TEXT];
      struct text text = TEXT_IN(bytes);
      option_text(i, option_default(i, p), &text);
      enum option_error error = option_set(i, bytes);
      EXPECT(error == (row->time == OPTION_AT_START ? OPTION_FIXED : OPTION_OK));
      EXPECT(option_value(i) == (error == OPTION_OK ? option_default(i, p) : before));
    }
    EXPECT(option_set(i, NULL) == (row->time == OPTION_AT_START ? OPTION_FIXED : OPTION_OK));
    EXPECT(option_value(i) == before);
  }
  enum option found;
  EXPECT(!option_find("", &found) && !option_find("HAKMEM_", &found) && !option_find("Stats", &found));
  EXPECT(!option_find("HAKMEM_SS_MEM_LEAN", &found));
}

UNIT_TEST_IN_CHILD(texts_are_held) {
  const char *name = option_rows[OPTION_POLICY_FILE].environment;
  static char longest[OPTION_TEXT_BYTES + 1];
  struct text shown = TEXT_IN(longest);
  EXPECT(option_string(OPTION_KEEP_MB) == NULL);
  EXPECT(strcmp(option_string(OPTION_POLICY_FILE), "") == 0 && !option_is_set(OPTION_POLICY_FILE));
  EXPECT(parse(name, "/a b/c") == OPTION_OK && option_is_set(OPTION_POLICY_FILE));
  EXPECT(strcmp(option_string(OPTION_POLICY_FILE), "/a b/c") == 0 && option_value(OPTION_POLICY_FILE) == 6);
  option_text(OPTION_POLICY_FILE, option_value(OPTION_POLICY_FILE), &shown);
  EXPECT(strcmp(longest, "/a b/c") == 0);
  memset(longest, 'x', OPTION_TEXT_BYTES);
  EXPECT(parse(name, longest) == OPTION_BAD && strcmp(option_string(OPTION_POLICY_FILE), "/a b/c") == 0);
  EXPECT(option_set(OPTION_POLICY_FILE, "/d") == OPTION_FIXED);
  EXPECT(strcmp(option_string(OPTION_POLICY_FILE), "/a b/c") == 0);
  longest[OPTION_TEXT_BYTES - 1] = 0;
  EXPECT(parse(name, longest) == OPTION_OK && strcmp(option_string(OPTION_POLICY_FILE), longest) == 0);
  EXPECT(parse(name, "") == OPTION_OK && *option_string(OPTION_POLICY_FILE) == 0);
}

UNIT_MAIN(option_set(OPTION_POOLS, NULL)) /* unit.h has set it */
