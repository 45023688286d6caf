/* hakmem-options: the table of options, with the values that the current environment gives; or docs/options.md. */
#include "api/alloc.h"
#include "base/options.h"
#include "base/text.h"
#include "hakmem/hakmem.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library reads the environment when the program starts: it has to be part of the program. */
__attribute__((used)) static void (*const start_of_library)(void) = hak_start;

static const char usage[] =
    "hakmem-options [--markdown]\n"
    "\n"
    "Prints the table of options: name, value that the environment gives, values, defaults, what it does.\n"
    "  --markdown   prints docs/options.md, which does not depend on the environment\n";

/* The text stays until the next call. */
static const char *value_text(enum option option, long value) {
  static char bytes[OPTION_TEXT_BYTES];
  struct text text = TEXT_IN(bytes);
  option_text(option, value, &text);
  return text.length ? bytes : "none";
}

static void print_values(enum option option, const char *quote, const char *separator) {
  const struct option_row *row = &option_rows[option];
  if (option_string(option)) {
    printf("a %s", row->unit);
    return;
  }
  if (*row->choices[0] == 0) {
    printf("%d to %d%s%s", row->minimum, row->maximum, *row->unit ? " " : "", row->unit);
    return;
  }
  for (unsigned i = 0; i < OPTION_CHOICES_MAX && *row->choices[i]; i++)
    printf("%s%s%s%s", i ? separator : "", quote, row->choices[i], quote);
}

static void print_text(void) {
  for (enum option i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    long defaults[PRESET_COUNT];
    for (enum preset p = 0; p < PRESET_COUNT; p++)
      defaults[p] = option_default(i, p);
    printf("%-24s %s", row->environment, value_text(i, option_value(i)));
    const char *unit = option_string(i) ? "" : row->unit;
    printf("%s%s%s\n    %s\n    ", *unit ? " " : "", unit, option_is_set(i) ? " (set)" : "", row->sentence);
    print_values(i, "", " | ");
    printf("; default %s", value_text(i, defaults[HAK_PRESET_DEFAULT]));
    const char *before = " (";
    for (enum preset p = 0; p < PRESET_COUNT; p++)
      if (defaults[p] != defaults[HAK_PRESET_DEFAULT]) {
        printf("%s%s %s", before, option_rows[OPTION_PROFILE].choices[p], value_text(i, defaults[p]));
        before = ", ";
      }
    printf("%s%s\n", *before == ',' ? ")" : "", row->time == OPTION_AT_START ? "; at start only" : "");
  }
  for (unsigned i = 0; i < option_alias_count; i++) {
    const struct option_alias *alias = &option_aliases[i];
    const char *own = option_rows[alias->option].environment;
    if (alias->value_if_yes)
      printf("%s: 1 is %s=%s\n", alias->environment, own, alias->value_if_yes);
    else
      printf("%s: is %s\n", alias->environment, own);
  }
}

static const char before_table[] =
    "# Options\n"
    "\n"
    "Made from the table in `src/base/option_rows.def` by `hak options --markdown`. `hak options` prints it with the\n"
    "values that the environment gives.\n"
    "\n"
    "Set an option in the environment (`HAKMEM_PURGE_DELAY_MS=500`) or in the program\n"
    "(`hak_option_set(\"purge_delay_ms\", \"500\")` of `hakmem/hakmem.h`). An option that is not set has its\n"
    "preset's value: `HAKMEM_PROFILE` selects the preset. Numbers are decimal. Words are accepted in any case. Where\n"
    "`off` is a value, `0`, `no` and `false` mean it, and `1`, `on`, `yes` and `true` mean the first other value. A\n"
    "variable with an empty value is not set. An unknown name or a bad value is answered in one line on stderr and\n"
    "changes nothing. A program with raised privileges (set-uid) reads no environment.\n"
    "\n"
    "| option | values | speed | balanced | lean | secure | may change | what it does |\n"
    "|---|---|---|---|---|---|---|---|\n";

static const char before_changes[] =
    "\n"
    "## Changing an option while the program runs\n"
    "\n"
    "`hak_option_set` returns `EPERM` for an option that may change at start only. It may set the others at any\n"
    "time, from any thread. Each thread acts on the new value from its next slow path on: when it fills or empties a\n"
    "bin, takes or frees a large object, or purges memory. The value `NULL` returns the option to the preset's\n"
    "value.\n"
    "\n"
    "| option | effect of a change on what is there |\n"
    "|---|---|\n";

static const char before_aliases[] = "\n"
                                     "## Other names\n"
                                     "\n"
                                     "These names of earlier versions still work. An option's own name beats them, "
                                     "whichever comes first in the environment.\n"
                                     "\n"
                                     "| name | means |\n"
                                     "|---|---|\n";

static void print_markdown(void) {
  fputs(before_table, stdout);
  for (enum option i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    printf("| `%s` | ", row->environment);
    print_values(i, "`", ", ");
    for (enum preset p = 0; p < PRESET_COUNT; p++)
      printf(" | %s", i != OPTION_PROFILE       ? value_text(i, option_default(i, p))
                      : p == HAK_PRESET_DEFAULT ? "default"
                                                : "");
    printf(" | %s | %s |\n", row->time == OPTION_AT_START ? "at start" : "any time", row->sentence);
  }
  fputs(before_changes, stdout);
  for (enum option i = 0; i < OPTION_COUNT; i++)
    printf("| `%s` | %s%s |\n", option_rows[i].name, option_rows[i].time == OPTION_AT_START ? "At start only. " : "",
           option_rows[i].change);
  fputs(before_aliases, stdout);
  for (unsigned i = 0; i < option_alias_count; i++) {
    const struct option_alias *alias = &option_aliases[i];
    const char *own = option_rows[alias->option].environment;
    if (alias->value_if_yes)
      printf("| `%s=1` | `%s=%s`; `0` changes nothing |\n", alias->environment, own, alias->value_if_yes);
    else
      printf("| `%s` | `%s` |\n", alias->environment, own);
  }
  for (unsigned i = 0; i < option_word_count; i++) {
    const struct option_word *word = &option_words[i];
    const char *own = option_rows[word->option].environment;
    printf("| `%s=%s` | `%s=%s` |\n", own, word->word, own, value_text(word->option, word->value));
  }
}

/* A summary of this program would be in the way. */
static void be_silent(void) { hak_option_set("stats", "off"); }

int main(int count, char **arguments) {
  bool is_markdown = false;
  const struct tool_option options[] = {{"--markdown", &is_markdown, NULL}, {NULL, NULL, NULL}};
  atexit(be_silent);
  tool_begin("hakmem-options", usage, count, arguments);
  tool_words(arguments, options, NULL, 0);
  if (is_markdown)
    print_markdown();
  else
    print_text();
  return tool_end(0);
}
