/* figures.h: what only observers and tools write into a text (base/text.h). */
#pragma once

#include "base/text.h"

/* Appends value / scale with `places` digits after the point, rounded down. */
void text_fraction(struct text *text, uint64_t value, uint64_t scale, unsigned places);
/* "31.5 MiB", "312 KiB", "17 B": rounded down; tenths only below 100, and if there are some. */
void text_bytes(struct text *text, uint64_t bytes);
/* Writes a path, with %p replaced by the process id and %% by %, and tells whether there was a %p. False: it does not
 * fit. */
bool text_path(const char *pattern, uint64_t process_id, char *out, size_t out_bytes, bool *has_id);
