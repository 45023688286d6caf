/* What happens once: options from the environment, fork handlers, the summary at exit. malloc does
 * not wait for any of it; options that come late only change what happens from then on. */
#include "api/alloc.h"

#include "base/options.h"
#include "base/text.h"
#include "hakmem/hakmem.h"
#include "heap/heap.h"
#include "large/large.h"
#include "learn/learned.h"
#include "learn/learned_file.h"
#include "map/extent.h"
#include "map/huge.h"
#include "map/metadata.h"
#include "map/page_map.h"
#include "map/superslab.h"
#include "map/usage.h"
#include "os/fault.h"
#include "os/os.h"
#include "profile/profile.h"
#include "reclaim/background.h"
#include "reclaim/reclaim.h"
#include "telemetry/live.h"
#include "telemetry/report.h"
#include "telemetry/stats.h"

#include <pthread.h>
#include <string.h>

#define PREFIX "HAKMEM_"

#define REPORT_FD_MIN 100

#define VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch
#define VERSION_TEXT_MADE(...) VERSION_TEXT_OF(__VA_ARGS__)
#define VERSION_TEXT VERSION_TEXT_MADE(HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR, HAKMEM_VERSION_PATCH)

/* The descriptor is kept open from the first time a summary is wanted; report_open is the only writer. */
enum report_state { REPORT_NONE, REPORT_OPENING, REPORT_OPEN };
static _Atomic int report_state;
static int report_fd = -1;
static struct os_file report_file;

/* What stands for stderr when the program starts. Programs close it, and get its number for a file of their own. */
static struct os_file error_output;

static void say(const char *sentence) { os_write(2, sentence, strlen(sentence)); }

void say_at_end(const char *sentence) {
  struct os_file file = os_file_identity(2);
  if (file.device == error_output.device && file.inode == error_output.inode)
    say(sentence);
}

static void complain(const char *assignment, size_t name_length, enum option_error error) {
  char bytes[256];
  struct text text = TEXT_IN(bytes);
  char name[64];
  size_t length = min_size(name_length, sizeof name - 1);
  memcpy(name, assignment, length);
  name[length] = 0;
  text_string(&text, "hakmem: ");
  text_string(&text, name);
  if (error == OPTION_RESERVED) {
    text_string(&text, "=");
    text_string(&text, assignment + name_length + 1);
    text_string(&text, " does not exist yet, profile ");
    option_text(OPTION_PROFILE, option_value(OPTION_PROFILE), &text);
    text_string(&text, " is used");
  } else {
    text_string(&text, error == OPTION_UNKNOWN ? " is no option of hakmem, ignored" : ": bad value, default kept");
  }
  text_string(&text, " (hak options lists all)\n");
  os_write(2, text.bytes, text.length);
}

static void options_read(void) {
  size_t cursor = 0;
  const char *assignment;
  const char *reserved = NULL;
  size_t reserved_length = 0;
  while ((assignment = os_environment_next(PREFIX, &cursor)) != NULL) {
    size_t name_length = (size_t)(strchr(assignment, '=') - assignment);
    enum option_error error = options_parse(assignment, name_length, assignment + name_length + 1);
    if (error == OPTION_RESERVED) {
      reserved = assignment; /* which profile is used is known at the end */
      reserved_length = name_length;
    } else if (error != OPTION_OK) {
      complain(assignment, name_length, error);
    }
  }
  if (reserved != NULL)
    complain(reserved, reserved_length, OPTION_RESERVED);
}

static char report_pattern[OPTION_TEXT_BYTES]; /* of the file's path; "": no file is wanted */

static enum stats_mode report_mode(void) {
  return report_pattern[0] && !option_is_set(OPTION_STATS) ? STATS_OPENMETRICS
                                                           : (enum stats_mode)option_value(OPTION_STATS);
}

static bool report_is_wanted(void) {
  long pid = option_value(OPTION_STATS_PID);
  return report_mode() != STATS_OFF && (pid == 0 || pid == os_process_id());
}

static void report_complain(const char *path, const char *reason) {
  char bytes[OPTION_TEXT_BYTES + 128];
  struct text text = TEXT_IN(bytes);
  text_string(&text, "hakmem: ");
  text_string(&text, path);
  text_string(&text, ": ");
  text_string(&text, reason);
  text_string(&text, "; no summary is written\n");
  say_at_end(bytes);
}

/* The program may change its folder later. */
static void report_file_find(void) {
  const char *path = option_string(OPTION_STATS_FILE);
  if (*path == 0 || os_path_absolute(path, report_pattern, sizeof report_pattern))
    return;
  report_pattern[0] = 0;
  report_complain(path, "there is no such folder, or the name is too long");
}

static void report_write_file(void) {
  char path[OPTION_TEXT_BYTES];
  bool fits = stats_path(report_pattern, (uint64_t)os_process_id(), path, sizeof path);
  enum os_file_error error = fits ? stats_report_file(path, report_mode()) : OS_FILE_NAME_TOO_LONG;
  if (error)
    report_complain(path, os_file_words(error));
}

