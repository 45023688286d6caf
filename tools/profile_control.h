/* profile_control.h: asking a process that keeps a live page for something (live/control_page.h).
 *
 * Nothing that comes from the process is trusted to be in order.
 */
#ifndef HAK_TOOLS_PROFILE_CONTROL_H
#define HAK_TOOLS_PROFILE_CONTROL_H

#include "live/control_page.h"
#include "tools/live_read.h"

struct control {
  struct live_process live; /* its sentence and problem: of whatever went wrong */
  int fd;                   /* of the file with the commands, locked */
  struct control_page *page;
  uint32_t answer_at;
};

/* False: live.sentence and live.problem say why; control_close is not needed then. Waits wait_ms at most for others who
 * ask. */
bool control_open(struct control *control, long pid, uint64_t wait_ms);
void control_close(struct control *control);

/* Asks and waits for the answer: wait_ms until the process begins, and a minute until it is done. False: as above. */
bool control_ask(struct control *control, enum control_verb verb, uint64_t interval_bytes, uint64_t wait_ms);

/* What a DUMP was answered by, into an open file. False: as above; errno is not 0 if it is the file's fault. */
bool control_copy_answer(struct control *control, int out);

#endif
