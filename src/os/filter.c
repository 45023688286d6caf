#include "os/filter.h"

#include "os/text_file.h"

/* Variable of the C library: false once there was a second thread. Not every C library has it. */
extern char __libc_single_threaded __attribute__((weak));

enum inherited { NOT_ASKED, INHERITED_NONE, INHERITED };
static _Atomic int inherited;
static _Atomic bool own;

bool os_filter_is_own(void) { return atomic_load_explicit(&own, memory_order_seq_cst); }

bool os_filter_was_there(void) { return load_relaxed(&inherited) == INHERITED; }

/* Reads the mode from "Seccomp:\t2" in the status file. A kernel without filters has no such line. */
static enum inherited read_inherited(void) {
  bool is_readable = os_file_field("/proc/self/status", "Pid:") != 0;
  return is_readable && os_file_field("/proc/self/status", "Seccomp:") == 0 ? INHERITED_NONE : INHERITED;
}

static bool has_inherited(void) {
  if (load_relaxed(&inherited) == NOT_ASKED)
    store_relaxed(&inherited, read_inherited());
  return os_filter_was_there();
}

COLD bool os_may_read_files(void) { return !os_filter_is_own(); }
bool os_may_call(void) { return !os_filter_is_own() && !has_inherited(); }
bool os_may_start_thread(void) {
  return os_may_call() || (!os_filter_is_own() && &__libc_single_threaded != NULL && !__libc_single_threaded);
}

bool os_filter_comes(void) {
  has_inherited(); /* it cannot be read later */
  return !atomic_exchange_explicit(&own, true, memory_order_seq_cst);
}

void os_filter_refused(void) { atomic_store_explicit(&own, false, memory_order_seq_cst); }