void report_open(void) {
  int none = REPORT_NONE;
  if (!report_is_wanted() || report_pattern[0] || !atomic_compare_exchange_strong(&report_state, &none, REPORT_OPENING))
    return;
  report_fd = os_duplicate_above(2, REPORT_FD_MIN); /* programs close stderr before we get to speak */
  if (report_fd >= 0)
    report_file = os_file_identity(report_fd);
  atomic_store_explicit(&report_state, report_fd >= 0 ? REPORT_OPEN : REPORT_NONE, memory_order_release);
}

/* What a fork has to hold, in lock order (src/README.md), and who else has to know in the child. */
static const struct fork_step {
  void (*before)(void);
  void (*after)(bool child);
} fork_steps[] = {
    {stats_lock_for_fork, stats_unlock_after_fork},
    {reclaim_lock_for_fork, reclaim_unlock_after_fork},
    {heaps_lock_for_fork, heaps_unlock_after_fork},
    {large_lock_for_fork, large_unlock_after_fork},
    {units_lock_for_fork, units_unlock_after_fork},
    {extents_lock_for_fork, extents_unlock_after_fork},
    {map_lock_for_fork, map_unlock_after_fork},
    {NULL, learned_file_after_fork},
    {learned_lock_for_fork, learned_unlock_after_fork},
    {profile_lock_for_fork, profile_unlock_after_fork},
    {metadata_lock_for_fork, metadata_unlock_after_fork},
    {usage_lock_for_fork, usage_unlock_after_fork},
    {limit_callback_lock_for_fork, limit_callback_unlock_after_fork},
    {NULL, huge_after_fork},
    {NULL,
     live_after_fork}, /* the word it takes away is the background's until that has forgotten it, which is before */
    {NULL, background_after_fork},
};
#define FORK_STEPS (sizeof fork_steps / sizeof fork_steps[0])

/* Our handlers are registered early, so they run last before a fork and first after. */
static void before_fork(void) {
  if (heap_current() == NULL)
    heap_attach();
  /* Handlers of libraries that were set up before us run after this one, and may allocate: as in a signal
   * handler that interrupts the slow path, they get memory without waiting for the locks we hold. If this
   * is such a handler, its thread holds locks already, and no other can be waited for: the child has what
   * it needs to report a crash, no more. */
  if (!slow_path_begin()) {
    heap_current()->forks_interrupting = true;
    return;
  }
  for (size_t i = 0; i < FORK_STEPS; i++)
    if (fork_steps[i].before)
      fork_steps[i].before();
  /* Every lock is held: nothing moves. */
  hak_assert(usage_free() == units_resident_free() + extents_resident_free() + large_cached_bytes());
  hak_assert(stats_parts_hold());
}

static void after_fork(bool child) {
  struct heap *heap = heap_current();
  if (heap && heap->forks_interrupting) {
    heap->forks_interrupting = false;
    return;
  }
  for (size_t i = FORK_STEPS; i-- > 0;)
    fork_steps[i].after(child);
  slow_path_end();
}
static void after_fork_in_parent(void) { after_fork(false); }
static void after_fork_in_child(void) { after_fork(true); }

static void prewarm(void) {
  if (option_value(OPTION_PREWARM) != PREWARM_ON || (heap_current() == NULL && heap_attach() == NULL))
    return;
  slow_path_begin();
  bins_prewarm(heap_current());
  slow_path_end();
}

/* A sentence about a path of any length. */
static char policy_complaint[OPTION_TEXT_BYTES + 256];

static void policy_read(void) {
  struct text complaint = TEXT_IN(policy_complaint);
  if (!slow_path_begin())
    return;
  learned_file_read(&complaint);
  slow_path_end();
  say(policy_complaint);
}

static void policy_write(void) {
  struct text complaint = TEXT_IN(policy_complaint);
  if (!slow_path_begin()) /* as in report_write */
    return;
  learned_file_write("hakmem " VERSION_TEXT, &complaint);
  slow_path_end();
  say_at_end(policy_complaint);
}

static void live_begin(void) {
  if (!slow_path_begin())
    return;
  live_start();
  slow_path_end();
}

__attribute__((constructor(101))) void hak_start(void) {
  error_output = os_file_identity(2);
  options_read();
  usage_limits_apply();
  tally_apply();
  background_prepare();
  prewarm();
  policy_read();
  heap_profile_begin();
  live_begin();
  if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
    say("hakmem: no memory for fork handlers: a fork while other threads allocate may hang\n");
  report_file_find();
  report_open();
}

/* A descriptor is there, and still what was opened: the program may have closed it, and got its number for a file of
 * its own. */
static bool report_is_open(void) {
  if (atomic_load_explicit(&report_state, memory_order_acquire) != REPORT_OPEN)
    return false;
  struct os_file file = os_file_identity(report_fd);
  return file.device == report_file.device && file.inode == report_file.inode;
}

static void report_write(void) {
  if (!report_is_wanted() || (report_pattern[0] == 0 && !report_is_open()))
    return;
  if (!slow_path_begin()) {
    /* exit was called by a signal handler that interrupted us: locks may be held */
    say("hakmem: no summary, the program ended inside malloc\n");
    return;
  }
  if (report_pattern[0])
    report_write_file();
  else
    stats_report(report_fd, report_mode());
  slow_path_end(); /* other destructors still allocate */
}

/* The summary first: what is written about the policy concludes matches, and takes in what other processes learned. */
__attribute__((destructor(101))) static void hak_end(void) {
  report_write();
  heap_profile_end();
  policy_write();
}
