/* options: every row's choices and bounds, bad values, and profiles. What is set stays set, so each
 * test runs in a child. */
#include "unit.h"

#define NUMBER_TEXT 32

static enum option_error parse(const char *name, const char *value) { return options_parse(name, strlen(name), value); }

static enum option_error parse_number(enum option option, long number) {
  char text[NUMBER_TEXT];
  snprintf(text, sizeof text, "%ld", number);
  return parse(option_rows[option].environment, text);
}

/* In a child a failed condition ends it. */
#define EXPECT(condition) ((condition) ? (void)0 : (dprintf(2, "line %d: %s\n", __LINE__, #condition), _exit(1)))

static void passes_in_child(void (*body)(void *)) {
  char said[256];
  int status = unit_in_child(body, NULL, said, sizeof said);
  if (said[0] || status != 0)
    fail_msg("status %d: %s", status, said);
}

static void rows_are_whole(void **state) {
  (void)state;
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    assert_non_null(row->name);
    assert_memory_equal(row->environment, "HAKMEM_", 7);
    assert_int_equal(strlen(row->environment), 7 + strlen(row->name));
    assert_true(strlen(row->sentence) > 10);
    assert_true(row->minimum <= row->maximum);
    for (unsigned p = 0; p < PROFILE_COUNT; p++)
      assert_true(row->profile[p] >= row->minimum && row->profile[p] <= row->maximum);
    long choices = 0;
    while (choices < OPTION_CHOICES_MAX && row->choices[choices])
      choices++;
    if (choices > 0)
      assert_int_equal(choices, row->maximum + 1);
    for (unsigned other = 0; other < i; other++)
      assert_string_not_equal(row->environment, option_rows[other].environment);
  }
}

static void choices_and_bounds(void *unused) {
  (void)unused;
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    EXPECT(!option_is_set(i));
    for (long choice = 0; choice < OPTION_CHOICES_MAX && row->choices[choice]; choice++) {
      EXPECT(parse(row->environment, row->choices[choice]) == OPTION_OK);
      EXPECT(option_value(i) == choice);
    }
    EXPECT(parse_number(i, row->minimum) == OPTION_OK);
    EXPECT(option_value(i) == row->minimum);
    EXPECT(parse_number(i, row->maximum) == OPTION_OK);
    EXPECT(option_value(i) == row->maximum);
    EXPECT(option_is_set(i));
    EXPECT(parse_number(i, row->maximum + 1) == OPTION_BAD);
    EXPECT(row->minimum == 0 || parse_number(i, row->minimum - 1) == OPTION_BAD);
    EXPECT(option_value(i) == row->maximum); /* a bad value changes nothing */
  }
}

static void every_row_takes_its_choices_and_bounds(void **state) {
  (void)state;
  passes_in_child(choices_and_bounds);
}

static void bad_values(void *unused) {
  (void)unused;
  static const char *const bad[] = {"",
                                    " ",
                                    "-1",
                                    "+1",
                                    "1 ",
                                    " 1",
                                    "1k",
                                    "0x10",
                                    "1.5",
                                    "speedy",
                                    "off ",
                                    "OFF",
                                    "\xff",
                                    "18446744073709551617",
                                    "9223372036854775808",
                                    "99999999999999999999999999999999999999999999999999999999999999999999"};
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    for (unsigned b = 0; b < sizeof bad / sizeof bad[0]; b++) {
      EXPECT(parse(option_rows[i].environment, bad[b]) == OPTION_BAD);
      EXPECT(!option_is_set(i));
    }
}

static void bad_values_are_refused(void **state) {
  (void)state;
  passes_in_child(bad_values);
}

static void unknown_names_are_refused(void **state) {
  (void)state;
  assert_int_equal(parse("HAKMEM_", "1"), OPTION_UNKNOWN);
  assert_int_equal(parse("HAKMEM_STAT", "1"), OPTION_UNKNOWN);
  assert_int_equal(parse("HAKMEM_STATSX", "1"), OPTION_UNKNOWN);
  assert_int_equal(parse("hakmem_stats", "1"), OPTION_UNKNOWN);
  assert_int_equal(parse("", "1"), OPTION_UNKNOWN);
  assert_int_equal(options_parse("HAKMEM_STATS=json", 7, "json"), OPTION_UNKNOWN);
}

static void profiles(void *unused) {
  (void)unused;
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    EXPECT(option_value(i) == option_rows[i].profile[PROFILE_BALANCED]);
  for (long profile = 0; profile < PROFILE_COUNT; profile++) {
    EXPECT(parse("HAKMEM_PROFILE", option_rows[OPTION_PROFILE].choices[profile]) == OPTION_OK);
    for (unsigned i = 0; i < OPTION_COUNT; i++)
      EXPECT(i == OPTION_PROFILE || option_value(i) == option_rows[i].profile[profile]);
  }
  /* What is set stands in every profile, whichever came first. */
  EXPECT(parse("HAKMEM_KEEP_MB", "77") == OPTION_OK);
  for (long profile = 0; profile < PROFILE_COUNT; profile++) {
    EXPECT(parse_number(OPTION_PROFILE, profile) == OPTION_OK);
    EXPECT(option_value(OPTION_KEEP_MB) == 77);
    EXPECT(option_value(OPTION_BIN_KB_MAX) == option_rows[OPTION_BIN_KB_MAX].profile[profile]);
  }
  EXPECT(parse("HAKMEM_KEEP_MB", "0") == OPTION_OK); /* zero is a value, too */
  EXPECT(option_value(OPTION_KEEP_MB) == 0 && option_is_set(OPTION_KEEP_MB));
}

static void profiles_give_their_column_unless_set(void **state) {
  (void)state;
  passes_in_child(profiles);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_are_whole),
      cmocka_unit_test(every_row_takes_its_choices_and_bounds),
      cmocka_unit_test(bad_values_are_refused),
      cmocka_unit_test(unknown_names_are_refused),
      cmocka_unit_test(profiles_give_their_column_unless_set),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
