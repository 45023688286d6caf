/* hakmem-options: prints the options table, and the values the current environment gives. */
#include "base/options.h"

#include <stdio.h>

static void print_value(const struct option_row *row, long value) {
  if (row->choices[0])
    printf("%s", row->choices[value]);
  else
    printf("%ld", value);
}

int main(void) {
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    const struct option_row *row = &option_rows[i];
    bool one = row->profile[0] == row->profile[1] && row->profile[1] == row->profile[2];
    printf("%-24s ", row->environment);
    print_value(row, option_value((enum option)i));
    printf("%s%s%s\n    %s\n    ", *row->unit ? " " : "", row->unit, option_is_set((enum option)i) ? " (set)" : "",
           row->sentence);
    if (row->choices[0]) {
      for (unsigned c = 0; c < OPTION_CHOICES_MAX && row->choices[c]; c++)
        printf("%s%s", c ? " | " : "", row->choices[c]);
    } else {
      printf("%ld to %ld", row->minimum, row->maximum);
    }
    printf("; default ");
    print_value(row, row->profile[PROFILE_BALANCED]);
    if (!one) {
      printf(" (speed ");
      print_value(row, row->profile[PROFILE_SPEED]);
      printf(", lean ");
      print_value(row, row->profile[PROFILE_LEAN]);
      printf(")");
    }
    printf("\n");
  }
  return 0;
}
