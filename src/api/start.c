/* What happens once: options from the environment, fork handlers, the summary at exit. malloc does
 * not wait for any of it; options that come late only change what happens from then on. */
#include "api/alloc.h"

#include "base/options.h"
#include "base/text.h"
#include "heap/heap.h"
#include "large/large.h"
#include "map/metadata.h"
#include "map/page_map.h"
#include "map/superslab.h"
#include "os/os.h"
#include "telemetry/stats.h"

#include <pthread.h>
#include <string.h>

#define PREFIX "HAKMEM_"

#define REPORT_FD_MIN 100

static int report_fd = -1;
static struct os_file report_file;

static void say(const char *sentence) { os_write(2, sentence, strlen(sentence)); }

static void complain(const char *assignment, size_t name_length, enum option_error error) {
  char bytes[256];
  struct text text = TEXT_IN(bytes);
  char name[64];
  size_t length = min_size(name_length, sizeof name - 1);
  memcpy(name, assignment, length);
  name[length] = 0;
  text_string(&text, "hakmem: ");
  text_string(&text, name);
  text_string(&text, error == OPTION_UNKNOWN ? " is no option of hakmem, ignored" : ": bad value, default kept");
  text_string(&text, " (hak options lists all)\n");
  os_write(2, text.bytes, text.length);
}

static void options_read(void) {
  size_t cursor = 0;
  const char *assignment;
  while ((assignment = os_environment_next(PREFIX, &cursor)) != NULL) {
    size_t name_length = (size_t)(strchr(assignment, '=') - assignment);
    enum option_error error = options_parse(assignment, name_length, assignment + name_length + 1);
    if (error != OPTION_OK)
      complain(assignment, name_length, error);
  }
}

/* In lock order (src/README.md). Our handlers are registered early, so they run last before a fork and first after. */
static void before_fork(void) {
  if (heap_current() == NULL)
    heap_attach();
  heaps_lock_for_fork();
  units_lock_for_fork();
  large_lock_for_fork();
  map_lock_for_fork();
  metadata_lock_for_fork();
  /* Handlers of libraries that were set up before us run after this one, and may allocate: as in a signal
   * handler that interrupts the slow path, they get memory without waiting for the locks we hold. */
  slow_path_begin();
}

static void after_fork_in_parent(void) {
  metadata_unlock_after_fork(false);
  map_unlock_after_fork(false);
  large_unlock_after_fork(false);
  units_unlock_after_fork(false);
  heaps_unlock_after_fork_parent();
  slow_path_end();
}

static void after_fork_in_child(void) {
  metadata_unlock_after_fork(true);
  map_unlock_after_fork(true);
  large_unlock_after_fork(true);
  units_unlock_after_fork(true);
  heaps_unlock_after_fork_child();
  slow_path_end();
}

__attribute__((constructor(101))) void hak_start(void) {
  options_read();
  if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
    say("hakmem: no memory for fork handlers: a fork while other threads allocate may hang\n");
  long pid = option_value(OPTION_STATS_PID);
  if (option_value(OPTION_STATS) != STATS_OFF && (pid == 0 || pid == os_process_id()))
    report_fd = os_duplicate_above(2, REPORT_FD_MIN); /* programs close stderr before we get to speak */
  if (report_fd >= 0)
    report_file = os_file_identity(report_fd);
}

__attribute__((destructor(101))) static void hak_end(void) {
  long pid = option_value(OPTION_STATS_PID);
  if (report_fd < 0 || (pid != 0 && pid != os_process_id()))
    return;
  struct os_file file = os_file_identity(report_fd);
  if (file.device != report_file.device || file.inode != report_file.inode)
    return; /* the program closed our descriptor and got its number for a file of its own */
  if (!slow_path_begin()) {
    /* exit was called by a signal handler that interrupted us: locks may be held */
    say("hakmem: no summary, the program ended inside malloc\n");
    return;
  }
  stats_report(report_fd, (enum stats_mode)option_value(OPTION_STATS));
  slow_path_end(); /* other destructors still allocate */
}
