/* live_print.h: a snapshot of a live page as text for people, or as one JSON object. */
#pragma once

#include "tools/live_read.h"

/* "1.5 GiB", "312 KiB", "17 B", in one of eight static buffers, in turns. */
const char *live_size(uint64_t bytes);
/* "3 d 4 h", "4 h 5 min", "5 min 6 s", "6.1 s", in one of the same buffers. */
const char *live_duration(double seconds);

void live_print(const struct live_process *process);
void live_print_json(const struct live_process *process);
