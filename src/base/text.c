#include "base/text.h"

#include <stdarg.h>
#include <string.h>

static void text_char(struct text *text, char c) {
  if (text->length + 1 < text->capacity) {
    text->bytes[text->length++] = c;
    text->bytes[text->length] = 0;
  }
}

void text_string(struct text *text, const char *string) {
  while (*string)
    text_char(text, *string++);
}

void text_visible(struct text *text, const char *string) {
  for (; *string; string++)
    text_char(text, *string >= ' ' && *string < 0x7f ? *string : '?');
}

static void text_number(struct text *text, uint64_t value, unsigned base) {
  char digits[20];
  unsigned n = 0;
  do
    digits[n++] = "0123456789abcdef"[value % base];
  while (value /= base);
  while (n)
    text_char(text, digits[--n]);
}

void text_decimal(struct text *text, uint64_t value) { text_number(text, value, 10); }

void text_format(struct text *text, const char *format, ...) {
  va_list values;
  va_start(values, format);
  while (*format) {
    if (format[0] != '%') {
      text_char(text, *format++);
    } else if (format[1] == 's') {
      text_string(text, va_arg(values, const char *));
      format += strlen("%s");
    } else if (format[1] == 'l') {
      text_decimal(text, va_arg(values, uint64_t));
      format += strlen("%lu");
    } else {
      text_string(text, "0x");
      text_number(text, va_arg(values, uint64_t), 16);
      format += strlen("%#lx");
    }
  }
  va_end(values);
}

bool text_number_parse(const char *text, size_t *number, const char **rest) {
  size_t value = 0;
  const char *c = text;
  for (; *c >= '0' && *c <= '9'; c++)
    if (__builtin_mul_overflow(value, (size_t)10, &value) || __builtin_add_overflow(value, (size_t)(*c - '0'), &value))
      value = SIZE_MAX; /* too large: further digits do not change it */
  *number = value;
  *rest = c;
  return c > text;
}
