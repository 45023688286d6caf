#include "inspect/figures.h"

void text_fraction(struct text *text, uint64_t value, uint64_t scale, unsigned places) {
  text_decimal(text, value / scale);
  text_string(text, places ? "." : "");
  unsigned __int128 rest = value % scale;
  while (places--) {
    rest *= 10;
    text_decimal(text, (uint64_t)(rest / scale));
    rest %= scale;
  }
}

void text_bytes(struct text *text, uint64_t bytes) {
  static const char units[][5] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  unsigned unit = 0;
  uint64_t scale = 1;
  for (; bytes / scale >= 1024; unit++)
    scale *= 1024;
  text_fraction(text, bytes, scale, bytes / scale < 100 && bytes % scale > scale / 10);
  text_string(text, units[unit]);
}

bool text_path(const char *pattern, uint64_t process_id, char *out, size_t out_bytes, bool *has_id) {
  struct text text = {.bytes = out, .capacity = out_bytes};
  *has_id = false;
  *out = 0;
  for (const char *c = pattern; *c; c++) {
    if (c[0] == '%' && c[1] == 'p') {
      text_decimal(&text, process_id);
      *has_id = true;
      c++;
    } else {
      c += c[0] == '%' && c[1] == '%';
      text_string(&text, (const char[]){*c, 0});
    }
  }
  return text.length + 1 < out_bytes;
}
