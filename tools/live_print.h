/* live_print.h: a snapshot of a live page as text for people, or as one JSON object. */
#pragma once

#include "tools/live_read.h"

enum { LIVE_SIZE = 24 };

/* "1.5 GiB", "312 KiB", "17 B". */
const char *live_size(uint64_t bytes, char text[LIVE_SIZE]);
/* "3 d 4 h", "4 h 5 min", "5 min 6 s", "6.1 s". */
const char *live_duration(double seconds, char text[LIVE_SIZE]);

void live_print(const struct live_process *process);
void live_print_json(const struct live_process *process);
