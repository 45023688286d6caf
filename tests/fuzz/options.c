/* The texts that set options: NAME, a zero byte, VALUE. What is taken can be written and taken again. */
#include "fuzz.h"

#include "base/options.h"
#include "base/text.h"

static void set_again(enum option option) {
  char written[OPTION_TEXT_BYTES + 16], again[sizeof written];
  struct text text = TEXT_IN(written), second = TEXT_IN(again);
  long value = option_value(option);
  const struct option_row *row = &option_rows[option];
  CHECK_SAY(option_string(option) || (value >= row->minimum && value <= row->maximum) || *row->choices[0], "%s: %ld",
            row->name, value);
  option_text(option, value, &text);
  enum option_error error = option_set(option, written);
  CHECK_SAY(error == OPTION_OK || error == OPTION_FIXED, "%s=%s", row->name, written);
  CHECK_SAY(option_value(option) == value, "%s=%s: %ld, and %ld again", row->name, written, value,
            option_value(option));
  option_text(option, option_value(option), &second);
  CHECK(strcmp(written, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct fuzz_input input = {data, data + size};
  char *name = fuzz_text(fuzz_part(&input, 0)), *value = fuzz_text(input);
  char allowed[512];
  struct text text = TEXT_IN(allowed);
  enum option option;
  option_allowed(name, strlen(name), &text);
  enum option_error error = options_parse(name, strlen(name), value);
  bool is_found = option_find(name, &option);
  if (is_found) {
    CHECK(option < OPTION_COUNT && error != OPTION_FIXED);
    option_set(option, value);
  }
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    if (option_is_set((enum option)i))
      set_again((enum option)i);
    option_set((enum option)i, NULL);
  }
  free(name);
  free(value);
  return 0;
}
