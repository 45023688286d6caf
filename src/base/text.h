/* text.h: builds a short text in a fixed buffer, without stdio, locale or allocation. Text that does not fit is cut
 * off. The text is always terminated. The last function reads a number. */
#pragma once

#include "base/words.h"

struct text {
  char *bytes;
  size_t capacity; /* bytes, the terminator included */
  size_t length;
};

/* An empty text in a char array. */
#define TEXT_IN(array) ((struct text){.bytes = ((array)[0] = 0, (array)), .capacity = sizeof(array), .length = 0})

void text_string(struct text *text, const char *string);
/* Appends text from outside. Control characters, which a terminal would obey, become '?'. */
void text_visible(struct text *text, const char *string);
void text_decimal(struct text *text, uint64_t value);
/* Appends the format with its values, as printf would. It knows %s, %lu for a number, and %#lx for an address. */
__attribute__((format(printf, 2, 3))) void text_format(struct text *text, const char *format, ...);

/* Parses the number at the start of text; SIZE_MAX if it is too large. *rest points behind it. False without digits. */
bool text_number_parse(const char *text, size_t *number, const char **rest);
