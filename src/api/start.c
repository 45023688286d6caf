/* What happens once: options from the environment, fork handlers, the summary at exit. malloc does
 * not wait for any of it; options that come late only change what happens from then on. */
#include "api/alloc.h"

#include "adapt/learned.h"
#include "adapt/learned_file.h"
#include "base/options.h"
#include "base/text.h"
#include "budget/usage.h"
#include "hakmem/hakmem.h"
#include "heap/slow_path.h"
#include "large/large.h"
#include "live/live.h"
#include "os/fault.h"
#include "os/filter.h"
#include "os/os.h"
#include "os/say.h"
#include "pages/extent.h"
#include "pages/huge.h"
#include "pages/metadata.h"
#include "pages/superslab.h"
#include "profile/heap_profile.h"
#include "reclaim/background.h"
#include "reclaim/reclaim.h"
#include "stats/report.h"
#include "stats/stats.h"

#include <pthread.h>
#include <string.h>

#define PREFIX "HAKMEM_"

#define VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch
#define VERSION_TEXT_MADE(...) VERSION_TEXT_OF(__VA_ARGS__)
#define VERSION_TEXT VERSION_TEXT_MADE(HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR, HAKMEM_VERSION_PATCH)

/* The descriptor is kept open from the first time a summary is wanted; report_open is the only writer. */
enum report_state { REPORT_NONE, REPORT_OPENING, REPORT_OPEN };
static _Atomic int report_state;
static int report_fd = -1;
static struct os_file report_file;

#define VALUE_BYTES_MAX 100 /* of a value that is shown */

/* One line: the variable, its value, what is allowed or done instead. */
static void report_bad_option(const char *assignment, size_t name_length, enum option_error error) {
  char bytes[VALUE_BYTES_MAX + 400], value[VALUE_BYTES_MAX], name[64];
  struct text text = TEXT_IN(bytes), shown = TEXT_IN(value), name_text = TEXT_IN(name);
  name_text.capacity = min_size(name_length + 1, sizeof name);
  text_visible(&name_text, assignment);
  text_visible(&shown, assignment + name_length + 1);
  text_string(&text, "hakmem: ");
  text_string(&text, name);
  if (error != OPTION_UNKNOWN) {
    text_string(&text, "=");
    text_string(&text, value);
    text_string(&text, shown.length + 1 == sizeof value ? "..." : "");
  }
  if (error == OPTION_RESERVED) {
    text_string(&text, " does not exist yet, allowed is ");
    option_allowed(assignment, name_length, &text);
    text_string(&text, "; ");
    option_text(OPTION_PROFILE, option_value(OPTION_PROFILE), &text);
    text_string(&text, " is used");
  } else if (error == OPTION_UNKNOWN) {
    text_string(&text, " is no option of hakmem, ignored");
  } else {
    text_string(&text, ": bad value, allowed is ");
    option_allowed(assignment, name_length, &text);
    text_string(&text, "; default kept");
  }
  text_string(&text, " (hak options lists all)\n");
  os_write(2, text.bytes, text.length);
}

static void options_read(void) {
  size_t cursor = 0;
  const char *assignment;
  const char *reserved = NULL;
  size_t reserved_length = 0;
  bool is_any = false;
  while ((assignment = os_environment_next(PREFIX, &cursor)) != NULL) {
    size_t name_length = (size_t)(strchr(assignment, '=') - assignment);
    if (!is_any)
      os_say_remember();
    is_any = true;
    enum option_error error = options_parse(assignment, name_length, assignment + name_length + 1);
    if (error == OPTION_RESERVED) {
      reserved = assignment; /* which profile is used is known at the end */
      reserved_length = name_length;
    } else if (error != OPTION_OK) {
      report_bad_option(assignment, name_length, error);
    }
  }
  if (reserved != NULL)
    report_bad_option(reserved, reserved_length, OPTION_RESERVED);
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
  os_say(bytes);
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
  report_fd = os_duplicate_high(2); /* programs close stderr before we get to speak */
  if (report_fd >= 0)
    report_file = os_file_identity(report_fd);
  atomic_store_explicit(&report_state, report_fd >= 0 ? REPORT_OPEN : REPORT_NONE, memory_order_release);
}

/* What a fork's child has to set right. Nobody is in a slow path then, so no lock is held and nothing half done. */
static void (*const child_steps[])(void) = {
    heaps_in_child,        usage_in_child,
    learned_file_in_child, background_in_child, /* it forgets the word that live_in_child takes away */
    live_in_child,
};

/* Our handlers are registered early, so they run last before a fork and first after. Handlers of libraries that were
 * set up before us run later all the same; what they allocate is spare memory. */
static void before_fork(void) {
  background_before_fork();
  if (slow_path_begin()) {
    heaps_sweep_all(false); /* bins of threads that ended are whole: saved for the child */
    slow_path_end();
  }
  bool is_quiet = gate_shut() && !thread_is_busy();
  if (is_quiet)
    heaps_before_fork();
  hak_assert(!is_quiet || usage_free() == units_resident_free() + extents_resident_free() + large_cached_bytes());
  hak_assert(!is_quiet || stats_parts_hold());
}

static void after_fork_in_parent(void) {
  heaps_in_parent();
  gate_open();
  background_in_parent();
}

/* A handler that interrupts this, and one that forked while its thread was in a slow path, finds that busy: the latter's
 * next slow path comes here again. */
static void after_fork_in_child(void) {
  if (gate_child_is_prepared() || !gate_reset() || thread_is_busy())
    return;
  owner_step_begin();
  for (size_t i = 0; i < sizeof child_steps / sizeof child_steps[0]; i++)
    child_steps[i]();
  owner_step_end();
}

static void prewarm_bins(void) {
  if (option_value(OPTION_PREWARM) != PREWARM_ON || !slow_path_begin())
    return;
  if (heap_current() != NULL || heap_attach() != NULL)
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
  os_say(policy_complaint);
}

static void policy_write(void) {
  struct text complaint = TEXT_IN(policy_complaint);
  if (!slow_path_begin()) /* as in report_write */
    return;
  learned_file_write("hakmem " VERSION_TEXT, &complaint);
  slow_path_end();
  os_say(policy_complaint);
}

static void live_begin(void) {
  if (!slow_path_begin())
    return;
  live_start();
  slow_path_end();
}

/* Functions that call malloc or free, but not as their last step. */
static const uintptr_t relays[] = {(uintptr_t)hak_calloc, (uintptr_t)hak_realloc, (uintptr_t)resize_by_copy,
                                   (uintptr_t)aligned_block, 0};

__attribute__((constructor(101))) void hak_start(void) {
  gate_child_calls(after_fork_in_child);
  options_read();
  usage_limits_apply();
  tally_apply();
  background_prepare(relays);
  prewarm_bins();
  policy_read();
  heap_profile_begin();
  live_begin();
  if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
    os_say("hakmem: no memory for fork handlers: a fork while other threads allocate may hang\n");
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
  if (thread_is_busy()) /* exit was called by a signal handler that interrupted us */
    os_say("hakmem: no summary, the program ended inside malloc\n");
  else if (report_pattern[0])
    report_write_file();
  else
    stats_report(report_fd, report_mode());
}

/* The summary first: what is written about the policy concludes matches, and takes in what other processes learned. */
__attribute__((destructor(101))) static void hak_end(void) {
  if (!os_may_read_files()) /* a filter of the program's own: it may not let us write anything */
    return;
  report_write();
  heap_profile_end();
  policy_write();
}
