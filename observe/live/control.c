#include "live/control.h"

#include "adapt/policy_store.h"
#include "base/options.h"
#include "count/tally.h"
#include "live/control_page.h"
#include "profile/profile.h"

#include <string.h>

bool control_make(struct os_shared *out) {
  if (!os_shared_make(out, CONTROL_FILE_NAME, sizeof(struct control_page), OS_SHARED_WRITTEN))
    return false;
  struct control_page *page = out->base;
  page->layout = CONTROL_LAYOUT;
  page->answer_at = (uint32_t)out->bytes;
  memcpy(page->mark, CONTROL_MARK, sizeof page->mark);
  return true;
}

static enum control_result start_profile(uint64_t interval) {
  if (interval == 0 || interval > CONTROL_INTERVAL_MAX)
    return CONTROL_UNKNOWN;
  if (profile_is_on())
    return CONTROL_IS_ON;
  return profile_start(interval) ? CONTROL_DONE : CONTROL_NO_MEMORY;
}

static enum control_result stop_profile(void) {
  if (!profile_is_on())
    return CONTROL_IS_OFF;
  profile_stop();
  tally_broadcast();
  return CONTROL_DONE;
}

/* Writes the content of an answer with add_content, if there is any. */
static enum control_result write_answer(const struct os_shared *shared, bool is_any,
                                        void (*add_content)(struct os_file_part *), uint64_t *bytes) {
  struct os_file_part file;
  if (!is_any)
    return CONTROL_IS_OFF;
  if (!os_shared_is_open(shared))
    return CONTROL_NOT_WRITTEN;
  if (!os_file_begin_at(&file, shared->fd, shared->bytes))
    add_content(&file);
  enum os_file_error error = os_file_end(&file);
  if (error) {
    os_shared_empty(shared);
    return error == OS_FILE_NO_MEMORY ? CONTROL_NO_MEMORY : CONTROL_NOT_WRITTEN;
  }
  *bytes = file.length - shared->bytes;
  return CONTROL_DONE;
}

static enum control_result carry_out(const struct os_shared *shared, uint64_t verb, uint64_t interval,
                                     uint64_t *bytes) {
  switch (verb) {
  case CONTROL_START:
    return start_profile(interval);
  case CONTROL_STOP:
    return stop_profile();
  case CONTROL_DUMP:
    return write_answer(shared, profile_was_started(), profile_add_to, bytes);
  case CONTROL_POLICY:
    return write_answer(shared, option_value(OPTION_POLICY) != POLICY_OFF, policy_store_add_to, bytes);
  default:
    return CONTROL_UNKNOWN;
  }
}

void control_serve(const struct os_shared *shared) {
  struct control_page *page = shared->base;
  if (page == NULL)
    return;
  uint64_t asked = atomic_load_explicit(&page->stage, memory_order_acquire);
  if (control_stage_of(asked) == CONTROL_FREE)
    return;
  bool is_asked = control_stage_of(asked) == CONTROL_ASKED;
  uint64_t next = control_staged(asked, is_asked ? CONTROL_TAKEN : CONTROL_FREE);
  if (!atomic_compare_exchange_strong(&page->stage, &asked, next) || !is_asked)
    return;
  uint64_t verb = load_relaxed(&page->verb);
  uint64_t interval = load_relaxed(&page->interval_bytes);
  os_shared_empty(shared); /* frees an answer that was never fetched */
  uint64_t bytes = 0;
  store_relaxed(&page->result, (uint64_t)carry_out(shared, verb, interval, &bytes));
  store_relaxed(&page->answer_bytes, bytes);
  atomic_store_explicit(&page->stage, control_staged(asked, CONTROL_FREE), memory_order_release);
}
