/* say.h: what hakmem writes for people. None of it ends the process by a signal (SIGPIPE, SIGXFSZ), or waits for ever: who
 * has read nothing for five seconds is given up. errno is kept.
 */
#ifndef HAK_OS_SAY_H
#define HAK_OS_SAY_H

#include "base/words.h"

/* Writes all of it to the descriptor, or as much as can be. */
void os_write(int fd, const char *bytes, size_t length);

/* A sentence on stderr, if descriptor 2 still stands for it. Programs close it and get its number for a file of their own.
 * What it stood for at the start is known only to a process that remembered; else descriptor 2 is stderr if it
 *   - is not closed on exec: it was given to the process by exec,
 *   - is a terminal or another device, a pipe, a local socket, a file that is only written, or one without a name. */
void os_say(const char *sentence);

/* When the program starts: what descriptor 2 stands for. */
void os_say_remember(void);
/* Before a filter: whether os_say may write, as it cannot ask any more. */
void os_say_prepare(void);

/* Writing between these two fails instead of ending the process by a signal. */
struct os_quiet {
  uint64_t before, pending; /* sets of signals */
};
void os_quiet_begin(struct os_quiet *quiet);
void os_quiet_end(const struct os_quiet *quiet);

#endif
