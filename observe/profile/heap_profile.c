/* Heap profiles on request: of the program, and of the options at its start and end. */
#include "profile/heap_profile.h"

#include "base/options.h"
#include "base/text.h"
#include "hakmem/hakmem.h"
#include "heap/slow_path.h"
#include "inspect/file.h"
#include "os/os.h"
#include "os/say.h"
#include "profile/leaks.h"
#include "profile/profile.h"
#include "threads/watch.h"

#include <errno.h>
#include <string.h>

#define INTERVAL_DEFAULT ((uint64_t)512 << 10)

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

static int errno_of(enum os_file_error error) {
  static const int numbers[] = {
      [OS_FILE_OK] = 0,
      [OS_FILE_ABSENT] = ENOENT,
      [OS_FILE_IRREGULAR] = EINVAL,
      [OS_FILE_LINK] = ELOOP,
      [OS_FILE_DENIED] = EACCES,
      [OS_FILE_NO_SPACE] = ENOSPC,
      [OS_FILE_NAME_TOO_LONG] = ENAMETOOLONG,
      [OS_FILE_READ_ONLY] = EROFS,
      [OS_FILE_NO_MEMORY] = ENOMEM,
      [OS_FILE_REFUSED] = EIO,
  };
  return numbers[error];
}

int hak_profile_dump(const char *path) {
  KEEP_ERRNO;
  if (path == NULL)
    return EINVAL;
  if (!slow_path_begin_patiently())
    return EBUSY;
  enum os_file_error error = profile_write(path);
  slow_path_end();
  return errno_of(error);
}

/* --- by the options --- */

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

/* Writes the path of the file. False: it does not fit, or another process writes it. */
static bool path_of_process(char *out, size_t bytes) {
  struct text text = {.bytes = out, .capacity = bytes, .length = 0};
  bool has_id = text_path(&text, path_wanted, (uint64_t)os_process_id());
  return text.length < bytes - 1 && (has_id || os_process_id() == process_of_start);
}

static void write_wanted(void) {
  static SPARSE char path[sizeof path_wanted + 32];
  static SPARSE char sentence[sizeof path + 256];
  if (!path_of_process(path, sizeof path))
    return;
  enum os_file_error error = profile_write(path);
  if (error == OS_FILE_OK)
    return;
  struct text text = TEXT_IN(sentence);
  text_strings(&text, "hakmem: no heap profile at ", path, ": ", os_file_words(error), "\n");
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
