/* live_control.h: sends commands to a process that keeps a live page (live/control_page.h).
 *
 * Everything that comes from the process is validated.
 */
#pragma once

#include "live/control_page.h"
#include "tools/live_read.h"

struct control {
  struct live_process live; /* its sentence and problem describe any failure */
  int fd;                   /* of the command file, locked */
  struct control_page *page;
  uint32_t answer_at;
};

/* Opens and locks the command file; waits for other clients, at most wait_ms. False: live.sentence and live.problem say
 * why; then do not call control_close. */
bool control_open(struct control *control, long pid, uint64_t wait_ms);
void control_close(struct control *control);

/* Sends a command and waits: wait_ms until the process begins, and a minute until it has finished. False: as above. */
bool control_ask(struct control *control, enum control_verb verb, uint64_t interval_bytes, uint64_t wait_ms);

/* Returns the content of the answer, in memory of malloc. NULL: as above. */
void *control_answer(struct control *control, size_t *length);
