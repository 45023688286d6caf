/* control_page.h: the format of the file with commands of other processes (option `live`).
 *
 *   page     from byte 0 on, mapped by both
 *   answer   from byte answer_at on: the content of an answer, if it is more than a number
 *
 * There is one command at a time. The client locks the file (flock), which ends with the client. It writes the command
 * while the stage is FREE, then moves the stage to ASKED. The process moves it to TAKEN, and to FREE when it has
 * answered. A client that gives up moves it from ASKED to FREE. The number rises by one with each command.
 *   P1  only the process moves the stage to or from TAKEN
 * The process validates everything in the page, and does not rely on clients following this protocol.
 */
#pragma once

#include "base/words.h"

#define CONTROL_FILE_NAME "hakmem-control"
#define CONTROL_MARK "hakmem commands " /* not terminated */
#define CONTROL_LAYOUT 1u
#define CONTROL_INTERVAL_MAX ((uint64_t)1 << 40)

enum control_stage { CONTROL_FREE, CONTROL_ASKED, CONTROL_TAKEN, CONTROL_STAGES = 4 };

enum control_verb { CONTROL_START = 1, CONTROL_DUMP, CONTROL_STOP, CONTROL_POLICY };

enum control_result {
  CONTROL_DONE,
  CONTROL_UNKNOWN,    /* no such verb, or no such interval */
  CONTROL_NO_MEMORY,  /* for the profile, or for the answer */
  CONTROL_IS_ON,      /* a profile runs already */
  CONTROL_IS_OFF,     /* no profile runs; for DUMP: none ever ran; for POLICY: the option is off */
  CONTROL_NOT_WRITTEN /* the answer could not be written: the file is closed, or has a size limit */
};

struct control_page {
  char mark[sizeof CONTROL_MARK - 1];
  uint32_t layout;
  uint32_t answer_at;
  _Atomic uint64_t stage; /* the command's number * CONTROL_STAGES + enum control_stage */
  _Atomic uint64_t verb;
  _Atomic uint64_t interval_bytes; /* START: the sampling interval */
  _Atomic uint64_t result;
  _Atomic uint64_t answer_bytes; /* DUMP: a profile for pprof; POLICY: a policy file (adapt/policy_file.h) */
};

static inline enum control_stage control_stage_of(uint64_t stage) {
  return (enum control_stage)(stage % CONTROL_STAGES);
}
static inline uint64_t control_staged(uint64_t stage, enum control_stage as) {
  return stage - stage % CONTROL_STAGES + as;
}
