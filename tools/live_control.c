#include "tools/live_control.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS_MIN 500000
#define NAP_NS_MAX 20000000
#define WORK_MS_MAX 60000u
#define ANSWER_BYTES_MAX ((size_t)1 << 32)
#define NS_OF_MS 1000000u

#define wrong(control, ...) live_unreadable(&(control)->live, __VA_ARGS__)

/* --- waiting --- */

struct patience {
  uint64_t until_ns;
  long nap_ns;
};

static struct patience patience_of(uint64_t wait_ms) {
  return (struct patience){.until_ns = os_nanoseconds() + wait_ms * NS_OF_MS, .nap_ns = NAP_NS_MIN};
}

/* Sleeps a little, each time longer. False: the time is over. */
static bool is_patient(struct patience *patience) {
  if (os_nanoseconds() >= patience->until_ns)
    return false;
  nanosleep(&(struct timespec){.tv_nsec = patience->nap_ns}, NULL);
  patience->nap_ns = patience->nap_ns < NAP_NS_MAX / 2 ? patience->nap_ns * 2 : NAP_NS_MAX;
  return true;
}

/* --- the file --- */

static bool is_sound(struct control *control) {
  struct stat status;
  if (!live_is_safe(control->fd) || fstat(control->fd, &status) != 0 || status.st_size < (off_t)sizeof *control->page)
    return wrong(control, "where process %ld takes commands is damaged");
  void *page = mmap(NULL, sizeof *control->page, PROT_READ | PROT_WRITE, MAP_SHARED, control->fd, 0);
  if (page == MAP_FAILED)
    return wrong(control, "where process %ld takes commands cannot be mapped: %m");
  control->page = page;
  control->answer_at = control->page->answer_at;
  if (memcmp(control->page->mark, CONTROL_MARK, sizeof control->page->mark) != 0 ||
      control->answer_at < sizeof *control->page)
    return wrong(control, "where process %ld takes commands is damaged");
  if (control->page->layout != CONTROL_LAYOUT)
    return wrong(control, "process %ld takes commands of another version than this program's");
  return true;
}

/* Locks the file. The kernel releases the lock when this program ends. */
static bool lock_page(struct control *control) {
  struct patience patience = patience_of(control->wait_ms);
  while (flock(control->fd, LOCK_EX | LOCK_NB) != 0)
    if ((errno != EWOULDBLOCK && errno != EINTR) || !is_patient(&patience))
      return wrong(control, "somebody else asks process %ld for something; try again later");
  return true;
}

static bool no_file(struct control *control) {
  if (live_state(&control->live) == 'Z')
    return live_ended(&control->live);
  return wrong(control, "process %ld takes no commands: %s",
               control->fd == LIVE_FIND_DENIED
                   ? "it is another user's"
                   : "it has closed the descriptor for them, or its hakmem is of another version");
}

bool control_open(struct control *control, long pid, uint64_t wait_ms) {
  *control = (struct control){.fd = -1, .wait_ms = wait_ms};
  if (!live_open(&control->live, pid))
    return false;
  control->fd = live_find_file(control->live.folder, CONTROL_FILE_NAME, O_RDWR);
  bool is_open = control->fd >= 0 ? is_sound(control) && lock_page(control) : no_file(control);
  if (!is_open)
    control_close(control);
  return is_open;
}

void control_close(struct control *control) {
  if (control->page)
    munmap(control->page, sizeof *control->page);
  if (control->fd >= 0)
    close(control->fd);
  live_close(&control->live);
  control->page = NULL;
  control->fd = -1;
}

/* --- a command --- */

static uint64_t stage_of(const struct control *control) {
  return atomic_load_explicit(&control->page->stage, memory_order_acquire);
}

static bool move_stage(struct control *control, uint64_t from, uint64_t to) {
  return atomic_compare_exchange_strong(&control->page->stage, &from, to);
}

static bool nobody_comes(struct control *control) {
  char state = live_state(&control->live);
  if (state == 'Z')
    return live_ended(&control->live);
  if (state == 'T' || state == 't')
    return wrong(control, "process %ld is stopped, and nothing was done");
  return wrong(control, "process %ld did not react, and nothing was done: it was just started, or has taken no memory "
                        "since its start, or HAKMEM_BACKGROUND=off keeps hakmem's thread away");
}

