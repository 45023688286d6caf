/* control_page.h: the file in which other processes ask this one for something (option `live`), as both sides know it.
 *
 *   page     from byte 0 on, mapped by both
 *   answer   from byte answer_at on: what a command is answered by, if that is more than a number
 *
 * One command at a time. Who asks holds a lock of the file (flock), which goes with him, however he ends; he writes the
 * command while the stage is FREE, and only then moves the stage to ASKED. The process moves it to TAKEN, and to FREE
 * when it has answered. Who does not want to wait moves it from ASKED to FREE. The number goes up by one with each
 * command.
 *   P1  only the process moves the stage to or from TAKEN
 * The process trusts nothing that stands here: not that the others keep to this, either.
 */
#ifndef HAK_LIVE_CONTROL_PAGE_H
#define HAK_LIVE_CONTROL_PAGE_H

#include "base/words.h"

#define CONTROL_FILE_NAME "hakmem-control"
#define CONTROL_MARK "hakmem commands " /* without a zero behind */
#define CONTROL_LAYOUT 1u
#define CONTROL_INTERVAL_MAX ((uint64_t)1 << 40)

enum control_stage { CONTROL_FREE, CONTROL_ASKED, CONTROL_TAKEN, CONTROL_STAGES = 4 };

enum control_verb { CONTROL_START = 1, CONTROL_DUMP, CONTROL_STOP };

enum control_result {
  CONTROL_DONE,
  CONTROL_UNKNOWN,    /* no such verb, or no such interval */
  CONTROL_NO_MEMORY,  /* for the profile, or for the answer */
  CONTROL_IS_ON,      /* a profile runs already */
  CONTROL_IS_OFF,     /* none runs, or, to be written: none ever did */
  CONTROL_NOT_WRITTEN /* the answer; the file is closed, or may not be so long */
};

struct control_page {
  char mark[sizeof CONTROL_MARK - 1];
  uint32_t layout;
  uint32_t answer_at;
  _Atomic uint64_t stage; /* the command's number * CONTROL_STAGES + enum control_stage */
  _Atomic uint64_t verb;
  _Atomic uint64_t interval_bytes; /* START: a sample each so many */
  _Atomic uint64_t result;
  _Atomic uint64_t answer_bytes; /* DUMP: a profile for pprof */
};

static inline enum control_stage control_stage_of(uint64_t stage) {
  return (enum control_stage)(stage % CONTROL_STAGES);
}
static inline uint64_t control_staged(uint64_t stage, enum control_stage as) {
  return stage - stage % CONTROL_STAGES + as;
}

#endif
