#include "inspect/stack.h"

#include "os/filter.h"
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

uintptr_t os_stack_end(void) {
  if (!os_may_read_files())
    return 0;
  uintptr_t end = os_thread_pointer();
  if (os_kernel(SYS_gettid) == os_kernel(SYS_getpid))
    end = getauxval(AT_RANDOM);
  return round_down(end, sizeof(uintptr_t));
}

bool os_alternate_stack(uintptr_t address, uintptr_t *end) {
  stack_t stack = {.ss_flags = SS_DISABLE};
  KEEP_ERRNO;
  bool is_told = os_may_read_files() && os_kernel(SYS_sigaltstack, NULL, &stack) == 0;
  uintptr_t start = (uintptr_t)stack.ss_sp;
  *end = start + stack.ss_size;
  return is_told && (stack.ss_flags & SS_DISABLE) == 0 && address >= start && address < *end;
}

/* An invalid `how` of rt_sigprocmask: the kernel reads the set of signals, then refuses the operation. */
#define NOTHING_TO_DO (-1)
#define SIGNAL_SET_BYTES 8

static bool kernel_reads(uintptr_t address) {
  KEEP_ERRNO;
  return os_kernel(SYS_rt_sigprocmask, NOTHING_TO_DO, address, NULL, SIGNAL_SET_BYTES) != -1 || errno != EFAULT;
}

/* An emulator may check `how` first. Then no page counts as readable. */
static bool kernel_tells(void) {
  static _Atomic int known; /* 1 no, 2 yes */
  int state = load_relaxed(&known);
  if (state == 0) {
    state = kernel_reads(-os_page_bytes()) ? 1 : 2; /* a page of the kernel */
    store_relaxed(&known, state);
  }
  return state == 2;
}

bool os_page_is_readable(uintptr_t address) {
  uintptr_t page = round_down(address, os_page_bytes());
  return page != 0 && os_may_read_files() && kernel_tells() && kernel_reads(page);
}

bool os_copy(uintptr_t address, void *copy, size_t bytes) {
  if (!os_may_read_files())
    return false;
  KEEP_ERRNO;
  struct iovec from = {.iov_base = (void *)address, .iov_len = bytes}, to = {.iov_base = copy, .iov_len = bytes};
  long copied = os_kernel(SYS_process_vm_readv, (long)os_process_id(), &to, 1L, &from, 1L, 0L);
  return copied == (long)bytes;
}
