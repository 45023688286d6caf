/* top_screen.h: the screen of `hakmem-top`, for any terminal from 40 by 10 on; designed for 80 by 24. */
#pragma once

#include "tools/top_data.h"

struct top_screen {
  unsigned first_row; /* of the table, on the screen */
  bool shows_help;
  unsigned interval_ms;
  bool has_blocks; /* the terminal can draw parts of a cell */
};

void top_draw(const struct top_screen *screen, const struct top_data *data);

/* The list of processes that can be read, to choose one. */
enum { TOP_LISTED = 256 };
struct top_listed {
  long pid;
  unsigned threads;
  uint64_t live_bytes, heap_bytes, resident_bytes;
  char command[LIVE_COMMAND];
};
void top_draw_list(const struct top_listed *listed, unsigned count, unsigned chosen);
