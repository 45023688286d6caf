/* say.h: messages for people. Writing never kills the process by a signal (SIGPIPE, SIGXFSZ). It gives up when the
 * reader has read nothing for five seconds. errno is kept.
 */
#pragma once

#include "base/words.h"

/* Writes all bytes to the descriptor, or as many as possible. */
void os_write(int fd, const char *bytes, size_t length);

/* Writes a sentence to stderr, if descriptor 2 still is stderr. A program may close it and get the number for a file of
 * its own. After os_say_remember, the file's identity at program start decides. Otherwise descriptor 2 is stderr if it
 *   - is not closed on exec: exec gave it to the process, and
 *   - is a terminal or another device, a pipe, a local socket, a file that is only written, or one without a name. */
void os_say(const char *sentence);

/* Call at program start: remembers what descriptor 2 stands for. */
void os_say_remember(void);
/* Call before a filter is installed: decides whether os_say may write, because it cannot query descriptor 2 later. */
void os_say_prepare(void);

/* Between these two calls a write fails instead of killing the process by a signal. */
struct os_quiet {
  uint64_t before, pending; /* sets of signals */
};
void os_quiet_begin(struct os_quiet *quiet);
void os_quiet_end(const struct os_quiet *quiet);
