#include "base/text.h"

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

void text_append(struct text *text, const char *const *strings) {
  while (*strings)
    text_string(text, *strings++);
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

void text_hex(struct text *text, uint64_t value) {
  text_string(text, "0x");
  text_number(text, value, 16);
}

void text_fraction(struct text *text, uint64_t value, uint64_t scale, unsigned places) {
  text_decimal(text, value / scale);
  if (places)
    text_char(text, '.');
  uint64_t rest = value % scale;
  while (places--) {
    uint64_t tenfold = 0; /* rest * 10 modulo scale: a product might not fit, and its division is long code */
    char digit = '0';
    for (unsigned i = 0; i < 10; i++) {
      digit += tenfold >= scale - rest;
      tenfold = tenfold >= scale - rest ? tenfold - (scale - rest) : tenfold + rest;
    }
    text_char(text, digit);
    rest = tenfold;
  }
}

void text_bytes(struct text *text, uint64_t bytes) {
  static const char *const units[] = {" KiB", " MiB", " GiB", " TiB"};
  if (bytes < 1024) {
    text_decimal(text, bytes);
    text_string(text, " B");
    return;
  }
  unsigned unit = 0;
  uint64_t scale = 1024;
  while (unit < 3 && bytes / scale >= 1024) {
    scale *= 1024;
    unit++;
  }
  text_fraction(text, bytes, scale, bytes / scale < 10);
  text_string(text, units[unit]);
}

bool text_path(struct text *text, const char *pattern, uint64_t process_id) {
  bool has_id = false;
  for (const char *c = pattern; *c; c++) {
    if (c[0] == '%' && c[1] == 'p') {
      text_decimal(text, process_id);
      has_id = true;
      c++;
    } else {
      c += c[0] == '%' && c[1] == '%';
      text_char(text, *c);
    }
  }
  return has_id;
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
