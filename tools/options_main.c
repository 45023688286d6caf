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
    "hakmem-options [--markdown PAGE]\n"
    "\n"
    "Prints the table of options: name, value that the environment gives, values, defaults, what it does.\n"
    "  --markdown   prints PAGE, docs/options.md, with its tables made anew; they do not depend on the environment\n";

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

static void print_aliases(bool is_page) {
  for (unsigned i = 0; i < option_alias_count; i++) {
    const struct option_alias *alias = &option_aliases[i];
    const char *own = option_rows[alias->option].environment;
    if (alias->value_if_yes)
      printf(is_page ? "| `%s=1` | `%s=%s`; `0` changes nothing |\n" : "%s: 1 is %s=%s\n", alias->environment, own,
             alias->value_if_yes);
    else
      printf(is_page ? "| `%s` | `%s` |\n" : "%s: is %s\n", alias->environment, own);
  }
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
  print_aliases(false);
}

static void print_option_rows(void) {
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
}

static void print_change_rows(void) {
  for (enum option i = 0; i < OPTION_COUNT; i++)
    printf("| `%s` | %s |\n", option_rows[i].name, option_rows[i].change);
}

static void print_alias_rows(void) {
  print_aliases(true);
  for (unsigned i = 0; i < option_word_count; i++) {
    const struct option_word *word = &option_words[i];
    const char *own = option_rows[word->option].environment;
    printf("| `%s=%s` | `%s=%s` |\n", own, word->word, own, value_text(word->option, word->value));
  }
}

static void (*const tables[])(void) = {print_option_rows, print_change_rows, print_alias_rows};
static void print_rows(unsigned table) { tables[table](); }

/* A summary of this program would be in the way. */
static void be_silent(void) { hak_option_set("stats", "off"); }

int main(int count, char **arguments) {
  const char *page = NULL;
  const struct tool_option options[] = {{"--markdown", NULL, &page}, {NULL, NULL, NULL}};
  atexit(be_silent);
  tool_begin("hakmem-options", usage, count, arguments);
  tool_words(arguments, options, NULL, 0);
  if (page)
    tool_print_page(page, sizeof tables / sizeof *tables, print_rows);
  else
    print_text();
  return tool_end(0);
}
