/* text.h: building a short text in a fixed buffer, without stdio, locale or allocation. What does
 * not fit is cut off; the text is always terminated. */
#ifndef HAK_BASE_TEXT_H
#define HAK_BASE_TEXT_H

#include "base/words.h"

struct text {
  char *bytes;
  size_t capacity; /* bytes, the terminator included */
  size_t length;
};

/* An empty text in a char array. */
#define TEXT_IN(array) ((struct text){.bytes = ((array)[0] = 0, (array)), .capacity = sizeof(array), .length = 0})

void text_string(struct text *text, const char *string);
/* What others wrote: control characters, which a terminal would obey, as '?'. */
void text_visible(struct text *text, const char *string);
void text_decimal(struct text *text, uint64_t value);
void text_hex(struct text *text, uint64_t value);
/* value / scale with `places` digits behind the point, rounded down. */
void text_fraction(struct text *text, uint64_t value, uint64_t scale, unsigned places);
/* "1.5 MiB", "312 KiB", "17 B". */
void text_bytes(struct text *text, uint64_t bytes);
/* A path in which %p stands for a process id, and %% for %. True if there is a %p. */
bool text_path(struct text *text, const char *pattern, uint64_t process_id);

#endif
