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
      text_string(text, (const char[]){*c, 0});
    }
  }
  return has_id;
}