/* Withdraws the pending command of a client that has ended, or waits until a running one is finished. */
static bool clear_command(struct control *control) {
  struct patience patience = patience_of(control->wait_ms);
  for (;;) {
    uint64_t stage = stage_of(control), is_free = control_staged(stage, CONTROL_FREE);
    if (stage == is_free)
      return true;
    if (control_stage_of(stage) == CONTROL_ASKED && move_stage(control, stage, is_free))
      return true;
    live_wake(&control->live);
    if (live_state(&control->live) == 'Z' || !is_patient(&patience))
      return live_state(&control->live) == 'R' || live_state(&control->live) == 'S'
                 ? wrong(control, "process %ld is still busy with what was asked before; try again later")
                 : nobody_comes(control);
  }
}

static bool is_answered(struct control *control, enum control_verb verb) {
  uint64_t result = atomic_load_explicit(&control->page->result, memory_order_relaxed);
  switch (result) {
  case CONTROL_DONE:
    return true;
  case CONTROL_IS_ON:
    return wrong(control, "process %ld has a profile that runs already; stop it first");
  case CONTROL_IS_OFF:
    return wrong(control, verb == CONTROL_DUMP     ? "no profile was ever started in process %ld"
                          : verb == CONTROL_POLICY ? "process %ld has learned nothing: HAKMEM_POLICY is off"
                                                   : "process %ld has no profile that runs");
  case CONTROL_NO_MEMORY:
    return wrong(control, "process %ld has no memory for it");
  case CONTROL_NOT_WRITTEN:
    return wrong(control, "process %ld cannot write the answer: it has closed the descriptor, or a limit forbids it");
  default:
    return wrong(control, "process %ld does not know this command: its hakmem is of another version");
  }
}

bool control_ask(struct control *control, enum control_verb verb, uint64_t interval_bytes) {
  if (!clear_command(control))
    return false;
  struct control_page *page = control->page;
  uint64_t asked = stage_of(control) + CONTROL_STAGES + CONTROL_ASKED;
  atomic_store_explicit(&page->verb, (uint64_t)verb, memory_order_relaxed);
  atomic_store_explicit(&page->interval_bytes, interval_bytes, memory_order_relaxed);
  atomic_store_explicit(&page->stage, asked, memory_order_release);
  struct patience patience = patience_of(control->wait_ms);
  do
    live_wake(&control->live);
  while (stage_of(control) == asked && live_state(&control->live) != 'Z' && is_patient(&patience));
  if (move_stage(control, asked, control_staged(asked, CONTROL_FREE)))
    return nobody_comes(control);
  uint64_t taken = control_staged(asked, CONTROL_TAKEN);
  for (patience = patience_of(WORK_MS_MAX); stage_of(control) == taken;) {
    if (live_state(&control->live) == 'Z')
      return nobody_comes(control);
    if (!is_patient(&patience))
      return wrong(control, "process %ld has begun and is not done after a minute");
  }
  if (stage_of(control) != control_staged(asked, CONTROL_FREE))
    return wrong(control, "somebody else wrote over what process %ld was asked");
  return is_answered(control, verb);
}

/* --- the answer --- */

void *control_answer(struct control *control, enum control_verb verb, size_t *length) {
  if (!control_ask(control, verb, 0))
    return NULL;
  *length = atomic_load_explicit(&control->page->answer_bytes, memory_order_relaxed);
  char *bytes = *length <= ANSWER_BYTES_MAX ? malloc(*length + 1) : NULL;
  for (size_t at = 0; bytes && at < *length;) {
    ssize_t got = pread(control->fd, bytes + at, *length - at, (off_t)(control->answer_at + at));
    if (got <= 0) {
      wrong(control, "the answer of process %ld is shorter than it says");
      free(bytes);
      return NULL;
    }
    at += (size_t)got;
  }
  if (bytes == NULL)
    wrong(control, "no memory for the answer of process %ld");
  /* Otherwise the process would keep it until the next command. */
  fallocate(control->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, control->answer_at,
            (off_t)(INT64_MAX - control->answer_at));
  return bytes;
}
