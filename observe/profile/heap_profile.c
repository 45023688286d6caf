/* Heap profiles on request: of the program, and of the options at its start and end. */
#include "base/options.h"
#include "hakmem/hakmem.h"
#include "heap/slow_path.h"
#include "inspect/figures.h"
#include "inspect/file.h"
#include "inspect/module.h"
#include "os/os.h"
#include "os/say.h"
#include "profile/profile.h"
#include "profile/samples.h"
#include "threads/watch.h"

#include <errno.h>
#include <string.h>

#define INTERVAL_DEFAULT ((uint64_t)512 << 10)
#define STACKS_SHOWN 20u
#define FRAMES_SHOWN 12u
#define PATH_BYTES 4096u

static SPARSE char path_wanted[OPTION_TEXT_BYTES + 256]; /* absolute; %p stands for the process id */
static int process_of_start;

int hak_profile_start(size_t interval_bytes) {
  KEEP_ERRNO;
  if (!slow_path_begin_patiently())
    return EBUSY;
  bool is_started = profile_start(interval_bytes ? interval_bytes : INTERVAL_DEFAULT);
  slow_path_end();
  return is_started ? 0 : ENOMEM;
}

int hak_profile_stop(void) {
  KEEP_ERRNO;
  if (!slow_path_begin_patiently())
    return EBUSY;
  profile_stop();
  slow_path_end();
  return 0;
}

int hak_profile_dump(const char *path) {
  KEEP_ERRNO;
  if (path == NULL)
    return EINVAL;
  if (!slow_path_begin_patiently())
    return EBUSY;
  enum os_file_error error = profile_write(path);
  slow_path_end();
  return (int)error;
}

/* --- by the options: at the start --- */

void heap_profile_begin(void) {
  long mode = option_value(OPTION_HEAP_PROFILE);
  const char *path = option_string(OPTION_HEAP_PROFILE_FILE);
  if (path[0] && !os_pattern_absolute(path, path_wanted, sizeof path_wanted)) {
    path_wanted[0] = 0;
    os_say("hakmem: the path of the heap profile is too long, or the working folder is gone: none is written\n");
  }
  if (path[0] && !option_is_set(OPTION_HEAP_PROFILE)) /* a path alone switches it on */
    mode = HEAP_PROFILE_ON;
  if (path[0] || mode != HEAP_PROFILE_OFF)
    process_of_start = os_process_id();
  if (mode == HEAP_PROFILE_OFF || !slow_path_begin())
    return;
  bool is_all = mode == HEAP_PROFILE_LEAKS && !option_is_set(OPTION_HEAP_PROFILE_KB);
  uint64_t interval = is_all ? 1 : (uint64_t)option_value(OPTION_HEAP_PROFILE_KB) << 10;
  struct heap *heap = heap_current();
  if (profile_start(interval ? interval : 1) && heap)
    heap_follow_at_once(heap); /* this thread is in no malloc */
  slow_path_end();
}

/* --- at the end: what is live, by call stack --- */

static SPARSE char line[PATH_BYTES + 64];

static void amount_text(struct text *text, struct sample_weight weight) {
  text_bytes(text, weight.bytes);
  uint64_t objects = sample_objects(weight);
  text_format(text, " in %lu block%s", objects, objects == 1 ? "" : "s");
}

static void stack_report(const struct sample_stack *stack) {
  struct text text = TEXT_IN(line);
  text_string(&text, "hakmem:   ");
  amount_text(&text, stack->live);
  text_string(&text, " from\n");
  os_say(line);
  for (unsigned i = 0; i < stack->depth && i < FRAMES_SHOWN; i++) {
    text = TEXT_IN(line);
    os_module_frame(&text, sample_stack_addresses(stack)[i]);
    os_say(line);
  }
}

/* Finds the biggest stacks by insertion, because only a few are kept. */
static unsigned find_biggest(const struct samples *samples, const struct sample_stack *found[STACKS_SHOWN],
                             size_t *count) {
  unsigned kept = 0;
  size_t cursor = 0;
  *count = 0;
  for (const struct sample_stack *stack; (stack = samples_next(samples, &cursor)) != NULL;) {
    if (stack->live.bytes == 0)
      continue;
    ++*count;
    if (kept == STACKS_SHOWN && stack->live.bytes <= found[kept - 1]->live.bytes)
      continue;
    unsigned at = kept < STACKS_SHOWN ? kept++ : kept - 1;
    for (; at > 0 && found[at - 1]->live.bytes < stack->live.bytes; at--)
      found[at] = found[at - 1];
    found[at] = stack;
  }
  return kept;
}

/* Writes sentences for people on stderr (os/say.h): how much is live in how many stacks, then the biggest stacks, with
 * module and offset of each frame for addr2line. */
static void leaks_report(void) {
  struct samples copy;
  struct pprof_about about;
  const struct sample_stack *found[STACKS_SHOWN];
  size_t count;
  char bytes[256];
  struct text text = TEXT_IN(bytes);
  if (!profile_copy(&copy, &about)) {
    os_say("hakmem: no memory to say what is live at the end\n");
    return;
  }
  unsigned kept = find_biggest(&copy, found, &count);
  text_string(&text, "hakmem: live at the end: ");
  amount_text(&text, copy.live);
  text_format(&text, " from %lu stack%s%s%s\n", count, count == 1 ? "" : "s",
              about.period_bytes > 1 ? ", estimated by samples" : "", count > kept ? "; the biggest:" : "");
  os_say(bytes);
  os_module_program_find();
  for (unsigned i = 0; i < kept; i++)
    stack_report(found[i]);
  samples_clear(&copy);
}

/* --- at the end: the file --- */

/* Of a fork's processes only the first one writes a path without %p. */
static void write_wanted(void) {
  static SPARSE char path[sizeof path_wanted + 32];
  static SPARSE char sentence[sizeof path + 256];
  bool has_id, fits = text_path(path_wanted, (uint64_t)os_process_id(), path, sizeof path, &has_id);
  if (!has_id && os_process_id() != process_of_start)
    return;
  enum os_file_error error = fits ? profile_write(path) : OS_FILE_NAME_TOO_LONG;
  if (error == OS_FILE_OK)
    return;
  struct text said = TEXT_IN(sentence);
  text_format(&said, "hakmem: no heap profile at %s: %s\n", path, os_file_words(error));
  os_say(sentence);
}

void heap_profile_end(void) {
  bool is_leaks = option_value(OPTION_HEAP_PROFILE) == HEAP_PROFILE_LEAKS && os_process_id() == process_of_start;
  if (!profile_was_started() || (!is_leaks && path_wanted[0] == 0))
    return;
  if (!slow_path_begin()) {
    os_say("hakmem: no heap profile, the program ended inside malloc\n");
    return;
  }
  if (is_leaks)
    leaks_report();
  if (path_wanted[0])
    write_wanted();
  slow_path_end();
}
