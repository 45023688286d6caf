#include "os/filter.h"

#include "os/text_file.h"

/* Variable of the C library: false once there was a second thread. Not every C library has it. */
extern char __libc_single_threaded __attribute__((weak));

enum inherited { NOT_ASKED, INHERITED_NONE, INHERITED };
static _Atomic int inherited;
static _Atomic bool own;

bool os_filter_is_own(void) { return atomic_load_explicit(&own, memory_order_seq_cst); }

/* Reads the mode from "Seccomp:\t2" in the status file. An unreadable file counts as none: failing calls do no harm. */
static enum inherited read_inherited(void) {
  return os_file_field("/proc/self/status", "Seccomp:") != 0 ? INHERITED : INHERITED_NONE;
}

static bool has_inherited(void) {
  int known = load_relaxed(&inherited);
  if (known == NOT_ASKED) {
    known = read_inherited();
    store_relaxed(&inherited, known);
  }
  return known == INHERITED;
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
