#include "os/filter.h"

#include "os/kernel.h"
#include "os/os.h"
#include "os/say.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

/* The C library's: false once there was a second thread. Not in all of them. */
extern char __libc_single_threaded __attribute__((weak));

enum inherited { NOT_ASKED, INHERITED_NONE, INHERITED };
static _Atomic int inherited;
static _Atomic bool own;

static bool has_own(void) { return atomic_load_explicit(&own, memory_order_seq_cst); }

/* "Seccomp:\t2" in the status file: the mode. A file that cannot be read tells of no filter: calls that fail do no harm. */
static enum inherited look(void) {
  static const char key[] = "\nSeccomp:\t";
  char text[4096];
  int kept = errno;
  int fd = (int)os_kernel(SYS_openat, (long)AT_FDCWD, "/proc/self/status", (long)(O_RDONLY | O_CLOEXEC));
  long length = fd < 0 ? 0 : os_kernel(SYS_read, fd, text, sizeof text - 1);
  if (fd >= 0)
    os_kernel(SYS_close, fd);
  errno = kept;
  text[length < 0 ? 0 : length] = 0;
  const char *line = strstr(text, key);
  return line && line[sizeof key - 1] != '0' ? INHERITED : INHERITED_NONE;
}

static bool has_inherited(void) {
  int known = atomic_load_explicit(&inherited, memory_order_relaxed);
  if (known == NOT_ASKED) {
    known = look();
    atomic_store_explicit(&inherited, known, memory_order_relaxed);
  }
  return known == INHERITED;
}

bool os_may_read_files(void) { return !has_own(); }
bool os_may_call(void) { return !has_own() && !has_inherited(); }
bool os_may_start_thread(void) {
  return os_may_call() || (!has_own() && &__libc_single_threaded != NULL && !__libc_single_threaded);
}

/* What is asked for later, and then known. */
static void ask_ahead(void) {
  struct lifeline line;
  os_memory_limit();
  os_say_prepare();
  lifeline_reset(&line);
}

bool os_filter_comes(void) {
  if (has_own())
    return false;
  has_inherited();
  ask_ahead();
  return !atomic_exchange_explicit(&own, true, memory_order_seq_cst);
}

void os_filter_refused(void) { atomic_store_explicit(&own, false, memory_order_seq_cst); }
