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
  uint64_t wait_ms; /* at most, for other clients, and for the process to begin */
};

/* Opens and locks the command file. False: live.sentence and live.problem say why, and nothing stays open; to close it
 * again does no harm. */
bool control_open(struct control *control, long pid, uint64_t wait_ms);
void control_close(struct control *control);

/* Sends a command and waits until the process has begun, and a minute until it has finished. False: as above. */
bool control_ask(struct control *control, enum control_verb verb, uint64_t interval_bytes);

/* The same for a command whose answer has content, which it returns in memory of malloc. NULL: as above. */
void *control_answer(struct control *control, enum control_verb verb, size_t *length);
